"""What happened, run-length coded: one row per stretch of equal iterations, one per request.

Rows are canonical. A steady row goes on for as long as the same sequences decode, the queue is
as long and held back for the same reason, and the iteration times continue the same progression;
so one iteration at a time or a thousand at once give the same rows, to the last bit.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import numpy as np

from simbatch.facts import FINISHED, REFUSED, UNFINISHED
from simbatch.request import Sequence

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
)
MEANS = ("live_mean", "reserved_mean", "internal_mean", "external_mean", "free_mean")


class Stretch:
    """A stretch of equal iterations: counts in each, KV tokens at its start, time integrals over it."""

    __slots__ = (
        "cause",
        "context_tokens",
        "external",
        "first_ps",
        "gaps",
        "held",
        "held_integral",
        "holds",
        "increment_ps",
        "internal",
        "internal_integral",
        "iterations",
        "live",
        "live_growth",
        "live_integral",
        "prefill_tokens",
        "running",
        "sequences",
        "start_ps",
        "steady",
        "tokens",
        "took_ps",
        "waiting",
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
    waiting: int
    tokens: int
    sequences: int
    prefill_tokens: int
    context_tokens: int
    gaps: int
    """Sequences that got a token at both ends of each iteration."""
    live: int
    live_growth: int
    """Tokens by which `live` grows in an iteration."""
    held: int
    internal: int
    external: int
    live_integral: int
    """Token-picoseconds."""
    held_integral: int
    internal_integral: int
    cause: int

    def continues(self, row: Stretch) -> bool:
        """Is this *row* going on?"""
        return (
            self.steady
            and row.steady
            and row.holds >= self.iterations
            and row.start_ps + row.took_ps == self.start_ps
            and row.running == self.running
            and row.waiting == self.waiting
            and row.cause == self.cause
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
        self.rows = array("q")
        self.means = array("d")
        self.extra_gaps = array("q")
        unset = array("q", [-1]) * requests
        self.requests: dict[str, array[int]] = {
            "first_scheduled_ps": unset[:],
            "first_token_ps": unset[:],
            "finished_ps": unset[:],
            "output_tokens": array("q", [0]) * requests,
            "preemptions": array("q", [0]) * requests,
            "cached_tokens": array("q", [0]) * requests,
            "recomputed_tokens": array("q", [0]) * requests,
            "status": array("b", [UNFINISHED]) * requests,
        }
        self._row: Stretch | None = None

    # -- stretches -------------------------------------------------------------------------------

    def stretch(self, s: Stretch, held_tokens: int) -> None:
        """Append *s*, at the end of which *held_tokens* are held, or let it continue the row before."""
        k = s.iterations
        if held_tokens > self.peak_held_tokens:
            self.peak_held_tokens = held_tokens
        self.iterations += k
        s.live_integral = s.live * s.took_ps
        if k > 1:
            indices = k * (k - 1) // 2
            squares = indices * (2 * k - 1) // 3
            s.live_integral += s.live_growth * (s.first_ps * indices + s.increment_ps * squares)
        row = self._row
        if row is not None and s.continues(row):
            row.iterations += k
            row.holds -= k
            row.took_ps += s.took_ps
            row.live_integral += s.live_integral
            row.held_integral += s.held_integral
            row.internal_integral += s.internal_integral
        else:
            self._close()
            s.holds -= k
            self._row = s

    def gap(self, end_ps: int, gap_ps: int, count: int = 1) -> None:
        """An inter-token gap that rows do not give; a negative *count* takes back what they give wrongly."""
        self.extra_gaps.extend((end_ps, gap_ps, count))

    def _close(self) -> None:
        row = self._row
        if row is None:
            return
        took, capacity = row.took_ps, self.capacity_tokens
        self.rows.extend(
            (
                row.start_ps,
                row.iterations,
                row.first_ps,
                row.increment_ps if row.steady else 0,
                row.running,
                row.waiting,
                row.tokens,
                row.sequences,
                row.prefill_tokens,
                row.context_tokens,
                row.gaps,
                row.live,
                row.held - row.live - row.internal,
                row.internal,
                row.external,
                capacity - row.held - row.external,
                row.cause,
            )
        )
        reserved = row.held_integral - row.live_integral - row.internal_integral
        external = row.external * took
        free = capacity * took - row.held_integral - external
        self.means.extend(
            (row.live_integral / took, reserved / took, row.internal_integral / took, external / took, free / took)
        )
        self._row = None

    # -- requests --------------------------------------------------------------------------------

    def finish(self, sequence: Sequence, now_ps: int) -> None:
        self._keep(sequence, FINISHED)
        self.requests["finished_ps"][sequence.index] = now_ps
        self.requests["output_tokens"][sequence.index] = sequence.output_tokens
        self.finished += 1
        if self.finished >= self._report_at and self.on_progress is not None:
            self.on_progress(self.finished, self._total)
            self._report_at = self.finished + max(1, self._total // 100)

    def refuse(self, sequence: Sequence, reason: str) -> None:
        self._keep(sequence, REFUSED)
        self.requests["output_tokens"][sequence.index] = sequence.outputs
        self.refusals[reason] = self.refusals.get(reason, 0) + 1

    def leave_unfinished(self, sequence: Sequence, outputs: int) -> None:
        """The run ends while *sequence* is in the engine with *outputs* tokens generated."""
        self._keep(sequence, UNFINISHED)
        self.requests["output_tokens"][sequence.index] = outputs

    def _keep(self, sequence: Sequence, status: int) -> None:
        i, columns = sequence.index, self.requests
        columns["first_scheduled_ps"][i] = sequence.first_scheduled_ps
        columns["first_token_ps"][i] = sequence.first_token_ps
        columns["status"][i] = status
        if sequence.preemptions:
            columns["preemptions"][i] = sequence.preemptions
            columns["recomputed_tokens"][i] = sequence.recomputed_tokens
        if sequence.cached_tokens:
            columns["cached_tokens"][i] = sequence.cached_tokens

    def frames(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """(rows, requests, extra gaps) as columns of numpy arrays."""
        self._close()
        table = np.frombuffer(self.rows, dtype=np.int64).reshape(-1, len(COLUMNS))
        means = np.frombuffer(self.means, dtype=np.float64).reshape(-1, len(MEANS))
        rows: dict[str, Any] = {name: table[:, i].copy() for i, name in enumerate(COLUMNS)}
        rows.update({name: means[:, i].copy() for i, name in enumerate(MEANS)})
        requests = {
            name: np.frombuffer(column, dtype=np.int8 if column.typecode == "b" else np.int64).copy()
            for name, column in self.requests.items()
        }
        gaps = np.frombuffer(self.extra_gaps, dtype=np.int64).reshape(-1, 3)
        extra = {name: gaps[:, i].copy() for i, name in enumerate(("end_ps", "gap_ps", "count"))}
        return rows, requests, extra
