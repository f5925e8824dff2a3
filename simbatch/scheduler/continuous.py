"""Iteration-level scheduling: at every iteration whoever runs goes on and whoever fits joins.

This is what Orca introduced and every modern engine does. A policy of your own usually changes
one of three small methods: the order of the queue, whom to `admit`, whom to take as `victim`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simbatch.batch import Batch
from simbatch.memory.base import Memory
from simbatch.request import Sequence
from simbatch.scheduler.base import Limits, Scheduler
from simbatch.scheduler.plan import Cause, Plan
from simbatch.scheduler.queue import ByKey, Fifo, Queue

_UNLIMITED = 1 << 62


class Continuous(Scheduler):
    """First come, first served, or by *order*: a key of the sequence alone, smallest first.

    >>> shortest_first = Continuous(order=lambda sequence: sequence.prompt_tokens)
    """

    def __init__(self, order: Callable[[Sequence], Any] | None = None) -> None:
        self.order = order

    # -- what policies change --------------------------------------------------------------------

    def queue(self) -> Queue:
        return Fifo() if self.order is None else ByKey(self.order)

    def admit(self, sequence: Sequence, tokens: int, running: Batch, memory: Memory) -> bool:
        """May *sequence*, the head of the queue, join, and have *tokens* in the cache when the iteration ends?

        A False ends the admissions of this iteration, and counts as held back for KV memory.
        """
        return memory.room(sequence, sequence.known)

    def victim(self, running: Batch) -> Sequence:
        """Who is preempted when somebody lacks room: the newest."""
        return running.newest()

    def most_tokens(self, waiting: Queue, running: Batch) -> int | None:
        """Most tokens that one sequence gets in this iteration; None: as many as the budget has."""
        return None

    def computes_prompts(self, running: Batch) -> bool:
        """May this iteration compute prompts, or only decode?"""
        return True

    gives_tokens_back = True
    """Do tokens already given to a victim return to the budget?"""
    goes_on_after_itself = True
    """When a sequence is its own victim, are those behind it still served?"""

    def start(self, limits: Limits) -> None:
        super().start(limits)
        budget = limits.max_num_batched_tokens
        self._budget = _UNLIMITED if budget is None else budget
        seats = limits.max_num_seqs if limits.max_num_active_seqs is None else limits.max_num_active_seqs
        self._seats = _UNLIMITED if seats is None else seats
        self._ordinary: Plan | None = None

    # -- the iteration ---------------------------------------------------------------------------

    def refuses(self, sequence: Sequence) -> str | None:
        budget = self.limits.max_num_batched_tokens
        if budget is not None and not self.limits.enable_chunked_prefill and sequence.final_computed > budget:
            return "exceeds max_num_batched_tokens with chunked prefill off"
        return None

    def plan(self, waiting: Queue, running: Batch, memory: Memory, now_ps: int) -> Plan:
        if not waiting and not running.partial and running.decoding <= self._budget and memory.grow():
            # Everybody decodes, and there is room: one plan says it as often as it is so. A policy that builds on this
            # one may have done more with it than decode; then it is not that plan any more.
            plan = self._ordinary
            if plan is None or plan.running is not running or not plan.only_decodes:
                plan = self._ordinary = Plan(waiting, running, memory)
                plan.decodes = True
            return plan
        plan = Plan(waiting, running, memory)
        prompts = self.computes_prompts(running)
        most = self.most_tokens(waiting, running)
        most = _UNLIMITED if most is None else int(most)
        budget = self._go_on(plan, most, prompts)
        if waiting:
            if plan.preempted:
                plan.held_back = Cause.KV
            else:
                self._let_in(plan, budget, most, prompts, now_ps)
        return plan

    def _go_on(self, plan: Plan, most: int, prompts: bool) -> int:
        """Serve the running sequences in order of admission; returns the tokens left in the budget."""
        running = plan.running
        budget = self._budget
        if running.decoding > budget or not running.partial_last:
            plan.unpack()
        while not plan.decode():
            if not self.goes_on_after_itself and running.decoding > len(running.ended):
                plan.unpack()
            else:
                plan.preempt(self.victim(running))
        budget -= running.decoding
        for sequence in list(running.partial) if running.partial else ():
            want = sequence.known - sequence.computed
            tokens = min(want, most, budget)
            if sequence not in running or not tokens or (want > 1 and not prompts):
                continue
            while not plan.serve(sequence, tokens):
                victim = self.victim(running)
                given = plan.preempt(victim)
                if self.gives_tokens_back:
                    budget += given
                if victim is sequence:
                    if not self.goes_on_after_itself:
                        return budget
                    break
            else:
                budget -= tokens
        return budget

    def _let_in(self, plan: Plan, budget: int, most: int, prompts: bool, now_ps: int) -> None:
        """Admit from the head of the queue until somebody is held back.

        Who was preempted with a token on the way is passed over until it has come.
        """
        waiting = plan.waiting
        passed_over: list[Sequence] = []
        while waiting:
            sequence = waiting.head()
            if sequence.last_token_ps > now_ps:
                waiting.remove(sequence)
                passed_over.append(sequence)
                continue
            tokens = self._admit_head(plan, sequence, budget, most, prompts)
            if not tokens:
                break
            budget -= tokens
        for sequence in reversed(passed_over):
            waiting.put_back(sequence)

    def _admit_head(self, plan: Plan, sequence: Sequence, budget: int, most: int, prompts: bool) -> int:
        """Admit *sequence* and return its tokens; 0 when it is held back, with the reason in the plan.

        An iteration that computes no prompts holds them back for no lack of anything, and names no reason.
        """
        limits, running, memory = self.limits, plan.running, plan.memory
        if len(running.members) >= self._seats:
            plan.held_back = Cause.MAX_NUM_SEQS
            return 0
        found = int(memory.cached_tokens(sequence))
        want = tokens = sequence.known - found
        if tokens > most:
            tokens = most
        if not prompts and want > 1 and budget > 0:
            return 0
        if budget <= 0 or (tokens > budget and not limits.enable_chunked_prefill):
            plan.held_back = Cause.TOKEN_BUDGET
            return 0
        if tokens > budget:
            tokens = budget
        if not self.admit(sequence, found + tokens, running, memory) or not plan.admit(sequence, tokens):
            plan.held_back = Cause.KV
            return 0
        return tokens
