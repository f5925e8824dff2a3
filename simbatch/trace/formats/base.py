"""What a format is, and our own.

A format is data: names of columns, units, constants. Where that is not enough it has functions: one
that takes a jsonl object apart, and one that finishes the table when all rows are there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from simbatch.trace.columns import COLUMNS, REQUIRED

if TYPE_CHECKING:
    from simbatch.trace.table import Table


def _always(first: Mapping[str, Any]) -> bool:
    return True


@dataclass(frozen=True)
class Format:
    """How the files of one origin say what ours say."""

    name: str
    asks: frozenset[str]
    """Columns that tell the format."""
    columns: Mapping[str, str]
    """The file's name for each of our columns that it may have."""
    unit: str = "s"
    """Of `arrival_s`: s, ms, us or ns."""
    think_unit: str = "s"
    whole_times: bool = False
    """Times are whole numbers of the unit: a fraction means that the unit may be another one."""
    constants: Mapping[str, str] = field(default_factory=dict)
    """Cells of our columns that are the same in every row."""
    may_lack_times: bool = False
    """A row may have no time of its own: `finish` gives it one."""
    ours: bool = False
    """Times are kept as they are; in other formats they count from the first row."""
    when: Callable[[Mapping[str, Any]], bool] = _always
    """A further condition, on the first object of a jsonl file."""
    take_apart: Callable[[dict[str, Any]], dict[str, Any] | str] | None = None
    """A jsonl object as an object of plain values; or why it is no request."""
    finish: Callable[[Table], None] | None = None
    note: str = ""
    """What a user of such a file should know; shown as a warning."""

    def fits(self, names: Collection[str], first: Mapping[str, Any]) -> bool:
        """Is a file with columns *names* and the first object *first* (empty for csv) of this format?"""
        return self.asks <= set(names) and self.when(first)


OURS = Format("simbatch", frozenset(REQUIRED), {name: name for name in COLUMNS}, ours=True)
