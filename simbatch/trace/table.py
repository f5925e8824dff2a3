"""A file's rows as columns, and what must hold for all of them together.

Cells are checked one by one where they are read; here are the rules that need the whole column:
times within the clock, times that do not go back, one id per request.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from simbatch.errors import UsageError
from simbatch.trace.columns import COLUMNS, show, write_cells
from simbatch.units import MAX_PS, PS_PER_S

_COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_DAY_PS = 86_400 * PS_PER_S


@dataclass
class Table:
    """A file as columns under their names in files: integers as arrays, the rest as lists."""

    name: str
    sha256: str
    columns: dict[str, Any] = field(default_factory=dict)
    lines: array[int] = field(default_factory=lambda: array("q"))
    """Line of each row."""
    provenance: tuple[str, ...] = ()
    transforms: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    dropped: int = 0


def refuse_beyond_clock(name: str, earliest_ps: int, latest_ps: int) -> None:
    """Raises UsageError where arrivals end after the clock's last instant."""
    if latest_ps <= MAX_PS:
        return
    span_ps = latest_ps - earliest_ps
    limit = f"the clock ends after {MAX_PS // _DAY_PS} days"
    if span_ps <= MAX_PS:
        raise UsageError(
            f"{name}: arrival_s starts at {earliest_ps // PS_PER_S} s, but {limit}. "
            "Count the times from the first request: subtract its arrival_s from all."
        )
    raise UsageError(
        f"{name}: arrival_s spans {span_ps // PS_PER_S:,} s ({span_ps // _DAY_PS:,} days), but {limit}. "
        "If these are milliseconds, --time-scale 0.001 makes seconds of them."
    )


def put_in_order(table: Table, sort: bool) -> None:
    """Checks that times do not go back; puts the rows in order where *sort* asks for it."""
    arrival_ps = np.frombuffer(table.columns["arrival_s"], dtype=np.int64)
    back = np.flatnonzero(np.diff(arrival_ps) < 0) + 1
    if not len(back):
        return
    if not sort:
        row = int(back[0])
        here, before = (write_cells(COLUMNS["arrival_s"], [int(arrival_ps[k])])[0] for k in (row, row - 1))
        puts = "puts it in order" if len(back) == 1 else "puts them in order"
        raise UsageError(
            f"{table.name} line {table.lines[row]}: arrival_s is {here}, but the row before has {before}: "
            f"times cannot go back. {rows_text(len(back))} like this; --sort {puts}."
        )
    order = np.argsort(arrival_ps, kind="stable").tolist()
    table.lines = array("q", [table.lines[k] for k in order])
    for name, values in table.columns.items():
        moved = [values[k] for k in order]
        table.columns[name] = array("q", moved) if isinstance(values, array) else moved


def refuse_twins(table: Table) -> None:
    """Two requests of one id could not be told apart in the results."""
    ids = table.columns.get("id")
    if ids is None or len(set(ids)) == len(ids):
        return
    first: dict[str, int] = {}
    for line, name in zip(table.lines, ids, strict=True):
        if name in first:
            raise UsageError(
                f"{table.name} line {line}: id {show(name)} stands on line {first[name]} already. "
                "Give every request its own id, or remove the column: rows are numbered then."
            )
        first[name] = line


def rows_text(count: int) -> str:
    """A count of rows as a sentence begins.

    >>> rows_text(3)
    'Three rows'
    """
    words = _COUNTS[count] if count < len(_COUNTS) else f"{count:,}"
    return f"{words.capitalize()} row{'s' if count != 1 else ''}"
