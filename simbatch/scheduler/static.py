"""Request-level batching: a batch is taken, padded, and run until its last member ends.

Up to `batch_size` of the oldest requests are taken, or as many as memory holds. Their prompts are
padded to the longest of them and computed together. A member that ends early keeps its seat and
its memory, and its slot is computed on, until all have ended; who arrives meanwhile waits.
This is what FasterTransformer and batched pipelines do.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as List
from itertools import islice, takewhile
from typing import Any

from simbatch.batch import Batch
from simbatch.errors import PolicyError, UsageError
from simbatch.memory.base import Memory
from simbatch.request import Sequence
from simbatch.scheduler.base import Scheduler
from simbatch.scheduler.plan import Cause, Plan
from simbatch.scheduler.queue import Queue


class Static(Scheduler):
    """Batches of up to *batch_size* requests; None: as many as memory and `max_num_seqs` allow."""

    def __init__(self, batch_size: int | None = None) -> None:
        if batch_size is not None and batch_size < 1:
            raise UsageError(f"batch_size is {batch_size}, but a batch has at least 1 request. Give a larger number.")
        self.batch_size = batch_size

    def plan(self, waiting: Queue, running: Batch, memory: Memory, now_ps: int) -> Plan:
        plan = Plan(waiting, running, memory)
        if not memory.takes_padding:
            raise PolicyError(
                f"request-level batches pad their prompts, and {type(memory).__name__} looks prompts up by content. "
                "Use a memory without prefix caching."
            )
        if running:
            while not plan.decode():
                self._make_room(plan)
        else:
            self._take_batch(plan)
        if waiting:
            plan.held_back = Cause.MAX_NUM_SEQS if self._full(running) else Cause.KV
        return plan

    def _seats(self) -> int | None:
        limits = [n for n in (self.batch_size, self.limits.max_num_seqs) if n is not None]
        return min(limits) if limits else None

    def _full(self, running: Batch) -> bool:
        seats = self._seats()
        return seats is not None and len(running) >= seats

    def _take_batch(self, plan: Plan) -> None:
        """The longest run of oldest requests, up to the batch size, that fits once it is padded."""
        memory = plan.memory
        batch = _held(islice(plan.waiting, self._seats()), memory)
        for sequence in batch:
            memory.release(sequence)
        while True:
            longest = max(sequence.known for sequence in batch)
            for sequence in batch:
                sequence.pad(longest - sequence.known)
            held = _held(batch, memory)
            if len(held) == len(batch):
                break
            for sequence in held:
                memory.release(sequence)
            for sequence in batch:
                sequence.pad(-sequence.padding_tokens)
            batch = held
        for sequence in batch:
            plan.admit(sequence, sequence.known)

    def _make_room(self, plan: Plan) -> None:
        """A memory that reserves nothing has run out: first those that have ended give theirs up, then the newest.

        Padding can make a member too large even for a memory of its own. Once nobody is left to
        wait for, the batch is over.
        """
        running, memory = plan.running, plan.memory
        for sequence in running.ended:
            if sequence.held:
                memory.release(sequence)
                return
        newest = next(s for s in reversed(running.members) if s not in running.ended)
        plan.preempt(newest)
        newest.pad(-newest.padding_tokens)
        for sequence in self.leaves((), running):
            running.leave(sequence)

    def leaves(self, finished: List[Sequence], running: Batch) -> List[Sequence]:
        return list(running.members) if len(running.ended) == len(running) else ()

    def describe(self) -> dict[str, Any]:
        return {"name": "Static", "batch_size": self.batch_size}


def _held(candidates: Iterable[Sequence], memory: Memory) -> list[Sequence]:
    """Make *candidates* hold their known tokens until one lacks room; returns those that do."""
    return list(takewhile(lambda sequence: memory.take(sequence, sequence.known), candidates))
