"""The columns of a trace file: what each one means, and how a cell of text becomes a value.

csv and jsonl both arrive here as text, so a value is read, checked and refused in one place only.
Times are read as decimal digits, never through a float: a picosecond survives in a trace of many
days. A reader of another format only has to give text cells under these names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simbatch.units import MAX_PS, PS_PER_S

Ints = NDArray[np.int64]

MAX_TOKENS = 2**31 - 1
"""Largest count or length that a cell may hold; sums over a billion of them fit 64 bits."""
NOT_GIVEN = -1
"""Stands in `max_tokens` for a request without a limit."""

_FRACTIONS = re.compile(r"\.[0-9]*")
_CLOCK_ENDS = f"the clock ends after {MAX_PS // (86_400 * PS_PER_S)} days"


class BadCell(ValueError):
    """What is wrong with a cell, as the middle of a sentence."""


@dataclass(frozen=True)
class Column:
    """One column: its name in files, the field of `Trace` it fills, and what it accepts.

    kind is tokens, count, order, time, label or list; *default* fills an empty cell, and a column
    without one must have a value in every row.
    """

    name: str
    field: str
    kind: str
    least: int = 0
    default: int | None = None
    asks: str = ""
    """Why a value below *least* makes no sense."""


COLUMNS: dict[str, Column] = {
    column.name: column
    for column in (
        Column("arrival_s", "arrival_ps", "time", 0, None, "times count from 0"),
        Column("prompt_tokens", "prompt_tokens", "tokens", 1, None, "a request has at least 1"),
        Column("output_tokens", "output_tokens", "tokens", 1, None, "a request asks for at least 1"),
        Column("max_tokens", "max_tokens", "tokens", 1, NOT_GIVEN, "a limit is at least 1"),
        Column("priority", "priority", "order", -MAX_TOKENS, 0, f"the least is {-MAX_TOKENS}"),
        Column("n", "n", "count", 1, 1, "a request asks for at least 1 sample"),
        Column("session", "session", "label"),
        Column("turn", "turn", "count", 0, 0, "turns count from 0"),
        Column("think_s", "think_ps", "time", 0, 0, "nobody thinks for less than 0 s"),
        Column("prefix_group", "prefix", "label"),
        Column("prefix_tokens", "prefix", "tokens", 0, NOT_GIVEN, "a prefix has at least 0"),
        Column("hash_ids", "prefix", "list"),
        Column("hash_block_tokens", "prefix", "tokens", 1, NOT_GIVEN, "a block has at least 1"),
        Column("segments", "prefix", "list"),
        Column("id", "ids", "label"),
    )
}
"""In the order in which they are written. What the prefix columns mean: `simbatch.trace.identity`."""

ARRAYS = tuple(
    column.field for column in COLUMNS.values() if column.kind not in ("label", "list") and column.field != "prefix"
)
"""Fields of a trace that are arrays of numbers."""
REQUIRED = ("prompt_tokens", "output_tokens")
PREFIX = tuple(name for name, column in COLUMNS.items() if column.field == "prefix")


def read_cells(column: Column, cells: Sequence[str], scale: Fraction) -> list[Any]:
    """The values of *cells*, fast where all are well-formed. Times in picoseconds, multiplied by *scale*.

    Raises BadCell for the first cell that has no value.
    """
    if column.kind in ("tokens", "count", "order"):
        text = "".join(cells)
        if text.isascii() and "_" not in text:
            try:
                values = list(map(int, cells))
            except ValueError:
                pass
            else:
                if column.least <= min(values) and max(values) <= MAX_TOKENS:
                    return values
    if column.kind == "time":
        times_ps = [int(time) for time in read_times(column, cells, scale)]
        if column.default is not None and max(times_ps) > MAX_PS:  # of arrivals the whole column tells more
            raise BadCell(f"{column.name} is {seconds_text(max(times_ps))}, but {_CLOCK_ENDS}")
        return times_ps
    read = _READ[column.kind]
    return [read(column, cell) for cell in cells]


def read_times(column: Column, cells: Sequence[str], unit: Fraction) -> Ints | list[int]:
    """Times in picoseconds, which may lie beyond the clock; a cell counts in *unit* seconds. Raises BadCell."""
    fast = _fast_times(cells, unit) if len(cells) > 1 else None
    return scale_ps([_time(column, cell) for cell in cells], unit) if fast is None else fast


def _fast_times(cells: Sequence[str], unit: Fraction) -> Ints | None:
    """The same in one go, where all cells are digits with at most one point among them and not too many."""
    text = ",".join(cells)
    if set(text).difference("0123456789.,"):
        return None
    digits = max(map(len, _FRACTIONS.findall(text)), default=1) - 1
    scale = unit * Fraction(PS_PER_S, 10**digits)
    try:
        values = np.array(cells, dtype=np.float64) * 10.0**digits
    except ValueError:  # an empty cell, or two points in one
        return None
    # Below 2**51 a product is off by less than a quarter, so rounding gives the digits that stood there.
    if scale.denominator != 1 or not values.max() < min(2.0**51, 2.0**62 / scale.numerator):
        return None
    return np.asarray(np.rint(values).astype(np.int64) * scale.numerator, dtype=np.int64)


def scale_ps(values: list[int], factor: Fraction) -> list[int]:
    """Each value times *factor*, rounded to whole picoseconds; exact at any size."""
    if factor == 1:
        return values
    up, down = 2 * factor.numerator, 2 * factor.denominator
    half = factor.denominator
    return [(value * up + half) // down for value in values]


def show(cell: str) -> str:
    """A cell as an error message quotes it: numbers bare, other text in quotes and not too long."""
    text = cell.strip()
    if len(text) > 40:
        text = text[:37] + "..."
    return text if text[:1].isdigit() or text[:1] in ("-", "+", ".", '"') else repr(text)


def seconds_text(picoseconds: int) -> str:
    """Seconds in as many digits as it takes to read the same picoseconds back.

    >>> [seconds_text(x) for x in (0, 25_600_000_000, 3 * 10**12)]
    ['0', '0.0256', '3']
    """
    whole, rest = divmod(abs(picoseconds), PS_PER_S)
    text = f"{whole}.{rest:012d}".rstrip("0") if rest else str(whole)
    return f"-{text}" if picoseconds < 0 else text


def write_cells(column: Column, values: Iterable[Any]) -> list[str]:
    """Cells that `read_cells` reads back as *values*; empty where there is no value."""
    if column.kind == "time":
        return [seconds_text(value) for value in values]
    if column.kind == "label":
        return [value or "" for value in values]
    if column.kind == "list":
        return ["" if value is None else json.dumps(value, separators=(",", ":")) for value in values]
    if column.default == NOT_GIVEN:
        return ["" if value == NOT_GIVEN else str(value) for value in values]
    return [str(value) for value in values]


def freeze(value: Any) -> Any:
    """Nested lists as nested tuples, so that a trace cannot change."""
    if type(value) is not list and not isinstance(value, tuple):
        return value
    return tuple([freeze(item) if isinstance(item, list | tuple) else item for item in value])


def _number(column: Column, cell: str) -> Decimal | None:
    """The finite number in a cell; None where the cell is empty and need not be filled."""
    text = cell.strip()
    if not text:
        if column.default is not None:
            return None
        raise BadCell(f"{column.name} is empty, but {_expected(column)} is expected")
    try:
        value = Decimal(text if text.isascii() and "_" not in text else "not a number")
    except ArithmeticError:
        value = Decimal("nan")
    if not value.is_finite():
        raise BadCell(f"{column.name} is {show(text)}, but {_expected(column)} is expected")
    return value


def _whole(column: Column, cell: str) -> int:
    value = _number(column, cell)
    if value is None:
        return column.default or 0
    if value < column.least:
        raise BadCell(f"{column.name} is {show(cell)}, but {column.asks}")
    if value > MAX_TOKENS:
        raise BadCell(f"{column.name} is {show(cell)}, but the most that can be simulated is {MAX_TOKENS}")
    if value != int(value):
        raise BadCell(f"{column.name} is {show(cell)}, but {_expected(column)} is expected")
    return int(value)


def _time(column: Column, cell: str) -> int:
    """Picoseconds, which may be beyond the clock."""
    whole, _, part = cell.partition(".")
    if whole.isdecimal() and len(part) <= 12 and len(whole) <= 18 and cell.isascii() and (not part or part.isdecimal()):
        return int(whole) * PS_PER_S + int(part.ljust(12, "0"))
    value = _number(column, cell)
    if value is None:
        return column.default or 0
    if value < 0:
        raise BadCell(f"{column.name} is {show(cell)}, but {column.asks}")
    if value and value.adjusted() > 18:
        raise BadCell(f"{column.name} is {show(cell)}, but {_CLOCK_ENDS}")
    return int(value.scaleb(12).to_integral_value(ROUND_HALF_EVEN))


def _label(column: Column, cell: str) -> str | None:
    if any(mark in cell for mark in "\r\n\0"):
        raise BadCell(f"{column.name} is {show(cell)}, but a label fits on one line")
    if not cell and column.field == "ids":
        raise BadCell("id is empty, but every request needs one where there is such a column")
    return cell or (None if column.field == "prefix" else "")


def _list(column: Column, cell: str) -> Any:
    if not cell.strip():
        return None
    try:
        value = json.loads(cell, parse_constant=_refuse)
        # Segments, of which a trace has many, in one go: a list of lists with nothing in them that opens another.
        flat = bool(value) and isinstance(value, list) and cell.count("[") == 1 + len(value)
        value = tuple(map(tuple, value)) if flat and set(map(type, value)) == {list} else freeze(value)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, tuple):
        raise BadCell(f"{column.name} is {show(cell)}, but a list such as [1,2,3] is expected")
    return value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a number that can be compared")


def _expected(column: Column) -> str:
    return "a time in seconds" if column.kind == "time" else "a whole number"


_READ: dict[str, Callable[[Column, str], Any]] = {
    "tokens": _whole,
    "count": _whole,
    "order": _whole,
    "time": _time,
    "label": _label,
    "list": _list,
}
