"""What is behind the methods that change a trace: their checks, and using rows more than once.

Where rows repeat, times go on after the last one and labels stay apart, so that a repeated trace is
a longer one and not the same requests on top of each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from simbatch.errors import UsageError
from simbatch.trace.build import Ints
from simbatch.units import MAX_PS


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


def relabelled(labels: Sequence[str], picked: Sequence[int]) -> tuple[str, ...]:
    """The labels of the rows *picked*; the second use of a row gets ``#2`` after it, and so on.

    Rows that share a label in one round share it in each. Empty labels stay empty.

    >>> relabelled(["a", "b"], [0, 1, 0, 1, 0])
    ('a', 'b', 'a#2', 'b#2', 'a#3')
    """
    mark = "#"
    while any(mark in label for label in labels):
        mark += "#"
    uses: dict[int, int] = {}
    result = []
    for row in picked:
        uses[row] = uses.get(row, 0) + 1
        label = labels[row]
        result.append(f"{label}{mark}{uses[row]}" if label and uses[row] > 1 else label)
    return tuple(result)


def check_factor(factor: float) -> None:
    """Raises UsageError for a time scale that is not a positive number."""
    if not (factor > 0 and math.isfinite(factor)):
        raise UsageError(f"times cannot be scaled by {factor:g}. Give a positive number: 2 halves the rate.")


def check_rows(n: int) -> None:
    """Raises UsageError for less than one request."""
    if n < 1:
        raise UsageError(f"{n} requests were asked for, but a trace has at least 1. Ask for more.")


def figure(value: float) -> str:
    """A number as it stands in a list of transforms."""
    return f"{value:.15g}"
