"""What a plan comes to, as the timing is told."""

from __future__ import annotations

from simbatch.request import Sequence
from simbatch.scheduler.plan import Plan
from simbatch.timing.base import Iteration


def describe(iteration: Iteration, plan: Plan, aside: int) -> None:
    """Tell *iteration* what *plan* does. *aside* requests wait elsewhere than in the queue."""
    running = plan.running
    iteration.plan = plan
    if plan.decodes:
        iteration.tokens = iteration.sequences = decoding = running.decoding
        iteration.context_tokens = decoding * (running.clock + 1) - running.origins
    else:
        iteration.tokens = iteration.sequences = iteration.context_tokens = 0
    if iteration.prefill_sequences:
        iteration.prefill_tokens = iteration.prefill_sequences = 0
        iteration.prefill_context_tokens = iteration.prefill_pairs = 0
    if plan.chunks:
        _add_chunks(plan.chunks, iteration)
    iteration.waiting = len(plan.waiting) + aside


def _add_chunks(chunks: dict[Sequence, int], iteration: Iteration) -> None:
    """What those that get other than a decode do in an iteration."""
    for sequence, count in chunks.items():
        if not count:
            continue  # shares what another computes
        before = sequence.computed
        after = before + count
        iteration.tokens += count
        iteration.sequences += 1
        iteration.context_tokens += after
        if sequence.known - before > 1:
            iteration.prefill_tokens += count
            iteration.prefill_sequences += 1
            iteration.prefill_context_tokens += after
            iteration.prefill_pairs += count * before + count * (count + 1) // 2
