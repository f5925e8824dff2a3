"""vLLM's V1 scheduler: one token budget for everybody, prompts in chunks, blocks on demand.

There is no prefill phase and no decode phase: whoever runs asks, in order of admission, for the
tokens it lacks, then the queue is let in from its head. Out of blocks, somebody is preempted and
computed again later; an iteration that preempts admits nobody. Each method is one rule.
"""

from __future__ import annotations

from typing import Any

from simbatch.batch import Batch
from simbatch.errors import unknown
from simbatch.memory.base import Memory
from simbatch.request import Sequence
from simbatch.scheduler.base import Limits
from simbatch.scheduler.continuous import Continuous
from simbatch.scheduler.plan import Plan
from simbatch.scheduler.queue import ByKey, Fifo, Queue

SCHEDULING_POLICIES = ("fcfs", "priority")


class VllmV1(Continuous):
    """The rules of vLLM 0.33."""

    def __init__(self) -> None:
        super().__init__()

    def start(self, limits: Limits) -> None:
        super().start(limits)
        if limits.scheduling_policy not in SCHEDULING_POLICIES:
            raise unknown("scheduling policy", limits.scheduling_policy, SCHEDULING_POLICIES)
        self.asks_every_iteration = limits.prefill_schedule_interval > 1
        self._since_prefill = limits.prefill_schedule_interval
        self._backlog = False

    # -- admission -------------------------------------------------------------------------------

    def admit(self, sequence: Sequence, tokens: int, running: Batch, memory: Memory) -> bool:
        """The whole-prompt gate and the watermark.

        The gate compares with what is free now and reserves nothing. The watermark does not hold
        while nobody runs, so that a lone large request is not locked out.
        """
        limits = self.limits
        need = sequence.known if limits.scheduler_reserve_full_isl else tokens
        spare = memory.reserve_room(limits.watermark) if limits.watermark and running.members else 0
        return memory.room(sequence, need, spare)

    # -- priority --------------------------------------------------------------------------------

    def queue(self) -> Queue:
        """By arrival, or the most important first: smallest priority, then arrival, then id."""
        if self.limits.scheduling_policy == "fcfs":
            return Fifo()
        return ByKey(lambda sequence: (sequence.priority, sequence.arrival_ps, sequence.id))

    def victim(self, running: Batch) -> Sequence:
        """The newest, or the least important, the latest of those."""
        if self.limits.scheduling_policy == "fcfs":
            return running.newest()
        return max(running, key=lambda sequence: (sequence.priority, sequence.arrival_ps))

    # -- limits on prompts -----------------------------------------------------------------------

    def most_tokens(self, waiting: Queue, running: Batch) -> int | None:
        """The long-prefill cap: it does not hold for a lone request, and may grow as requests get fewer."""
        cap = self.limits.long_prefill_token_threshold
        if not cap:
            return None
        requests = len(waiting) + len(running)
        if requests == 1 and not self.caps_lone_requests:
            return None
        budget = self.limits.max_num_batched_tokens
        if self.limits.long_prefill_token_threshold_adaptive and budget is not None:
            return max(cap, budget // requests)
        return cap

    caps_lone_requests = False

    def computes_prompts(self, running: Batch) -> bool:
        """The prefill interval: between two iterations with prompts lie others, unless it makes requests wait."""
        interval = self.limits.prefill_schedule_interval
        return interval == 1 or self._since_prefill >= interval or self._backlog or not running.decoding

    def plan(self, waiting: Queue, running: Batch, memory: Memory, now_ps: int) -> Plan:
        if self.limits.prefill_schedule_interval == 1:
            return Continuous.plan(self, waiting, running, memory, now_ps)
        free = self.computes_prompts(running)
        plan = super().plan(waiting, running, memory, now_ps)
        self._since_prefill += bool(plan.chunks) or (plan.decodes and running.decoding > 0)
        if any(sequence.known - sequence.computed > 1 for sequence in plan.chunks):
            self._since_prefill = 1
        if free:
            self._backlog = len(waiting) > 0
        return plan

    def describe(self) -> dict[str, Any]:
        return {"name": type(self).__name__}


class VllmV1Of011(VllmV1):
    """What vLLM 0.11 did differently under the priority policy and for a lone long prompt."""

    caps_lone_requests = True
    gives_tokens_back = False
    goes_on_after_itself = False
