"""What is behind the methods that change a trace: their checks, and using rows more than once.

Where rows repeat, times go on after the last one and labels stay apart, so that a repeated trace is
a longer one and not the same requests on top of each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from simbatch.checks import real, whole
from simbatch.errors import UsageError
from simbatch.trace.columns import ARRAYS, Ints
from simbatch.units import MAX_PS

if TYPE_CHECKING:
    from simbatch.trace.trace import Trace


MOST_ROWS = 50_000_000
"""Requests that a trace is lengthened to at most: a simulation of so many takes hours, and some 10 GB of memory."""


def continued_ps(arrival_ps: Ints, rows: int, name: str) -> Ints:
    """The first *rows* times of a recording that goes on after its end.

    Each round is the recording again, and begins a mean gap after the last arrival of the round
    before. With a single row, the time from 0 to it stands for the gap.
    """
    count = len(arrival_ps)
    span_ps = int(arrival_ps[-1] - arrival_ps[0])
    round_ps = span_ps + round(span_ps / (count - 1)) if count > 1 else int(arrival_ps[0])
    rounds = (rows - 1) // count
    if int(arrival_ps[(rows - 1) % count]) + rounds * round_ps > MAX_PS:
        raise UsageError(
            f"{name}: {rows:,} requests at its pace pass the clock's end (106 days). Ask for fewer, or give a rate."
        )
    index = np.arange(rows, dtype=np.int64)
    return np.asarray(arrival_ps[index % count] + index // count * round_ps, dtype=np.int64)


def taken(trace: Trace, index: Ints) -> dict[str, Any]:
    """Fields of a trace of the rows at *index*: new labels for the second use of a row, times as recorded longer."""
    picked: list[int] = index.tolist()
    uses = _uses(picked)
    changes: dict[str, Any] = {name: getattr(trace, name)[index] for name in ARRAYS if getattr(trace, name) is not None}
    changes["prefix"] = {key: tuple(values[row] for row in picked) for key, values in trace.prefix.items()}
    if trace.arrival_ps is not None:
        changes["arrival_ps"] = continued_ps(trace.arrival_ps, len(picked), trace.name)
    ids = trace.ids
    if ids is None and "segments" in trace.prefix:
        ids = tuple(map(str, range(len(trace))))
    if ids is not None:
        changes["ids"] = relabelled(ids, picked)
    if ids is not None and "segments" in trace.prefix:
        mark, known = _mark(ids), {name for id in ids for name in (f"o{id}", f"r:{id}")}
        changes["prefix"]["segments"] = tuple(
            segments and tuple((f"{s}{mark}{use}" if use > 1 and s in known else s, a, n) for s, a, n in segments)
            for segments, use in zip(changes["prefix"]["segments"], uses, strict=True)
        )
    if trace.session is not None:
        changes["session"] = relabelled(trace.session, picked)
    return changes


def relabelled(labels: Sequence[str], picked: Sequence[int]) -> tuple[str, ...]:
    """The labels of the rows *picked*; the second use of a row gets ``#2`` after it, and so on.

    Rows that share a label in one round share it in each. Empty labels stay empty.

    >>> relabelled(["a", "b"], [0, 1, 0, 1, 0])
    ('a', 'b', 'a#2', 'b#2', 'a#3')
    """
    mark = _mark(labels)
    return tuple(
        f"{label}{mark}{use}" if label and use > 1 else label
        for label, use in zip((labels[row] for row in picked), _uses(picked), strict=True)
    )


def _mark(labels: Sequence[str]) -> str:
    """Number signs that occur in no label."""
    mark = "#"
    while any(mark in label for label in labels):
        mark += "#"
    return mark


def _uses(picked: Sequence[int]) -> list[int]:
    """How many times each row picked has been picked up to there."""
    counts: dict[int, int] = {}
    result = []
    for row in picked:
        counts[row] = counts.get(row, 0) + 1
        result.append(counts[row])
    return result


def check_factor(factor: float) -> None:
    """Raises UsageError for a time scale that is not a positive number."""
    if not (real("time_scale", factor) > 0 and math.isfinite(factor)):
        raise UsageError(f"times cannot be scaled by {factor:g}. Give a positive number: 2 halves the rate.")


def check_rows(n: int) -> None:
    """Raises UsageError for less than one request."""
    whole("the number of requests", n, least=None, most=MOST_ROWS)
    if n < 1:
        raise UsageError(f"{n} requests were asked for, but a trace has at least 1. Ask for more.")


def figure(value: float) -> str:
    """A number as it stands in a list of transforms."""
    return f"{value:.15g}"
