"""What a plan comes to, as the timing is told."""

from __future__ import annotations

from simbatch.memory.base import Memory
from simbatch.record import Stretch
from simbatch.request import Sequence
from simbatch.scheduler.plan import Plan


def describe(stretch: Stretch, plan: Plan, aside: int, memory: Memory) -> None:
    """Tell *stretch* what *plan* does in an iteration. *aside* requests wait elsewhere than in the queue."""
    running, waiting = plan.running, plan.waiting
    stretch.plan, stretch.batch = plan, running
    if plan.decodes:
        stretch.tokens = stretch.sequences = decoding = running.decoding
        stretch.context_tokens = decoding * (running.clock + 1) - running.origins
        stretch.gaps = decoding - len(running.ended)
    else:
        stretch.tokens = stretch.sequences = stretch.context_tokens = stretch.gaps = 0
    if stretch.prefill_sequences:
        stretch.prefill_tokens = stretch.prefill_sequences = stretch.prefill_context_tokens = stretch.prefill_pairs = 0
    if plan.chunks:
        stretch.steady = False
        _add_chunks(plan.chunks, stretch)
    else:
        stretch.steady = plan.decodes and not plan.preempted and not plan.dropped
    stretch.cause = plan.held_back
    if waiting:
        head = waiting.head()
        stretch.waiting, stretch.head = len(waiting) + aside, head.index
        stretch.external = memory.external_tokens(head)
    else:
        stretch.waiting, stretch.head = aside, -1
        stretch.external = memory.external_tokens(None)


def _add_chunks(chunks: dict[Sequence, int], stretch: Stretch) -> None:
    """What those that get other than a decode do in an iteration."""
    for sequence, count in chunks.items():
        if not count:
            continue  # shares what another computes
        before = sequence.computed
        after = before + count
        stretch.tokens += count
        stretch.sequences += 1
        stretch.context_tokens += after
        if sequence.known - before > 1:
            stretch.prefill_tokens += count
            stretch.prefill_sequences += 1
            stretch.prefill_context_tokens += after
            stretch.prefill_pairs += count * before + count * (count + 1) // 2
