"""Between columns under their names in files and the fields of a `Trace`, in both directions.

Numbers given from Python are checked by the same rules as the cells of a file; a wrong one is
reported with its row, counted from 0.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from simbatch.errors import UsageError, unknown
from simbatch.trace.columns import COLUMNS, MAX_TOKENS, NOT_GIVEN, PREFIX, REQUIRED, BadCell, Column, read_cells
from simbatch.trace.identity import misfit
from simbatch.units import MAX_PS

if TYPE_CHECKING:
    from simbatch.trace.trace import Trace

_ONCE = Fraction(1)
_NESTED = (list, tuple, np.ndarray)
_PLAIN = (str, int)


def checked(columns: Mapping[str, Any], name: str) -> dict[str, Any]:
    """*columns* as values that a trace can hold. Times are in seconds, or in picoseconds as `arrival_ps`, `think_ps`.

    Raises UsageError for an unknown, missing, uneven or unsorted column and for a value that makes no sense.
    """
    given = {key: values for key, values in columns.items() if values is not None}
    result: dict[str, Any] = {}
    for key, values in given.items():
        of = {"arrival_ps": "arrival_s", "think_ps": "think_s"}.get(key, key)
        if of not in COLUMNS:
            raise unknown("trace column", key, COLUMNS)
        result[of] = _values(COLUMNS[of], values, name, in_ps=of != key)
    for key in REQUIRED:
        if key not in result:
            raise UsageError(f"{name}: there is no column {key} (found: {', '.join(given) or 'none'}). Give one.")
    rows = len(result["prompt_tokens"])
    for key, values in result.items():
        if len(values) != rows:
            raise UsageError(f"{name}: {key} has {len(values)} rows, but prompt_tokens has {rows}. Give equally many.")
    if rows == 0:
        raise UsageError(f"{name}: there are no rows. A trace needs at least one request.")
    _check_together(result, name)
    return result


def fields_of(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a `Trace` from checked *columns*."""
    result: dict[str, Any] = {}
    prefix: dict[str, tuple[Any, ...]] = {}
    for key, values in columns.items():
        column = COLUMNS[key]
        if column.field == "prefix":
            prefix[key] = tuple(values)
        elif column.kind == "label":
            result[column.field] = tuple(values)
        else:
            result[column.field] = np.array(values, dtype=np.int64)
    return {**result, "prefix": prefix}


def columns_of(trace: Trace) -> dict[str, Sequence[Any]]:
    """The columns that *trace* has, under their names in files, as plain Python values."""
    result: dict[str, Sequence[Any]] = {}
    for key, column in COLUMNS.items():
        values = trace.prefix.get(key) if key in PREFIX else getattr(trace, column.field)
        if values is not None:
            result[key] = values.tolist() if isinstance(values, np.ndarray) else values
    return result


def says_nothing(column: Column, values: Iterable[Any]) -> bool:
    """Whether an optional column is empty in every row, so that a file could not tell it from none."""
    if column.kind in ("label", "list"):
        return not any(values)
    return column.default == NOT_GIVEN and all(value == NOT_GIVEN for value in values)


def fingerprint(columns: Mapping[str, Sequence[Any]]) -> str:
    """A hash of what is in *columns*, for a trace that never was a file."""
    digest = hashlib.sha256()
    for key, values in columns.items():
        digest.update(f"{key}:{len(values)}:".encode())
        for start in range(0, len(values), 1 << 16):
            digest.update(repr(values[start : start + (1 << 16)]).encode())
    return digest.hexdigest()


def _values(column: Column, values: Any, name: str, in_ps: bool) -> list[Any]:
    """Checked values; integers of numpy take the short way."""
    listed = values.tolist() if hasattr(values, "tolist") else list(values)
    whole = isinstance(values, np.ndarray) and values.dtype.kind in "iu"
    if in_ps or (whole and column.kind in ("tokens", "count", "order")):
        _check_range(column, listed, MAX_PS if in_ps else MAX_TOKENS, name)
        return [int(value) for value in listed] if in_ps else listed
    if column.kind == "list":
        if all(value is None or _is_frozen(value) for value in listed):
            return listed
        listed = [json.dumps(value, default=_plain) if isinstance(value, _NESTED) else value for value in listed]
    cells = ["" if _is_missing(value) else str(value) for value in listed]
    try:
        return read_cells(column, cells, _ONCE) if cells else []
    except BadCell:
        for row, cell in enumerate(cells):
            try:
                read_cells(column, [cell], _ONCE)
            except BadCell as bad:
                raise _wrong(name, row, str(bad)) from None
        raise


def _is_frozen(value: Any) -> bool:
    """Is it a tuple of texts and numbers, or of tuples of such, and so what a trace can hold as it is?"""
    return isinstance(value, tuple) and all(
        type(item) in _PLAIN or (isinstance(item, tuple) and all(type(part) in _PLAIN for part in item))
        for item in value
    )


def _check_range(column: Column, values: Sequence[int], most: int, name: str) -> None:
    for row, value in enumerate(values):
        if value > most:
            raise _wrong(name, row, f"{column.name} is {value}, but the most that can be simulated is {most}")
        if value < column.least and value != column.default:
            raise _wrong(name, row, f"{column.name} is {value}, but {column.asks}")


def _is_missing(value: Any) -> bool:
    """Whether a value is None or what pandas writes for it."""
    return value is None or type(value).__name__ == "NAType" or (isinstance(value, float) and math.isnan(value))


def _plain(value: Any) -> Any:
    """What numpy holds, as JSON can write it."""
    return value.tolist()


def _check_together(columns: Mapping[str, Any], name: str) -> None:
    arrivals = columns.get("arrival_s", ())
    if arrivals and max(arrivals) > MAX_PS:
        raise UsageError(f"{name}: the last arrival passes the clock's end (106 days). Count times from the first one.")
    for row in range(1, len(arrivals)):
        if arrivals[row] < arrivals[row - 1]:
            raise _wrong(name, row, "arrival_s is less than in the row before, but times cannot go back")
    seen: set[str] = set()
    for row, label in enumerate(columns.get("id", ())):
        if label in seen:
            raise _wrong(name, row, f"the id {label!r} occurs before, but every request needs its own")
        seen.add(label)
    wrong = misfit(columns, columns["prompt_tokens"])
    if wrong:
        raise _wrong(name, *wrong)


def _wrong(name: str, row: int, what: str) -> UsageError:
    return UsageError(f"{name} row {row}: {what}. Rows count from 0; correct this one.")
