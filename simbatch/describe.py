"""What a plan comes to: as the timing is told, and as the row of its stretch begins."""

from __future__ import annotations

from simbatch.memory.base import Memory
from simbatch.record import Stretch
from simbatch.request import Sequence
from simbatch.scheduler.plan import Plan


def opening(plan: Plan, aside: int, memory: Memory, start_ps: int) -> Stretch:
    """The stretch that *plan* begins at *start_ps*, as far as it is known then.

    *aside* requests wait elsewhere than in the queue.
    """
    running, waiting = plan.running, plan.waiting
    stretch = Stretch()
    stretch.start_ps = start_ps
    stretch.plan, stretch.batch = plan, running
    if plan.decodes:
        decoding = running.decoding
        stretch.tokens = stretch.sequences = decoding
        stretch.context_tokens = decoding * (running.clock + 1) - running.origins
        stretch.gaps = decoding - len(running.ended)
    else:
        stretch.tokens = stretch.sequences = stretch.context_tokens = stretch.gaps = 0
    stretch.prefill_tokens = stretch.prefill_sequences = stretch.prefill_context_tokens = stretch.prefill_pairs = 0
    if plan.chunks:
        stretch.steady = False
        _add_chunks(plan.chunks, stretch)
    else:
        stretch.steady = plan.decodes and not plan.preempted
    # Members that have got their last token only keep their seat.
    stretch.running = len(running.members) - len(running.ended) - len(running.drained)
    stretch.live = running.live_tokens - memory.shared_tokens
    stretch.held, stretch.internal = memory.held_tokens, memory.internal_tokens
    stretch.cause = plan.held_back
    if waiting:
        head = waiting.head()
        stretch.waiting, stretch.head = len(waiting) + aside, head.index
        stretch.external = memory.external_tokens(head)
    else:
        stretch.waiting, stretch.head = aside, -1
        stretch.external = memory.external_tokens(None)
    return stretch


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
