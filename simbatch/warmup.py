"""Leaving the warm-up out: the same facts, without what began before an instant.

Requests that arrive before it, iterations that start before it and inter-token gaps that begin
before it are left out; every metric then reads what is left as if nothing else had been.
The cut is made between iterations, never inside one. A row that is cut keeps its KV shares, which
were recorded for all of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simbatch.checks import real
from simbatch.errors import UsageError
from simbatch.facts import FINISHED, Facts, iterations_started, offsets_ps
from simbatch.stats import settled_from
from simbatch.units import show_s, to_ps, to_s

AUTO = "auto"
"""A warm-up as long as MSER-5 finds it."""


def found_warmup_s(facts: Facts) -> tuple[float, list[str]]:
    """Seconds from the first arrival until end-to-end latencies, in order of arrival, have settled (MSER-5).

    With a warning, and 0, where they have not settled by the middle of the run.
    """
    requests = facts.requests
    order = np.argsort(requests["arrival_ps"], kind="stable")
    order = order[requests["status"][order] == FINISHED]
    took = (requests["finished_ps"] - requests["arrival_ps"])[order]
    cut = settled_from(took)
    if cut is None:
        return 0.0, [
            f"no warm-up was cut: end-to-end latencies of {len(took):,} requests do not settle before the middle of "
            "the run. Simulate more requests, or a rate that is held"
        ]
    if cut == 0:
        return 0.0, []
    return to_s(int(requests["arrival_ps"][order[cut]] - requests["arrival_ps"].min())), []


def after_warmup(facts: Facts, warmup_s: float) -> Facts:
    """The facts from *warmup_s* seconds after the first arrival on.

    Raises UsageError for a negative time, and for one that leaves no request.
    """
    if real("the warm-up", warmup_s, "seconds") == 0:
        return facts
    arrival_ps = facts.requests["arrival_ps"]
    if not warmup_s > 0:
        raise UsageError(f"a warm-up of {warmup_s:g} s cannot be cut. Give a time of 0 s or more.")
    span_s = to_s(int(arrival_ps.max() - arrival_ps.min())) if arrival_ps.size else 0.0
    if warmup_s > span_s:
        raise UsageError(
            f"a warm-up of {show_s(warmup_s)} leaves no request: the last one arrives {show_s(span_s)} "
            "after the first. Cut less, or simulate more requests."
        )
    cut_ps = int(arrival_ps.min()) + to_ps(warmup_s)
    kept = arrival_ps >= cut_ps
    extra = facts.extra_gaps
    later = extra["end_ps"] - extra["gap_ps"] >= cut_ps
    return replace(
        facts,
        requests={name: column[kept] for name, column in facts.requests.items()},
        ids=[facts.ids[i] for i in np.flatnonzero(kept).tolist()],
        rows=_rows_from(facts.rows, cut_ps),
        extra_gaps={name: column[later] for name, column in extra.items()},
    )


def _rows_from(rows: dict[str, NDArray[Any]], cut_ps: int) -> dict[str, NDArray[Any]]:
    """The iterations that start at *cut_ps* or later."""
    every = np.arange(rows["start_ps"].size)
    skipped = iterations_started(rows, every, np.full(every.size, cut_ps, dtype=np.int64))
    kept = skipped < rows["iterations"]
    skip = skipped[kept]
    part = {name: column[kept] for name, column in rows.items()}
    part["start_ps"] = part["start_ps"] + offsets_ps(part["first_ps"], part["increment_ps"], skip)
    part["first_ps"] = part["first_ps"] + skip * part["increment_ps"]
    part["iterations"] = part["iterations"] - skip
    part["context_tokens"] = part["context_tokens"] + skip * part["tokens"]
    return part
