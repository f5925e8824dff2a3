"""The step log: what was decided, iteration by iteration, in the form of the recorded logs of real schedulers."""

from __future__ import annotations

from collections import deque
from typing import Any

from simbatch.memory.base import Memory
from simbatch.request import Sequence
from simbatch.scheduler.base import Scheduler
from simbatch.scheduler.plan import Plan
from simbatch.timing.base import Iteration
from simbatch.units import PS_PER_NS


class DecisionLog:
    """One dict per iteration. Times in nanoseconds, lengths in tokens, `kv` in the memory's own unit.

    `sched` has [id, tokens, computed before] for everybody scheduled, in the scheduler's own order.
    """

    def __init__(self) -> None:
        self.steps: list[dict[str, Any]] = []
        self._added: list[str] = []
        self._preempted: list[str] = []
        self._open: deque[dict[str, Any]] = deque()

    def added(self, sequence: Sequence) -> None:
        self._added.append(sequence.id)

    def nothing_planned(self, plan: Plan) -> None:
        """A plan that only threw somebody out takes no time; the next one tells of it."""
        self._preempted += [sequence.id for sequence in plan.preempted]

    def planned(
        self,
        plan: Plan,
        work: Iteration,
        memory: Memory,
        start_ps: int,
        scheduler: Scheduler,
        planned_ps: int | None = None,
    ) -> None:
        """*plan* runs from *start_ps*; *planned_ps* tells when it was made where that may be earlier."""
        running = plan.running
        scheduled = []
        delivered = 0
        for sequence in scheduler.listed(plan):
            if sequence in plan.chunks:
                tokens, before = plan.chunks[sequence], sequence.computed
                delivered += before + tokens == sequence.known
            elif plan.decodes and sequence not in running.partial and sequence not in running.drained:
                tokens, before = 1, running.computed(sequence)
                delivered += sequence not in running.ended
            else:
                continue
            if tokens:
                scheduled.append([sequence.id, tokens, before])
        self.steps.append(
            {
                "i": len(self.steps),
                "t0": nanoseconds(start_ps),
                "t1": None,
                "add": self._added,
                "sched": scheduled,
                "nout": delivered,
                "pre": self._preempted + [sequence.id for sequence in plan.preempted],
                "fin": [],
                "tok": work.tokens,
                "ctx": work.context_tokens,
                "run": len(running),
                "wait": len(plan.waiting),
                "kv": memory.held,
                "kv_end": None,
                **scheduler.log_fields(plan),
                **memory.log_fields(),
            }
        )
        if planned_ps is not None:
            self.steps[-1]["td"] = nanoseconds(planned_ps)
        self._open.append(self.steps[-1])
        self._added, self._preempted = [], []

    def applied(self, finished: list[Sequence], memory: Memory, end_ps: int) -> None:
        """The oldest iteration planned has ended, and its tokens are there."""
        step = self._open.popleft()
        step["t1"] = nanoseconds(end_ps)
        order = {id_: place for place, (id_, _, _) in enumerate(step["sched"])}
        step["fin"] = sorted((sequence.id for sequence in finished), key=lambda id_: order.get(id_, -1))
        step["kv_end"] = memory.held


def nanoseconds(picoseconds: int) -> int | float:
    """Whole where they are whole."""
    whole, rest = divmod(picoseconds, PS_PER_NS)
    return picoseconds / PS_PER_NS if rest else whole
