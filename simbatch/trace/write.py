"""Writing trace files: csv or jsonl, plain or gzip, as the ending of the name says.

What is written is read back equal, and the same trace gives the same bytes on any day: the gzip
header carries neither a time nor a name.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from simbatch.errors import UsageError
from simbatch.trace.columns import COLUMNS, write_cells

TRANSFORM = "transform: "
"""Opens the comment lines that say how a trace was changed before it was written."""


def write_table(path: Path, columns: Mapping[str, Any], provenance: Iterable[str], transforms: Iterable[str]) -> None:
    """Writes *columns* (names in files) to *path*; its endings say as what: .csv or .jsonl, and .gz.

    The same columns give the same bytes. Raises UsageError for another ending.
    """
    stem, packed = (path.name[:-3], True) if path.name.endswith(".gz") else (path.name, False)
    comments = [*provenance, *(TRANSFORM + line for line in transforms)]
    head = "".join(f"# {line}\n" if line else "#\n" for line in comments)
    cells = {name: write_cells(COLUMNS[name], values) for name, values in columns.items()}
    if stem.endswith(".csv"):
        _refuse_wide_cells(cells)
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(cells)
        writer.writerows(zip(*cells.values(), strict=True))
        body = text.getvalue()
    elif stem.endswith(".jsonl"):
        body = "".join(_object(list(cells), row) for row in zip(*cells.values(), strict=True))
    else:
        raise UsageError(f"{path.name} does not say what to write. End it in .csv, .csv.gz, .jsonl or .jsonl.gz.")
    data = (head + body).encode()
    try:
        path.write_bytes(_gzip(data) if packed else data)
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror}). Give a place that you may write to.") from None


def _refuse_wide_cells(cells: Mapping[str, list[str]]) -> None:
    for name, column in cells.items():
        widest = max(map(len, column))
        if widest > csv.field_size_limit():
            raise UsageError(
                f"{name} has a cell of {widest:,} characters, and csv readers stop at {csv.field_size_limit():,}. "
                "Write jsonl instead."
            )


def _object(names: list[str], row: tuple[str, ...]) -> str:
    """A line of jsonl; the cells of numbers and lists are JSON already."""
    parts = [
        f"{json.dumps(name)}: {json.dumps(cell, ensure_ascii=False) if COLUMNS[name].kind == 'label' else cell}"
        for name, cell in zip(names, row, strict=True)
        if cell
    ]
    return "{" + ", ".join(parts) + "}\n"


def _gzip(data: bytes) -> bytes:
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=packed, mtime=0) as stream:
        stream.write(data)
    return packed.getvalue()
