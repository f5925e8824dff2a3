"""What a plan comes to: as the timing is told, and as the row of its stretch begins."""

from __future__ import annotations

from simbatch.batch import Batch
from simbatch.memory.base import Memory
from simbatch.record import Stretch
from simbatch.scheduler.plan import Plan
from simbatch.timing.base import Iteration


def work_of(plan: Plan, waiting: int, work: Iteration) -> None:
    """Fill *work* with what the first iteration of *plan* does while *waiting* requests wait."""
    running = plan.running
    decoding = running.decoding if plan.decodes else 0
    tokens = sequences = decoding
    context = running.context_tokens + decoding if decoding else 0
    prefill = prefilling = prefill_context = pairs = 0
    for sequence, count in plan.chunks.items():
        if not count:
            continue  # shares what another computes
        before = sequence.computed
        tokens += count
        sequences += 1
        context += before + count
        if sequence.known - before > 1:
            prefill += count
            prefilling += 1
            prefill_context += before + count
            pairs += count * before + count * (count + 1) // 2
    work.tokens, work.sequences, work.context_tokens = tokens, sequences, context
    work.prefill_tokens, work.prefill_sequences = prefill, prefilling
    work.prefill_context_tokens, work.prefill_pairs = prefill_context, pairs
    work.waiting = waiting
    work.plan, work.batch = plan, running


def opening(plan: Plan, work: Iteration, memory: Memory, start_ps: int) -> Stretch:
    """The stretch that *plan* begins at *start_ps*, as far as it is known then."""
    running, waiting = plan.running, plan.waiting
    stretch = Stretch()
    stretch.start_ps, stretch.steady = start_ps, plan.steady
    stretch.running, stretch.waiting = unfinished(running), work.waiting
    stretch.tokens, stretch.sequences = work.tokens, work.sequences
    stretch.prefill_tokens, stretch.context_tokens = work.prefill_tokens, work.context_tokens
    stretch.gaps = stretch.live_growth = running.decoding - len(running.ended) if plan.decodes else 0
    stretch.live = running.live_tokens - memory.shared_tokens
    stretch.held, stretch.internal = memory.held_tokens, memory.internal_tokens
    stretch.external = memory.external_tokens(waiting.head() if waiting else None)
    stretch.cause = int(plan.held_back)
    return stretch


def unfinished(running: Batch) -> int:
    """Members that have not got their last token: those that only keep their seat do not run."""
    return len(running) - len(running.ended) - len(running.drained)
