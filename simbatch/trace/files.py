"""Reading trace files: csv or jsonl, plain or gzip, in our own columns.

Reading goes through the whole file before it complains, so that a message can say how many rows are
like the first bad one. Nothing is dropped, sorted or scaled unless asked for, and what was dropped
is counted. A reader of another format only has to fill the same `Table`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from fractions import Fraction
from pathlib import Path

from simbatch.errors import UsageError
from simbatch.trace.columns import COLUMNS, BadCell, read_cells
from simbatch.trace.container import read_content
from simbatch.trace.header import match_columns
from simbatch.trace.identity import misfit
from simbatch.trace.rows import Chunk, Source, open_rows
from simbatch.trace.table import Table, put_in_order, refuse_beyond_clock, refuse_twins, rows_text
from simbatch.trace.write import TRANSFORM
from simbatch.units import MAX_PS


def read_table(
    path: Path,
    *,
    drop_bad: bool = False,
    sort: bool = False,
    time_scale: float = 1.0,
    columns: Mapping[str, str] | None = None,
) -> Table:
    """The trace file at *path*; see `Trace.load` for the options. Raises UsageError with the line at fault."""
    content = read_content(path)
    source = open_rows(content)
    where = f"{content.name} line {source.header_line}"
    if content.broken and not source.header:
        raise UsageError(f"{content.name} breaks off before its first row. Fetch or make the file again.")
    places, ignored = match_columns(source.header, where, columns)
    reader = _Reader(Table(content.name, content.sha256, ignored=ignored), places, Fraction(str(time_scale)))
    for chunk in source.chunks():
        reader.add(chunk)
    table = reader.table
    table.provenance = tuple(line for line in source.comments if not line.startswith(TRANSFORM))
    table.transforms = tuple(line.removeprefix(TRANSFORM) for line in source.comments if line.startswith(TRANSFORM))
    if not drop_bad:
        _refuse_cut(source, table, reader.bad)
        _refuse_bad(table, reader)
    table.dropped = reader.bad + content.broken
    if not table.lines:
        why = f"line {reader.first_bad[0]}: {reader.first_bad[1]}" if reader.first_bad else "there is none"
        raise UsageError(f"{content.name} has no row that can be used ({why}). Give one line per request.")
    if "arrival_s" in table.columns:
        refuse_beyond_clock(table.name, reader.earliest_ps, reader.latest_ps)
        put_in_order(table, sort)
    refuse_twins(table)
    return table


class _Reader:
    """Collects chunks of cells into a table, and what is wrong with the rows that do not fit."""

    def __init__(self, table: Table, places: dict[str, int], scale: Fraction) -> None:
        self.table = table
        self.bad = 0
        self.first_bad: tuple[int, str] | None = None
        self.earliest_ps = 1 << 200
        self.latest_ps = 0
        """Unlike the column, which ends at the clock's last instant, these may lie beyond it."""
        self._columns = [(COLUMNS[name], place) for name, place in places.items()]
        self._scale = scale
        for column, _ in self._columns:
            table.columns[column.name] = [] if column.kind in ("label", "list") else array("q")

    def add(self, chunk: Chunk) -> None:
        lines, rows = chunk
        whole = [row for row in rows if isinstance(row, list)]
        if len(whole) == len(rows):
            try:
                self._append(lines, whole)
            except BadCell:
                pass
            else:
                return
        for line, row in zip(lines, rows, strict=True):
            try:
                if isinstance(row, str):
                    raise BadCell(row)
                self._append((line,), [row])
            except BadCell as bad:
                self.bad += 1
                self.first_bad = self.first_bad or (line, str(bad))

    def _append(self, lines: Iterable[int], rows: list[list[str]]) -> None:
        cells = list(zip(*rows, strict=True))
        read = [read_cells(column, cells[place], self._scale) for column, place in self._columns]
        values_of = {column.name: values for (column, _), values in zip(self._columns, read, strict=True)}
        wrong = misfit(values_of, values_of["prompt_tokens"])
        if wrong:
            raise BadCell(wrong[1])
        for (column, _), values in zip(self._columns, read, strict=True):
            if column.name == "arrival_s":
                values = self._within_clock(values)
            self.table.columns[column.name].extend(values)
        self.table.lines.extend(lines)

    def _within_clock(self, values: list[int]) -> list[int]:
        earliest, latest = min(values), max(values)
        self.earliest_ps = min(self.earliest_ps, earliest)
        self.latest_ps = max(self.latest_ps, latest)
        return [min(value, MAX_PS) for value in values] if latest > MAX_PS else values


def _refuse_bad(table: Table, reader: _Reader) -> None:
    if reader.first_bad:
        line, reason = reader.first_bad
        leaves = "leaves it out" if reader.bad == 1 else "leaves them out"
        raise UsageError(f"{table.name} line {line}: {reason}. {rows_text(reader.bad)} like this; --drop-bad {leaves}.")


def _refuse_cut(source: Source, table: Table, bad: int) -> None:
    """Says after which record a file breaks off."""
    name, rows = source.content.name, source.rows
    if source.content.broken:
        last = f" (line {table.lines[-1]})" if table.lines else ""
        raise UsageError(
            f"{name} breaks off after record {rows}{last}: the gzip stream has no end. "
            "Fetch the file again, or use the whole records with --drop-bad."
        )
    if source.last_is_short and bad == 1 and not source.content.ends_with_newline:
        raise UsageError(
            f"{name} breaks off inside record {rows}, after record {rows - 1}. "
            "Fetch the file again, or use the whole records with --drop-bad."
        )
