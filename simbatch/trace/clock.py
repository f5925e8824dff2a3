"""Arrival times as files write them: plain seconds, other units, seconds since 1970, dates with a clock time.

Every cell becomes whole picoseconds, by digits and never through a float. Dates without a zone are
fine where all have none, or where the others say UTC; a mixture with another zone cannot be told
apart and is refused, like numbers mixed with dates.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from fractions import Fraction

import numpy as np

from simbatch.errors import UsageError
from simbatch.trace.columns import BadCell, Column, Ints, read_times, show
from simbatch.units import PS_PER_S

UNITS = {
    "s": Fraction(1),
    "ms": Fraction(1, 10**3),
    "us": Fraction(1, 10**6),
    "ns": Fraction(1, 10**9),
}
NUMBER, LOCAL, UTC, ZONED = "a number", "a date without a zone", "a date in UTC", "a date in another zone"
_TOGETHER = ({NUMBER}, {LOCAL, UTC}, {UTC, ZONED})

_SECOND = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d):(\d\d):(\d\d)", re.ASCII)
_SECOND_CHARS = len("2023-11-16 18:17:03")
_REST = re.compile(r"(?:[.,](\d{1,12}))?\s?(Z|[+-]\d\d(?::?\d\d)?)?", re.ASCII)
_MOST_SECONDS = 100_000
"""Seconds that are remembered: in a busy trace many requests share one."""
_EPOCH_DAY = date(1970, 1, 1).toordinal()


class Clock:
    """Reads cells of *column*; remembers what kinds of times it has met, and where first."""

    def __init__(
        self, column: Column, unit: Fraction, *, dates: bool, may_lack: bool = False, whole: str = "", name: str = ""
    ) -> None:
        self._column = column
        self.unit = unit
        """Of numbers, in seconds."""
        self._name = name
        """Of the file."""
        self._dates = dates
        """May a cell hold a date?"""
        self._may_lack = may_lack
        self._whole = whole
        """The format that counts whole units, if it is one that does."""
        self._seconds: dict[str, int] = {}
        self.kinds: dict[str, int] = {}
        """Kinds of times and the line of the first one."""

    def read(self, cells: Sequence[str], lines: Sequence[int]) -> Ints | list[int | None]:
        """Picoseconds, None where there is no time. Raises BadCell; then nothing is remembered of *cells*."""
        if self._dates and any(":" in cell for cell in cells):
            return self._read_each(cells, lines)
        if self._may_lack and any(not cell.strip() for cell in cells):
            return self._read_each(cells, lines)
        values = self._numbers(cells, lines)
        self.kinds.setdefault(NUMBER, lines[0])
        return values if isinstance(values, np.ndarray) else list(values)

    def _numbers(self, cells: Sequence[str], lines: Sequence[int]) -> Ints | list[int]:
        values = read_times(self._column, cells, self.unit)
        if self._whole:
            unit_ps = int(self.unit * PS_PER_S)
            for cell, line, value in zip(cells, lines, values, strict=True):
                if value % unit_ps:
                    raise UsageError(
                        f"{self._name} line {line}: the time is {show(cell)}, "
                        f"but {self._whole} counts whole milliseconds. "
                        "Say what these are: --time-unit s or --time-unit ms."
                    )
        return values

    def contradiction(self) -> tuple[int, str, int, str] | None:
        """The line and the kind of a time that cannot be told together with an earlier one, then that one's."""
        met = sorted(self.kinds.items(), key=lambda kind: kind[1])
        for place, (kind, line) in enumerate(met):
            for before, line_before in met[:place]:
                if not any({kind, before} <= together for together in _TOGETHER):
                    return line, kind, line_before, before
        return None

    def _read_each(self, cells: Sequence[str], lines: Sequence[int]) -> list[int | None]:
        values: list[int | None] = []
        kinds: dict[str, int] = {}
        for cell, line in zip(cells, lines, strict=True):
            if self._may_lack and not cell.strip():
                values.append(None)
                continue
            if ":" in cell:
                value, kind = self._stamp(cell)
            else:
                value, kind = int(self._numbers([cell], [line])[0]), NUMBER
            kinds.setdefault(kind, line)
            values.append(value)
        for kind, line in kinds.items():
            self.kinds.setdefault(kind, line)
        return values

    def _stamp(self, cell: str) -> tuple[int, str]:
        """Picoseconds since 1970, and the kind of date."""
        text = cell.strip()
        rest = _REST.fullmatch(text, _SECOND_CHARS)
        seconds = self._seconds.get(text[:_SECOND_CHARS])
        if seconds is None:
            seconds = self._read_second(text[:_SECOND_CHARS], cell)
        if rest is None:
            raise self._no_date(cell)
        fraction, zone = rest.groups()
        time_ps = seconds * PS_PER_S + (int(fraction.ljust(12, "0")) if fraction else 0)
        if zone is None:
            return time_ps, LOCAL
        shift_s = 0 if zone in ("Z", "+00:00") else _shift_s(zone)
        return time_ps - shift_s * PS_PER_S, ZONED if shift_s else UTC

    def _read_second(self, text: str, cell: str) -> int:
        """Seconds since 1970 of a date and a clock time."""
        match = _SECOND.fullmatch(text)
        if match is None:
            raise self._no_date(cell)
        day, hour, minute, second = match.groups()
        try:
            days = date.fromisoformat(day).toordinal() - _EPOCH_DAY
        except ValueError:
            raise BadCell(f"{self._column.name} is {show(cell)}, but there is no such date") from None
        if int(hour) > 23 or int(minute) > 59 or int(second) > 60:
            raise BadCell(f"{self._column.name} is {show(cell)}, but a day has no such time")
        if len(self._seconds) == _MOST_SECONDS:
            self._seconds.clear()
        found = self._seconds[text] = days * 86_400 + int(hour) * 3_600 + int(minute) * 60 + int(second)
        return found

    def _no_date(self, cell: str) -> BadCell:
        return BadCell(f"{self._column.name} is {show(cell)}, but a date is expected as in 2023-11-16 18:17:03.9799600")


def _shift_s(zone: str) -> int:
    """Seconds that a zone such as ``+02:00`` is ahead of UTC."""
    digits = zone[1:].replace(":", "").ljust(4, "0")
    shift_s = int(digits[:2]) * 3_600 + int(digits[2:]) * 60
    return shift_s if zone[0] == "+" else -shift_s
