"""One request at a time: a `generate()` loop."""

from __future__ import annotations

from simbatch.batch import Batch
from simbatch.memory.base import Memory
from simbatch.scheduler.base import Scheduler
from simbatch.scheduler.plan import Cause, Plan
from simbatch.scheduler.queue import Queue


class Naive(Scheduler):
    """The oldest request runs alone to its end; whoever comes meanwhile waits."""

    def plan(self, waiting: Queue, running: Batch, memory: Memory, now_ps: int) -> Plan:
        plan = Plan(waiting, running, memory)
        if running:
            plan.decode()
        else:
            sequence = waiting.head()
            plan.admit(sequence, sequence.known, hold=sequence.known)
        if waiting:
            plan.held_back = Cause.MAX_NUM_SEQS
        return plan
