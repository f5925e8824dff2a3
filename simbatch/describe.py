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
    tokens = sequences = context_tokens = pairs = 0
    for sequence, count in chunks.items():
        if not count:
            continue  # shares what another computes
        before = sequence.computed
        if sequence.known - before > 1:
            tokens += count
            sequences += 1
            context_tokens += before + count
            pairs += count * before + count * (count + 1) // 2
        else:
            iteration.tokens += 1
            iteration.sequences += 1
            iteration.context_tokens += before + 1
    if sequences:
        iteration.prefill_tokens, iteration.prefill_sequences = tokens, sequences
        iteration.prefill_context_tokens, iteration.prefill_pairs = context_tokens, pairs
        iteration.tokens += tokens
        iteration.sequences += sequences
        iteration.context_tokens += context_tokens
