"""Reading trace files: what is in a file becomes a table, or a refusal that says where and what to do.

Reading goes through the whole file before it complains, so that a message can say how many rows are
like the first bad one. Nothing is dropped, sorted or scaled unless asked for, and what was dropped
is counted with its reason. Files of other origins come in through `simbatch.trace.formats`.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from simbatch.errors import UsageError, unknown
from simbatch.trace.clock import NUMBER, UNITS, Clock
from simbatch.trace.columns import COLUMNS, BadCell, Ints, read_cells, scale_ps
from simbatch.trace.container import read_content
from simbatch.trace.header import match_columns
from simbatch.trace.identity import misfit
from simbatch.trace.order import (
    put_in_order,
    refuse_beyond_clock,
    refuse_turns_that_go_back,
    refuse_twins,
    refuse_wrong_epoch,
    unwrap,
)
from simbatch.trace.rows import Chunk, Source
from simbatch.trace.source import open_rows
from simbatch.trace.table import NO_TIME, Table, rows_text
from simbatch.trace.write import TRANSFORM
from simbatch.units import MAX_PS, to_ps


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a file is read; see `Trace.load`."""

    drop_bad: bool = False
    sort: bool = False
    time_scale: float = 1.0
    time_unit: str | None = None
    wrap_s: float | None = None
    hash_block_tokens: int | None = None
    columns: Mapping[str, str] | None = None
    seed: int = 0
    only: frozenset[str] | None = None
    """Columns to read, where not all of them are needed."""


def read_table(path: Path, options: Options) -> Table:
    """The trace file at *path*. Raises UsageError with the line at fault."""
    content = read_content(path)
    source = open_rows(content, options.seed)
    if content.broken and not source.header:
        raise UsageError(f"{content.name} breaks off before its first row. Fetch or make the file again.")
    places, ignored = match_columns(source.header, source.where, options.columns, source.format)
    if options.only is not None:
        places = {name: place for name, place in places.items() if name in options.only}
    reader = _Reader(source, places, options)
    table = reader.table
    table.ignored = ignored
    for chunk in source.chunks():
        reader.add(chunk)
    table.provenance = tuple(line for line in source.comments if not line.startswith(TRANSFORM))
    table.transforms = tuple(line.removeprefix(TRANSFORM) for line in source.comments if line.startswith(TRANSFORM))
    if not options.drop_bad:
        _refuse_cut(source, table, reader.bad)
        _refuse_bad(table, reader)
    table.dropped = reader.bad + content.broken
    if content.broken:
        table.why_dropped["the gzip stream has no end"] = [table.lines[-1] + 1 if table.lines else 1]
    if not table.lines:
        why = f"line {reader.first_bad[0]}: {reader.first_bad[1]}" if reader.first_bad else "there is none"
        raise UsageError(f"{content.name} has no row that can be used ({why}). Give one line per request.")
    reader.finish()
    return table


class _Reader:
    """Collects chunks of cells into a table, and what is wrong with the rows that do not fit."""

    def __init__(self, source: Source, places: dict[str, int], options: Options) -> None:
        self.format = source.format
        self.table = table = Table(source.content.name, source.content.sha256, format=source.format.name)
        self.options = options
        self.bad = 0
        self.first_bad: tuple[int, str] | None = None
        self.earliest_ps = 1 << 200
        self.latest_ps = 0
        """Unlike the column, which ends at the clock's last instant, these may lie beyond it."""
        self._seen = 0
        mapped = "arrival_s" in (options.columns or {})
        self._relative = mapped or not self.format.ours
        self._base_ps: int | None = None if self._relative else 0
        self._columns = [(COLUMNS[name], place) for name, place in places.items()]
        self._constants = _constants(source, places, options)
        self._scale = Fraction(str(options.time_scale))
        self._think_scale = UNITS[self.format.think_unit] * self._scale
        self._clock = Clock(
            COLUMNS["arrival_s"],
            UNITS[_unit(options.time_unit, "s" if mapped else self.format.unit)],
            dates=self._relative and options.time_unit is None,
            may_lack=self.format.may_lack_times,
            name=source.content.name,
            whole="" if options.time_unit or mapped or not self.format.whole_times else self.format.name,
        )
        for name in [*places, *self._constants]:
            table.columns[name] = [] if COLUMNS[name].kind in ("label", "list") else array("q")

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
                self._append([line], [row])
            except BadCell as bad:
                self.bad += 1
                self._seen += 1
                self.first_bad = self.first_bad or (line, str(bad))
                self.table.why_dropped.setdefault(str(bad), []).append(line)

    def finish(self) -> None:
        """What concerns all rows together. Raises UsageError."""
        table, options = self.table, self.options
        if "arrival_s" in table.columns:
            wrong = self._clock.contradiction()
            if wrong:
                raise UsageError(
                    f"{table.name} line {wrong[0]}: arrival_s is {wrong[1]}, but on line {wrong[2]} it is {wrong[3]}. "
                    "Write all of them alike."
                )
            refuse_beyond_clock(table.name, self.earliest_ps, self.latest_ps)
        if self.format.finish is not None:
            self.format.finish(table)
        if self.format.note:
            table.notes.append(f"{self.format.name}: {self.format.note}")
        if "arrival_s" in table.columns:
            if options.wrap_s is not None:
                unwrap(table, to_ps(options.wrap_s * options.time_scale))
            put_in_order(table, options.sort)
        refuse_twins(table, options.drop_bad)
        refuse_turns_that_go_back(table)
        _keep_names(table)

    def _append(self, lines: Sequence[int], rows: list[list[str]]) -> None:
        cells = list(zip(*rows, strict=True))
        read: dict[str, Sequence[Any]] = {}
        times: Ints | list[int | None] | None = None
        for column, place in self._columns:
            if column.name == "arrival_s":
                times = self._clock.read(cells[place], lines)
            else:
                scale = self._think_scale if column.kind == "time" else self._scale
                read[column.name] = read_cells(column, cells[place], scale)
        for name, cell in self._constants.items():
            read[name] = read_cells(COLUMNS[name], [cell], self._scale) * len(rows)
        wrong = misfit(read, read["prompt_tokens"])
        if wrong:
            raise BadCell(wrong[1])
        table = self.table
        if times is not None:
            _extend(table.columns["arrival_s"], self._counted(times, lines))
        for name, values in read.items():
            table.columns[name].extend(values)
        _extend(table.lines, np.arange(lines.start, lines.stop) if isinstance(lines, range) else list(lines))
        _extend(table.order, np.arange(self._seen, self._seen + len(rows)))
        self._seen += len(rows)

    def _counted(self, times: Ints | list[int | None], lines: Sequence[int]) -> Ints | list[int]:
        """Times since the first row, or since 0, scaled and within what a column can hold."""
        if self._base_ps is None:
            first = next((place for place, time in enumerate(times) if time is not None), None)
            if first is None:
                return [NO_TIME] * len(times)
            self._base_ps = base = int(times[first] or 0)
            if self.options.time_unit is None and NUMBER in self._clock.kinds:
                refuse_wrong_epoch(self.table.name, lines[first], base, self._clock.unit)
        if isinstance(times, np.ndarray) and self._scale == 1:
            times = times - self._base_ps
            self._meet(int(times.min()), int(times.max()))
            return times
        known = scale_ps([int(time) - self._base_ps for time in times if time is not None], self._scale)
        if known:
            self._meet(min(known), max(known))
        counted = (max(-MAX_PS // 2, min(time, MAX_PS)) for time in known)
        return [NO_TIME if time is None else next(counted) for time in times]

    def _meet(self, earliest_ps: int, latest_ps: int) -> None:
        self.earliest_ps = min(self.earliest_ps, earliest_ps)
        self.latest_ps = max(self.latest_ps, latest_ps)


def _extend(column: array[int], values: Ints | list[int]) -> None:
    if isinstance(values, np.ndarray):
        column.frombytes(values.tobytes())
    else:
        column.extend(values)


def _unit(asked: str | None, otherwise: str) -> str:
    if asked is not None and asked not in UNITS:
        raise unknown("unit of time", asked, UNITS)
    return asked or otherwise


def _constants(source: Source, places: dict[str, int], options: Options) -> dict[str, str]:
    """Cells of the columns that the format, or the user, says for all rows."""
    constants = {name: cell for name, cell in source.format.constants.items() if name not in places}
    if options.hash_block_tokens is not None:
        if "hash_ids" not in places or "hash_block_tokens" in places:
            why = "says hash_block_tokens itself" if "hash_block_tokens" in places else "has no hash_ids"
            raise UsageError(f"{source.content.name} {why}, so a size for their blocks has no use. Leave it out.")
        constants["hash_block_tokens"] = str(options.hash_block_tokens)
    if "hash_ids" not in places:
        constants.pop("hash_block_tokens", None)
    return constants


def _keep_names(table: Table) -> None:
    """Requests without ids are named by their place in the file, which segments may quote: rows must not change it."""
    if "segments" not in table.columns or "id" in table.columns:
        return
    if any(place != row for row, place in enumerate(table.order)):
        table.columns["id"] = [str(place) for place in table.order]


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
