"""vLLM's V0 scheduler, the one of the PagedAttention paper: an iteration is all prompts or all decodes.

Prompts come first: whenever some fit, they are computed whole and every decode pauses. Otherwise
everybody decodes. Room is judged with a pessimism of its own: each running sequence is taken to
need a free block, whether or not its last block is full. Short of that the newest is preempted,
and is either computed again later or swapped to CPU memory and back; while anything is swapped,
nobody is admitted. Admission leaves 1 % of all blocks free, also on an idle engine.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from simbatch.batch import Batch
from simbatch.errors import SimbatchError, unknown
from simbatch.memory.base import Memory
from simbatch.request import Sequence
from simbatch.scheduler.base import Limits, Scheduler
from simbatch.scheduler.plan import Cause, Plan
from simbatch.scheduler.queue import Queue

PREEMPTION_MODES = ("recompute", "swap")


class VllmV0(Scheduler):
    """The rules of vLLM 0.6.6 for one sequence per request; *preemption_mode* is recompute or swap."""

    def __init__(self, preemption_mode: str = "recompute", swap_space_blocks: int | None = None) -> None:
        if preemption_mode not in PREEMPTION_MODES:
            raise unknown("preemption mode", preemption_mode, PREEMPTION_MODES)
        self.preemption_mode = preemption_mode
        self.swap_space_blocks = swap_space_blocks
        """CPU memory for swapped blocks; None: as much as is asked for."""

    def start(self, limits: Limits) -> None:
        super().start(limits)
        self.aside: deque[Sequence] = deque()
        self._swapped_blocks: dict[Sequence, int] = {}
        self._blocks_out = self._blocks_in = 0

    def plan(self, waiting: Queue, running: Batch, memory: Memory, now_ps: int) -> Plan:
        plan = Plan(waiting, running, memory)
        self._blocks_out = self._blocks_in = 0
        swapped = bool(self.aside)
        if not swapped:
            self._compute_prompts(plan, self._budget())
        if not plan.chunks:
            self._decode(plan)
            if not plan.preempted:
                self._swap_in(plan, self._budget() - running.decoding)
        if waiting and (plan.preempted or swapped):
            plan.held_back = Cause.KV
        return plan

    # -- prompts ---------------------------------------------------------------------------------

    def _compute_prompts(self, plan: Plan, budget: int) -> None:
        """Admit whole prompts from the head of the queue while budget, seats and blocks last."""
        waiting = plan.waiting
        while waiting:
            sequence = waiting.head()
            if self._never(sequence, plan.memory):
                plan.drop(sequence)
                continue
            if sequence.known > budget:
                plan.held_back = Cause.TOKEN_BUDGET
                return
            if not self._admit(plan, sequence, sequence.known):
                return
            budget -= sequence.known

    def _admit(self, plan: Plan, sequence: Sequence, tokens: int) -> bool:
        """Seat *sequence* and hold all of its known tokens, the watermark left free; compute *tokens* of it now."""
        seats = self.limits.max_num_seqs
        if seats is not None and len(plan.running) >= seats:
            plan.held_back = Cause.MAX_NUM_SEQS
            return False
        spare = plan.memory.reserve_room(self.limits.watermark)
        if not plan.admit(sequence, tokens, spare, hold=sequence.known):
            plan.held_back = Cause.KV
            return False
        return True

    def _never(self, sequence: Sequence, memory: Memory) -> bool:
        """Is its prompt longer than an iteration, or too large to stand beside the watermark?"""
        return sequence.known > self._longest() or not memory.fits(
            sequence, sequence.known, memory.reserve_room(self.limits.watermark)
        )

    def _budget(self) -> int:
        limit = self.limits.max_num_batched_tokens
        return _UNLIMITED if limit is None else limit

    def _longest(self) -> int:
        """The longest prompt that is not dropped."""
        return min(self.limits.max_model_len, self._budget())

    # -- decodes ---------------------------------------------------------------------------------

    def _decode(self, plan: Plan) -> None:
        """One more token for everybody; who comes last must still find a free block before its turn."""
        running, memory = plan.running, plan.memory
        while running.decoding:
            last = running.newest_decoding()
            if plan.decode(0 if memory.due(last) else 1):
                break
            self._preempt(plan, running.newest())
        plan.spare = 1

    def _preempt(self, plan: Plan, victim: Sequence) -> None:
        if self.preemption_mode == "recompute":
            plan.preempt(victim)
        else:
            self._swap_out(plan, victim)

    def _swap_out(self, plan: Plan, victim: Sequence) -> None:
        blocks = plan.swap_out(victim)
        self.aside.append(victim)
        self._swapped_blocks[victim] = blocks
        self._blocks_out += blocks
        if self.swap_space_blocks is not None:
            swapped = sum(self._swapped_blocks.values())
            if swapped > self.swap_space_blocks:
                raise SimbatchError(
                    f"{victim.id} is swapped out, and {swapped} blocks do not fit the {self.swap_space_blocks} of the "
                    "swap space: the real engine fails here. Give more swap space, or preempt by recompute."
                )

    def _swap_in(self, plan: Plan, budget: int) -> int:
        """Bring back who was swapped out, first out first, as long as blocks, seats and budget allow.

        They go on in this very iteration, so there must be room for one token more than they had.
        Returns what is left of the budget.
        """
        spare = plan.memory.reserve_room(self.limits.watermark)
        while self.aside and budget > 0:
            sequence = self.aside[0]
            rest = sequence.known - sequence.computed
            if not plan.memory.fits(sequence, sequence.known, spare):
                plan.dropped = [*plan.dropped, self._back(sequence)]
                continue
            if self.limits.max_num_seqs is not None and len(plan.running) >= self.limits.max_num_seqs:
                return budget
            if not plan.swap_in(sequence, sequence.known, spare):
                return budget
            self._back(sequence)
            tokens = min(rest, budget)
            plan.serve(sequence, tokens)
            budget -= tokens
        return budget

    def _back(self, sequence: Sequence) -> Sequence:
        """*sequence* is no longer swapped out."""
        self.aside.remove(sequence)
        self._blocks_in += self._swapped_blocks.pop(sequence)
        return sequence

    def log_fields(self, plan: Plan) -> dict[str, Any]:
        prompts = any(sequence.resuming or not sequence.outputs for sequence in plan.chunks)
        return {
            "phase": "decode" if not prompts else "mixed" if plan.decodes else "prefill",
            "swap_out": self._blocks_out,
            "swap_in": self._blocks_in,
            "swapped": len(self.aside),
            "cpu": sum(self._swapped_blocks.values()),
            "ignored": [sequence.id for sequence in plan.dropped],
        }

    def describe(self) -> dict[str, Any]:
        return {"name": type(self).__name__, "preemption_mode": self.preemption_mode}


_UNLIMITED = 1 << 62
