"""What must hold for all rows of a table together: times within the clock and in order, one id per request.

Cells are checked one by one where they are read. Each function here raises UsageError with the line
at fault and what to do about it, or changes the table where the user has asked for that.
"""

from __future__ import annotations

from array import array
from fractions import Fraction

import numpy as np

from simbatch.errors import UsageError
from simbatch.trace.clock import UNITS
from simbatch.trace.columns import seconds_text, show
from simbatch.trace.table import Table, rows_text
from simbatch.units import MAX_PS, PS_PER_S

_DAY_PS = 86_400 * PS_PER_S
_WRAP_PS = 3_600 * PS_PER_S
"""A clock that goes back by more than this, and by most of the recording, has started again."""
_EPOCH_S = (10**9, 4 * 10**9)
"""Seconds since 1970 that mean a time between 2001 and 2096."""


def refuse_beyond_clock(name: str, earliest_ps: int, latest_ps: int) -> None:
    """Raises UsageError where arrivals end after the clock's last instant."""
    span_ps = latest_ps - min(earliest_ps, latest_ps)
    limit = f"the clock ends after {MAX_PS // _DAY_PS} days"
    if latest_ps <= MAX_PS and earliest_ps >= 0:
        return
    if span_ps > MAX_PS:
        raise UsageError(
            f"{name}: arrival_s spans {span_ps // PS_PER_S:,} s ({span_ps // _DAY_PS:,} days), but {limit}. "
            "If these are milliseconds, --time-scale 0.001 makes seconds of them."
        )
    if latest_ps > MAX_PS:
        raise UsageError(
            f"{name}: arrival_s starts at {earliest_ps // PS_PER_S} s, but {limit}. "
            "Count the times from the first request: subtract its arrival_s from all."
        )


def refuse_wrong_epoch(name: str, line: int, first_ps: int, unit: Fraction) -> None:
    """Raises UsageError where the first time makes no sense in its *unit*, but does in a smaller one since 1970."""
    if first_ps <= _EPOCH_S[1] * PS_PER_S:
        return
    count = first_ps / unit / PS_PER_S
    for smaller, size in UNITS.items():
        if _EPOCH_S[0] <= count * size <= _EPOCH_S[1]:
            raise UsageError(
                f"{name} line {line}: the first time is {int(count)}, which makes no sense in {_name_of(unit)} "
                f"but is a time since 1970 in {smaller}. Say so: --time-unit {smaller}."
            )


def _name_of(unit: Fraction) -> str:
    return next(name for name, size in UNITS.items() if size == unit)


def unwrap(table: Table, period_ps: int) -> None:
    """The clock started again wherever a time goes back: from there on, all come a period later."""
    arrival_ps = np.frombuffer(table.columns["arrival_s"], dtype=np.int64)
    rounds = np.concatenate(([0], np.cumsum(np.diff(arrival_ps) < 0)))
    if int(arrival_ps.max()) + int(rounds[-1]) * period_ps > MAX_PS:
        raise UsageError(
            f"{table.name}: the clock starts again {int(rounds[-1]):,} times, which takes longer than the clock here "
            f"({MAX_PS // _DAY_PS} days). Put the rows in order with --sort instead."
        )
    table.columns["arrival_s"] = array("q", (arrival_ps + rounds * period_ps).tolist())


def put_in_order(table: Table, sort: bool) -> None:
    """Checks that times do not go back; puts the rows in order where *sort* asks for it, counted from the first."""
    arrival_ps = np.frombuffer(table.columns["arrival_s"], dtype=np.int64)
    back = np.flatnonzero(np.diff(arrival_ps) < 0) + 1
    if not len(back):
        return
    if sort:
        first_ps = int(arrival_ps.min())
        table.put(np.argsort(arrival_ps, kind="stable").tolist())
        if first_ps < 0:
            table.columns["arrival_s"] = array("q", [time - first_ps for time in table.columns["arrival_s"]])
        return
    row = int(back[0])
    here, before = (seconds_text(int(arrival_ps[k])) for k in (row, row - 1))
    puts = "puts it in order" if len(back) == 1 else "puts them in order"
    steps = -np.diff(arrival_ps)[back - 1]
    again = "; --wrap PERIOD, such as 7d, lets the clock start again there"
    starts_again = steps.min() > _WRAP_PS and 2 * int(steps.min()) > int(arrival_ps.max()) - int(arrival_ps.min())
    raise UsageError(
        f"{table.name} line {table.lines[row]}: arrival_s is {here}, but the row before has {before}: "
        f"times cannot go back. {rows_text(len(back))} like this; --sort {puts}{again if starts_again else ''}."
    )


def refuse_twins(table: Table, drop: bool) -> None:
    """Two requests of one id could not be told apart in the results; where *drop* asks for it, the first one stays."""
    ids = table.columns.get("id")
    if ids is None or len(set(ids)) == len(ids):
        return
    first: dict[str, int] = {}
    twins: dict[int, str] = {}
    for row, (line, name) in enumerate(zip(table.lines, ids, strict=True)):
        if name in first and not drop:
            raise UsageError(
                f"{table.name} line {line}: id {show(name)} stands on line {first[name]} already. "
                "Give every request its own id, or remove the column: rows are numbered then."
            )
        if name in first:
            twins[row] = "its id stands on an earlier line"
        first.setdefault(name, line)
    table.drop(twins)


def refuse_turns_that_go_back(table: Table) -> None:
    """Turns of a session stand in order, so that the row before is the one that a turn waits for."""
    turns, sessions = table.columns.get("turn"), table.columns.get("session")
    if turns is None or sessions is None:
        return
    latest: dict[str, tuple[int, int]] = {}
    for line, session, turn in zip(table.lines, sessions, turns, strict=True):
        before, line_before = latest.get(session, (turn, line))
        if session and turn < before:
            raise UsageError(
                f"{table.name} line {line}: turn {turn} of session {show(session)} comes after turn {before} "
                f"(line {line_before}). Put the turns of each session in order."
            )
        latest[session] = (turn, line)
