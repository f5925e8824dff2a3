"""vLLM's V0 scheduler with parallel samples: a sequence group is one request with all of its samples.

The prompt is computed once and its blocks are shared. A group is all or nothing: its samples are
seated together, preempted together, by swapping since several cannot be recomputed as one prompt,
and brought back together. In a decode step each sample is taken to need a free block.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from simbatch.batch import Batch
from simbatch.errors import SimbatchError
from simbatch.memory.copy_on_write import CopyOnWriteMemory
from simbatch.request import Sequence
from simbatch.scheduler.plan import Cause, Plan
from simbatch.scheduler.vllm_v0 import VllmV0


class VllmV0Groups(VllmV0):
    """The rules of vLLM 0.6.6 for requests of which some ask for several samples."""

    def _compute_prompts(self, plan: Plan, budget: int) -> None:
        waiting, memory = plan.waiting, _shared(plan)
        spare = memory.reserve_room(self.limits.watermark)
        while waiting:
            group = _samples(waiting.head(), waiting)
            leader = group[0]
            if self._never(leader, memory) or not memory.fits_together(group, spare):
                for sequence in group:
                    plan.drop(sequence)
                continue
            if leader.known > budget:
                plan.held_back = Cause.TOKEN_BUDGET
                return
            seats = self.limits.max_num_seqs
            if seats is not None and len(group) > seats:
                raise SimbatchError(
                    f"{leader.id} is one of {len(group)} samples that are seated together, and max_num_seqs is "
                    f"{seats}: the real engine waits here for ever. Raise max_num_seqs, or ask for fewer samples."
                )
            if seats is not None and len(plan.running) + len(group) > seats:
                plan.held_back = Cause.MAX_NUM_SEQS
                return
            if not plan.admit(leader, leader.known, spare):
                plan.held_back = Cause.KV
                return
            for sequence in group[1:]:
                plan.fork(leader, sequence)
            budget -= leader.known

    def _decode(self, plan: Plan) -> None:
        running = plan.running
        while running.decoding and not (self._room_for_all(plan) and plan.decode()):
            self._preempt(plan, running.newest())
        plan.spare = max((len(group) for group in _groups(running)), default=1)

    def _room_for_all(self, plan: Plan) -> bool:
        """Does each group find, at its turn, a free block for each of its samples?"""
        memory = _shared(plan)
        free = memory.free_blocks
        for group in _groups(plan.running):
            if free < len(group):
                return False
            free -= sum(memory.due(sequence) for sequence in group)
        return True

    def _preempt(self, plan: Plan, victim: Sequence) -> None:
        group = [s for s in plan.running if s is victim or s.group == victim.group >= 0]
        if len(group) == 1:
            super()._preempt(plan, victim)
            return
        for sequence in group:
            self._swap_out(plan, sequence)

    def _swap_in(self, plan: Plan, budget: int) -> int:
        memory = _shared(plan)
        spare = memory.reserve_room(self.limits.watermark)
        while self.aside and budget > 0:
            group = _samples(self.aside[0], self.aside)
            if not memory.fits_together(group, spare):
                plan.dropped = [*plan.dropped, *(self._back(sequence) for sequence in group)]
                continue
            seats = self.limits.max_num_seqs
            if (seats is not None and len(plan.running) + len(group) > seats) or len(group) > budget:
                return budget
            held = list(takewhile(lambda sequence: memory.take(sequence, sequence.known, spare), group))
            if len(held) < len(group):
                for sequence in held:
                    memory.release(sequence)
                return budget
            for sequence in group:
                plan.swap_in(self._back(sequence), sequence.known, 0)
                plan.serve(sequence, 1)
            budget -= len(group)
        return budget


def _samples(leader: Sequence, queue: Iterable[Sequence]) -> list[Sequence]:
    """*leader*, the head of *queue*, and the samples of the same request behind it."""
    if leader.group < 0:
        return [leader]
    return list(takewhile(lambda sequence: sequence.group == leader.group, queue))


def _groups(running: Batch) -> list[list[Sequence]]:
    """The running sequences by request, in the order of the running list."""
    groups: dict[object, list[Sequence]] = {}
    for sequence in running.members:
        groups.setdefault(sequence.group if sequence.group >= 0 else sequence, []).append(sequence)
    return list(groups.values())


def _shared(plan: Plan) -> CopyOnWriteMemory:
    """The memory, which must be able to share prompts."""
    if not isinstance(plan.memory, CopyOnWriteMemory):
        raise TypeError("VllmV0Groups needs a CopyOnWriteMemory")
    return plan.memory
