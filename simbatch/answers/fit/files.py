"""Files of measurements as tables: csv or jsonl, plain or gzip, their columns under the names that fits know.

Whatever cannot be read is said here, with the file, the column and the row, before anything is computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simbatch.errors import UsageError
from simbatch.timing.work import Floats

if TYPE_CHECKING:
    import pandas as pd

Columns = Mapping[str, str]
"""Our name of a column and the file's."""


def read_frame(path: Path, columns: Columns | None = None, rows: int | None = None) -> pd.DataFrame:
    """The table in a file, at most its first *rows*. Raises UsageError where there is none."""
    import pandas as pd

    try:
        if ".jsonl" in path.suffixes[-2:]:
            frame = pd.read_json(path, lines=True, nrows=rows)
        else:
            frame = pd.read_csv(path, nrows=rows)
    except FileNotFoundError as error:
        raise UsageError(
            f"{path}: no such file. Give a log of iterations, a table of kernels or a benchmark result."
        ) from error
    except (ValueError, OSError, EOFError) as error:
        what = " ".join(str(error).split())
        raise UsageError(
            f"{path}: cannot be read as csv ({what}). Give a csv or jsonl file, or a .json benchmark result."
        ) from error
    for ours, theirs in (columns or {}).items():
        if theirs not in frame.columns:
            raise UsageError(
                f"{path}: no column {theirs!r} to take for {ours} (found {', '.join(map(str, frame.columns[:12]))}). "
                "Name one that is there."
            )
        if ours in frame.columns and ours != theirs:
            frame = frame.drop(columns=ours)
        frame = frame.rename(columns={theirs: ours})
    return frame


def numbers(frame: pd.DataFrame, name: str, place: str) -> Floats:
    """A column of counts or times, empty cells as 0. Raises UsageError for what is none, with its row."""
    import pandas as pd

    found = pd.to_numeric(frame[name], errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    empty = frame[name].isna().to_numpy()
    for wrong, what, instead in (
        (np.isnan(found) & ~empty, "no number", "numbers alone"),
        (found < 0, "below 0", "counts and times from 0"),
        (np.isinf(found), "beyond all bounds", "finite numbers"),
    ):
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            raise UsageError(
                f"{place}: {name} of row {at + 1} is {frame[name].iloc[at]!s}, which is {what} "
                f"({int(wrong.sum()):,} rows like this). Give {instead}."
            )
    return np.where(empty, 0.0, found)


def figure(cell: Any, name: str, place: str) -> float | None:
    """One figure of a result, None where it is missing. Raises UsageError for what is no figure above or at 0."""
    if cell is None or cell == "" or cell != cell:
        return None
    try:
        value = float(cell)
    except (TypeError, ValueError):
        value = -1.0
    if isinstance(cell, bool) or not value >= 0:
        raise UsageError(f"{place}: {name} is {cell!r}. Give a number from 0, or leave it out.")
    return value
