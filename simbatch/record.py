"""What happened, run-length coded: one row per stretch of equal iterations, one per request.

Rows are canonical. A steady row goes on for as long as the same sequences decode, the queue is
as long and held back for the same reason, and the iteration times continue the same progression;
so one iteration at a time or a thousand at once give the same rows, to the last bit.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from simbatch.facts import FINISHED, GAP_COLUMNS, REFUSED, STAY_COLUMNS, UNFINISHED
from simbatch.request import Sequence
from simbatch.timing.base import Iteration

COLUMNS = (
    "start_ps",
    "iterations",
    "first_ps",
    "increment_ps",
    "running",
    "waiting",
    "tokens",
    "sequences",
    "prefill_tokens",
    "context_tokens",
    "gaps",
    "live",
    "reserved",
    "internal",
    "external",
    "free",
    "cause",
    "head",
)
MEANS = ("live_mean", "reserved_mean", "internal_mean", "external_mean", "free_mean")
_KEPT_AT_ONCE = 512
"""Rows."""


class Stretch(Iteration):
    """A stretch of equal iterations: counts in each, KV tokens at its start, time integrals over it."""

    __slots__ = (
        "cause",
        "external",
        "first_ps",
        "gaps",
        "head",
        "held",
        "held_integral",
        "holds",
        "increment_ps",
        "internal",
        "internal_integral",
        "iterations",
        "live",
        "live_integral",
        "running",
        "start_ps",
        "steady",
        "took_ps",
    )

    start_ps: int
    took_ps: int
    iterations: int
    first_ps: int
    increment_ps: int
    holds: int
    """Iterations for which the progression is good, the first included."""
    steady: bool
    running: int
    """Members that have not got their last token."""
    gaps: int
    """Sequences that got a token at both ends of each iteration: by so many tokens `live` grows in it."""
    live: int
    held: int
    internal: int
    external: int
    live_integral: int
    """Token-picoseconds."""
    held_integral: int
    internal_integral: int
    cause: int
    head: int
    """Trace index of who is first in the queue once the plan is made; -1: nobody."""

    def __init__(self) -> None:
        """Nothing is filled in: see `simbatch.describe`."""

    def continues(self, row: Stretch) -> bool:
        """Is this *row*, steady as well, going on?"""
        return (
            row.holds >= self.iterations
            and row.start_ps + row.took_ps == self.start_ps
            and row.running == self.running
            and row.waiting == self.waiting
            and row.cause == self.cause
            and row.head == self.head
            and row.gaps == self.gaps
            and row.external == self.external
            and row.context_tokens + row.tokens * row.iterations == self.context_tokens
            and row.increment_ps == self.increment_ps
            and row.first_ps + row.increment_ps * row.iterations == self.first_ps
        )


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
        self.peak_held_tokens = 0
        self.iterations = 0
        self.finished = 0
        self.refusals: dict[str, int] = {}
        self._rows: list[int] = []
        self._means: list[float] = []
        self._kept: dict[str, list[Any]] = {name: [] for name in (*COLUMNS, *MEANS)}
        """Columns of rows put away, some hundreds at a time."""
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
        self._row: Stretch | None = None
        """The row that may go on."""

    # -- stretches -------------------------------------------------------------------------------

    def stretch(self, s: Stretch, held_tokens: int) -> None:
        """Append *s*, at the end of which *held_tokens* are held, or let it continue the row before."""
        k = s.iterations
        if held_tokens > self.peak_held_tokens:
            self.peak_held_tokens = held_tokens
        self.iterations += k
        if k == 1:
            s.live_integral = s.live * s.first_ps
        else:
            indices = k * (k - 1) // 2
            squares = indices * (2 * k - 1) // 3
            s.live_integral = s.live * s.took_ps + s.gaps * (s.first_ps * indices + s.increment_ps * squares)
        s.holds -= k
        row = self._row
        if row is None:
            self._row = s
        elif s.steady and row.steady and s.continues(row):
            row.iterations += k
            row.holds -= k
            row.took_ps += s.took_ps
            row.live_integral += s.live_integral
            row.held_integral += s.held_integral
            row.internal_integral += s.internal_integral
        else:
            self._close(row)
            self._row = s

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

    def _close(self, row: Stretch) -> None:
        """Nothing continues *row* any more: keep it."""
        held, live, internal, external = row.held, row.live, row.internal, row.external
        available, iterations = self.capacity_tokens - external, row.iterations
        reserved, free = held - live - internal, available - held
        self._rows.extend(
            (
                row.start_ps,
                iterations,
                row.first_ps,
                row.increment_ps if row.steady else 0,
                row.running,
                row.waiting,
                row.tokens,
                row.sequences,
                row.prefill_tokens,
                row.context_tokens,
                row.gaps,
                live,
                reserved,
                internal,
                external,
                free,
                row.cause,
                row.head,
            )
        )
        if iterations == 1:
            self._means.extend((live, reserved, internal, external, free))
        else:
            took, held_integral = row.took_ps, row.held_integral
            live_integral, internal_integral = row.live_integral, row.internal_integral
            self._means.extend(
                (
                    live_integral / took,
                    (held_integral - live_integral - internal_integral) / took,
                    internal_integral / took,
                    external,
                    (available * took - held_integral) / took,
                )
            )
        if len(self._means) >= _KEPT_AT_ONCE * len(MEANS):
            self._keep_rows()

    def _keep_rows(self) -> None:
        """Put rows away by column: what still grows stays small, and is never moved as a whole."""
        rows = np.array(array("q", self._rows)).reshape(-1, len(COLUMNS))
        means = np.array(array("d", self._means)).reshape(-1, len(MEANS))
        for i, name in enumerate(COLUMNS):
            self._kept[name].append(rows[:, i].copy())
        for i, name in enumerate(MEANS):
            self._kept[name].append(means[:, i].copy())
        self._rows.clear()
        self._means.clear()

    # -- requests --------------------------------------------------------------------------------

    def finish(self, sequence: Sequence, now_ps: int) -> None:
        self._keep(sequence, FINISHED, sequence.output_tokens)
        self._finished_ps[sequence.index] = now_ps
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
        if self._row is not None:
            self._close(self._row)
            self._row = None
        self._keep_rows()
        # One column after the other, so that no more than one is there twice.
        rows: dict[str, Any] = {}
        for name, pieces in self._kept.items():
            rows[name] = np.concatenate(pieces)
            pieces[:] = [rows[name]]
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
        requests = {name: np.array(column, dtype=column.typecode) for name, column in requests.items()}
        return rows, requests, _table(self.extra_gaps, GAP_COLUMNS), _table(self._stays, STAY_COLUMNS)


def _table(flat: array[int], names: tuple[str, ...]) -> dict[str, Any]:
    entries = np.frombuffer(flat, dtype=np.int64).reshape(-1, len(names))
    return {name: entries[:, i].copy() for i, name in enumerate(names)}
