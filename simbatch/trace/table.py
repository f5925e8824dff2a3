"""A file's rows as columns, on the way from the file to a `Trace`."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Any

_COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
NO_TIME = -(1 << 62)
"""Stands in `arrival_s` for a time that the format will fill in."""


@dataclass
class Table:
    """A file as columns under their names in files: integers as arrays, the rest as lists."""

    name: str
    sha256: str
    format: str = "simbatch"
    columns: dict[str, Any] = field(default_factory=dict)
    lines: array[int] = field(default_factory=lambda: array("q"))
    """Line of each row."""
    order: array[int] = field(default_factory=lambda: array("q"))
    """Place of each row in the file, bad ones counted."""
    provenance: tuple[str, ...] = ()
    transforms: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    why_dropped: dict[str, list[int]] = field(default_factory=dict)
    """Reasons for which rows were left out, and their lines."""
    dropped: int = 0
    notes: list[str] = field(default_factory=list)
    """What a user of the file should know."""

    def put(self, order: list[int]) -> None:
        """Puts the rows in *order*, which may leave some out."""
        self.lines = array("q", [self.lines[k] for k in order])
        self.order = array("q", [self.order[k] for k in order])
        for name, values in self.columns.items():
            moved = [values[k] for k in order]
            self.columns[name] = array("q", moved) if isinstance(values, array) else moved

    def drop(self, row_reasons: dict[int, str]) -> None:
        """Leaves out the rows given, each for a reason."""
        for row, reason in sorted(row_reasons.items()):
            self.why_dropped.setdefault(reason, []).append(self.lines[row])
        self.dropped += len(row_reasons)
        self.put([row for row in range(len(self.lines)) if row not in row_reasons])


def rows_text(count: int) -> str:
    """A count of rows as a sentence begins.

    >>> rows_text(3)
    'Three rows'
    """
    words = _COUNTS[count] if count < len(_COUNTS) else f"{count:,}"
    return f"{words.capitalize()} row{'s' if count != 1 else ''}"
