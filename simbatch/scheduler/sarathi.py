"""Sarathi's stall-free scheduling, as V0's chunked-prefill option has it: decodes first, then chunks.

One token budget is served in this order: everybody who decodes; prompts that are partly done; who
was swapped out, if nobody was preempted; new prompts. A new prompt gets blocks for its whole
length at once, and only its computation is cut into chunks. So no decode ever waits for a prompt.
"""

from __future__ import annotations

from simbatch.batch import Batch
from simbatch.errors import UsageError
from simbatch.memory.base import Memory
from simbatch.request import Sequence
from simbatch.scheduler.base import Limits
from simbatch.scheduler.plan import Cause, Plan
from simbatch.scheduler.queue import Queue
from simbatch.scheduler.vllm_v0 import VllmV0


class Sarathi(VllmV0):
    """The rules of vLLM 0.6.6 with chunked prefill, for one sequence per request."""

    decodes_first = True

    def start(self, limits: Limits) -> None:
        super().start(limits)
        budget, seats = limits.max_num_batched_tokens, limits.max_num_seqs
        if budget is not None and (seats is None or seats > budget):
            raise UsageError(
                f"max_num_batched_tokens is {budget}, and {seats or 'any number of'} sequences may run: not everybody "
                f"could decode in one iteration. Set max_num_seqs to {budget} or less, or raise the budget."
            )

    def plan(self, waiting: Queue, running: Batch, memory: Memory, now_ps: int) -> Plan:
        plan = Plan(waiting, running, memory)
        self._blocks_out = self._blocks_in = 0
        self._decode(plan)
        budget = self._go_on(plan, self._budget() - running.decoding)
        if not plan.preempted:
            budget = self._swap_in(plan, budget)
        self._let_in(plan, budget)
        if self.preemption_mode == "recompute":
            for sequence in plan.preempted:
                waiting.put_back(sequence)
            if plan.preempted:
                plan.held_back = Cause.KV
        return plan

    def _go_on(self, plan: Plan, budget: int) -> int:
        """Chunks of the prompts that are partly done; each must see a free block, as decodes must."""
        running, memory = plan.running, plan.memory
        for sequence in list(running.partial):
            if budget <= 0 or sequence not in running:
                break
            while not memory.room(sequence, sequence.known, 1):
                victim = running.newest()
                self._preempt(plan, victim)
                if victim is sequence:
                    return budget
            tokens = min(sequence.known - sequence.computed, budget)
            plan.serve(sequence, tokens)
            budget -= tokens
        return budget

    def _let_in(self, plan: Plan, budget: int) -> None:
        """Admit new prompts, the first chunk now and blocks for all of it."""
        waiting = plan.waiting
        while waiting:
            sequence = waiting.head()
            if self._never(sequence, plan.memory):
                plan.drop(sequence)
                continue
            if budget <= 0:
                plan.held_back = Cause.TOKEN_BUDGET
                return
            tokens = min(sequence.known, budget)
            if not self._admit(plan, sequence, tokens):
                return
            budget -= tokens

    def _preempt(self, plan: Plan, victim: Sequence) -> None:
        """A victim waits in front of all others, but not before this iteration's admissions are done."""
        if self.preemption_mode == "recompute":
            plan.preempt(victim, put_back=False)
        else:
            super()._preempt(plan, victim)

    def listed(self, plan: Plan) -> list[Sequence]:
        """New prompts, then those that were partly done, then decodes."""
        prompts = [sequence for sequence in plan.chunks if sequence.resuming or not sequence.outputs]
        decodes = [sequence for sequence in plan.running if sequence not in prompts]
        return sorted(prompts, key=lambda sequence: sequence.computed > 0) + decodes

    def _never(self, sequence: Sequence, memory: Memory) -> bool:
        """As in V0; and, since a chunk must see a free block, its last block must leave one."""
        return super()._never(sequence, memory) or not memory.fits(sequence, spare=1)

    def _longest(self) -> int:
        return self.limits.max_model_len
