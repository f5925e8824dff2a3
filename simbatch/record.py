"""What happened: one row per stretch of equal iterations, one entry per request, and the gaps that rows do not give."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from simbatch.facts import FINISHED, GAP_COLUMNS, REFUSED, STAY_COLUMNS, UNFINISHED
from simbatch.memory.base import Memory
from simbatch.request import Sequence
from simbatch.rows import STRETCH, Rows
from simbatch.scheduler.plan import Plan
from simbatch.timing.base import Iteration

_LIVE, _WAITING = (STRETCH.index(name) - len(STRETCH) for name in ("live", "waiting"))


class Stretch(Iteration):
    """A stretch of equal iterations while it runs. An engine has one of these, and fills it anew each time."""

    __slots__ = ("first_ps", "holds", "increment_ps", "iterations", "start_ps", "steady", "took_ps")

    start_ps: int
    took_ps: int
    iterations: int
    first_ps: int
    increment_ps: int
    holds: int
    """Iterations for which the progression is good, the first included."""
    steady: bool
    """Is it of those that can go on: everybody decodes, and nothing else happens?"""


class Recorder:
    """Collects the facts of one run of *requests* requests on a KV memory of *capacity_tokens*.

    *on_progress* is called a hundred times a run, with (requests done, requests in all).
    """

    def __init__(
        self, requests: int, capacity_tokens: int, on_progress: Callable[[int, int], None] | None = None
    ) -> None:
        self.on_progress = on_progress
        self._total = requests
        self._report_at = 1
        self.capacity_tokens = capacity_tokens
        self.finished = 0
        self.refusals: dict[str, int] = {}
        self.rows = Rows(capacity_tokens)
        self.extra_gaps = array("q")
        self.outside: dict[int, int] = {}
        """Who is preempted now: the place of the stay in `_stays` by trace index."""
        self._stays = array("q")
        unset, none = array("q", [-1]) * requests, array("q", [0]) * requests
        self._first_scheduled_ps = unset[:]
        self._first_token_ps = unset[:]
        self._finished_ps = unset
        self._output_tokens = none[:]
        self._preemptions = none[:]
        self._cached_tokens = none[:]
        self._recomputed_tokens = none
        self._status = array("b", [UNFINISHED]) * requests

    # -- stretches -------------------------------------------------------------------------------

    def begin(self, s: Stretch, plan: Plan) -> None:
        """Note *s*, which begins with one iteration of *plan*."""
        running, waiting, memory, rows = plan.running, plan.waiting, plan.memory, self.rows
        if len(rows.noted) >= rows.most:
            rows.put_away()
        ended = len(running.ended)
        if running.partial or ended or running.live_padding_tokens:
            live = running.live_tokens
        else:
            live = running.decoding * running.clock - running.origins
        head = waiting.head() if waiting else None
        rows.noted.extend(
            (
                s.start_ps,
                s.first_ps,
                s.increment_ps,
                s.holds if s.steady else 0,
                # Members that have got their last token only keep their seat.
                len(running.members) - ended - len(running.drained),
                s.waiting,
                s.tokens,
                s.sequences,
                s.prefill_tokens,
                s.context_tokens,
                # By so many tokens the live part grows in each iteration.
                running.decoding - ended if plan.decodes else 0,
                live - memory.shared_tokens,
                memory.held_tokens,
                memory.internal_tokens,
                memory.external_tokens(head),
                plan.held_back,
                -1 if head is None else head.index,
                1,
            )
        )

    def unseen(self, live_tokens: int, preempted: int) -> None:
        """In the stretch noted last, so many *live_tokens* are of sequences that have all their tokens planned, whose
        last is on the way; *preempted* of those stand in the queue, and are not going to run."""
        noted = self.rows.noted
        noted[_LIVE] += live_tokens
        noted[_WAITING] -= preempted

    def last(self, iterations: int, memory: Memory) -> None:
        """The stretch noted last has *iterations*, two or more."""
        rows = self.rows
        noted, growth = rows.noted, rows.growth
        noted[-1] = iterations
        growth.stretch = len(noted) // len(STRETCH) - 1
        memory.advance(iterations, growth)
        if growth.is_much:
            rows.most = len(noted)

    def gap(self, end_ps: int, gap_ps: int, count: int = 1) -> None:
        """An inter-token gap that rows do not give; a negative *count* takes back what they give wrongly."""
        self.extra_gaps.extend((end_ps, gap_ps, count))

    def preempt(self, sequences: Iterable[Sequence], at_ps: int) -> None:
        """*sequences* are thrown out of the iteration that starts at *at_ps*: one stay outside begins for each."""
        for sequence in sequences:
            self._come_back(sequence.index, at_ps)
            self.outside[sequence.index] = len(self._stays)
            self._stays.extend((sequence.index, at_ps, -1))

    def run_again(self, sequences: Iterable[Sequence], at_ps: int) -> None:
        """Those of *sequences* that were preempted are in the iteration that starts at *at_ps*."""
        for sequence in sequences:
            self._come_back(sequence.index, at_ps)

    def _come_back(self, index: int, at_ps: int) -> None:
        stay = self.outside.pop(index, None)
        if stay is not None:
            self._stays[stay + 2] = at_ps

    # -- requests --------------------------------------------------------------------------------

    def finish(self, sequence: Sequence, now_ps: int) -> None:
        self._finished_ps[sequence.index] = now_ps
        self._keep(sequence, FINISHED, sequence.output_tokens)
        self.finished += 1
        if self.finished >= self._report_at and self.on_progress is not None:
            self.on_progress(self.finished, self._total)
            self._report_at = self.finished + max(1, self._total // 100)

    def refuse(self, sequence: Sequence, reason: str) -> None:
        self._keep(sequence, REFUSED, sequence.outputs)
        self.refusals[reason] = self.refusals.get(reason, 0) + 1

    def leave_unfinished(self, sequence: Sequence, outputs: int) -> None:
        """The run ends while *sequence* is in the engine with *outputs* tokens generated."""
        self._keep(sequence, UNFINISHED, outputs)

    def _keep(self, sequence: Sequence, status: int, outputs: int) -> None:
        i = sequence.index
        self._first_scheduled_ps[i] = sequence.first_scheduled_ps
        self._first_token_ps[i] = sequence.first_token_ps
        self._output_tokens[i] = outputs
        self._status[i] = status
        if sequence.preemptions:
            self._preemptions[i] = sequence.preemptions
            self._recomputed_tokens[i] = sequence.recomputed_tokens
        if sequence.cached_tokens:
            self._cached_tokens[i] = sequence.cached_tokens

    def frames(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]:
        """(rows, requests, extra gaps, stays outside) as columns of numpy arrays."""
        requests: dict[str, Any] = {
            "first_scheduled_ps": self._first_scheduled_ps,
            "first_token_ps": self._first_token_ps,
            "finished_ps": self._finished_ps,
            "output_tokens": self._output_tokens,
            "preemptions": self._preemptions,
            "cached_tokens": self._cached_tokens,
            "recomputed_tokens": self._recomputed_tokens,
            "status": self._status,
        }
        requests = {name: np.frombuffer(column, dtype=column.typecode) for name, column in requests.items()}
        return self.rows.columns(), requests, _table(self.extra_gaps, GAP_COLUMNS), _table(self._stays, STAY_COLUMNS)


def _table(flat: array[int], names: tuple[str, ...]) -> dict[str, Any]:
    entries = np.frombuffer(flat, dtype=np.int64).reshape(-1, len(names))
    return {name: entries[:, i].copy() for i, name in enumerate(names)}
