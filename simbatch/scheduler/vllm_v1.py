"""vLLM's V1 scheduler: one token budget for everybody, prompts in chunks, blocks on demand.

There is no prefill phase and no decode phase: whoever runs asks, in order of admission, for the
tokens it lacks, then the queue is let in from its head. Out of blocks, the newest is preempted
and computed again later; an iteration that preempts admits nobody.
"""

from __future__ import annotations

from simbatch.batch import Batch
from simbatch.memory.base import Memory
from simbatch.request import Sequence
from simbatch.scheduler.continuous import Continuous


class VllmV1(Continuous):
    """The rules of vLLM 0.33 for first come, first served, synchronous scheduling without prefix caching."""

    def admit(self, sequence: Sequence, tokens: int, running: Batch, memory: Memory) -> bool:
        """The whole-prompt gate and the watermark.

        The gate compares with what is free now and reserves nothing. The watermark does not hold
        while nobody runs, so that a lone large request is not locked out.
        """
        need = sequence.known if self.limits.scheduler_reserve_full_isl else tokens
        spare = memory.reserve_room(self.limits.watermark) if len(running) else 0
        return memory.room(sequence, need, spare)
