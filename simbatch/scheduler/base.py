"""What every scheduler is: decisions, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as List
from dataclasses import dataclass
from typing import Any

from simbatch.batch import Batch
from simbatch.memory.base import Memory
from simbatch.request import Sequence
from simbatch.scheduler.plan import Plan
from simbatch.scheduler.queue import Fifo, Queue


@dataclass(frozen=True, slots=True)
class Limits:
    """Engine limits, spelt as in vLLM. None in a token or sequence limit: there is none."""

    max_model_len: int
    """Prompt plus output."""
    max_num_seqs: int | None = None
    """Most running sequences."""
    max_num_batched_tokens: int | None = None
    """Most tokens in an iteration."""
    max_num_active_seqs: int | None = None
    """A lower limit on admission; None: as `max_num_seqs`."""
    enable_chunked_prefill: bool = True
    """May a prompt be computed in pieces?"""
    scheduler_reserve_full_isl: bool = True
    """Admit only who has room for all of its known tokens, not just for the first chunk."""
    watermark: float = 0.0
    """Share of the memory that admission must leave free."""
    scheduling_policy: str = "fcfs"
    """fcfs, or priority: the smallest first."""
    long_prefill_token_threshold: int = 0
    """Most tokens that one request gets in an iteration; 0: no such limit."""
    long_prefill_token_threshold_adaptive: bool = False
    """May that limit grow when few requests are in the engine?"""
    prefill_schedule_interval: int = 1
    """Prompts are computed in every so many iterations only, as long as nobody waits for it."""


class Scheduler:
    """Decides who gets what in the next iteration. Never waits, logs or measures.

    A plan must depend on the state it is given and on nothing else: asked again while nothing has
    happened, it gives the same answer. A policy whose answer drifts with the clock says so with
    `asks_every_iteration`, and is asked every iteration.
    """

    asks_every_iteration = False
    decodes_first = False
    """Does the running list keep decoding sequences, in the order in which they began to, before prompts?"""
    aside: List[Sequence] = ()
    """Requests that neither run nor wait in the queue (swapped out)."""
    limits: Limits

    def start(self, limits: Limits) -> None:
        """A run begins under *limits*; a policy with memory of its own clears it here."""
        self.limits = limits

    def queue(self) -> Queue:
        """The container of those who wait; its head is the next to be admitted."""
        return Fifo()

    def refuses(self, sequence: Sequence) -> str | None:
        """Why *sequence* can never be served under the limits, or None. Asked once, on arrival."""
        return None

    def plan(self, waiting: Queue, running: Batch, memory: Memory, now_ps: int) -> Plan:
        """What the next iteration does."""
        raise TypeError(f"{type(self).__name__} is a scheduler without a plan: write its plan() method")

    def leaves(self, finished: List[Sequence], running: Batch) -> List[Sequence]:
        """Who gives up seat and memory now that *finished* have got their last token."""
        return finished

    def listed(self, plan: Plan) -> Iterable[Sequence]:
        """The running sequences in the order in which a step log lists them."""
        return plan.running

    def log_fields(self, plan: Plan) -> dict[str, Any]:
        """What a step log says about *plan* beside the usual; only asked when one is kept."""
        return {}

    def describe(self) -> dict[str, Any]:
        return {"name": type(self).__name__}
