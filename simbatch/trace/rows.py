"""Rows of text cells out of csv and jsonl, with the line each one stands on.

The format is told by the content: a file whose first line that is not a comment opens with a brace
is jsonl, anything else is csv. Comments stand before the first row only, so that a label may start
with a hash sign. A line that is no row comes out as the reason, and the reader counts those.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from decimal import Decimal
from itertools import chain

from simbatch.errors import UsageError
from simbatch.trace.columns import COLUMNS
from simbatch.trace.container import Content

CHUNK_ROWS = 8192
Row = list[str] | str
"""Cells in the order of the header, or why the line is no row."""
Chunk = tuple[Iterable[int], list[Row]]


class Source:
    """A file as a header and chunks of rows; made by `open_rows`."""

    def __init__(self, content: Content) -> None:
        self.content = content
        self.comments: list[str] = []
        self.header: list[str] = []
        self.header_line = 0
        self.rows = 0
        """Rows given out so far, those that are none included."""
        self.last_is_short = False
        """The last row given out lacks its end, as where a file breaks off."""

    def chunks(self) -> Iterator[Chunk]:
        raise NotImplementedError

    def _start(self) -> tuple[Iterator[str], str]:
        """The lines after the comments, and the first of them, which is empty at the end of the file."""
        lines = iter(self.content.lines())
        self.comments, self.header_line = [], 0
        for line in lines:
            self.header_line += 1
            if line.startswith("#"):
                self.comments.append(line[1:].rstrip("\r\n").removeprefix(" "))
            elif line.strip():
                return lines, line
        return lines, ""


class CsvSource(Source):
    """The first row names the columns."""

    def __init__(self, content: Content) -> None:
        super().__init__(content)
        lines, first = self._start()
        self._reader = csv.reader(chain([first], lines), strict=True)
        try:
            self.header = [name.strip() for name in next(self._reader)]
        except csv.Error as error:
            raise self._unreadable(self.header_line, error) from None
        self._offset = self.header_line - 1

    def chunks(self) -> Iterator[Chunk]:
        width = len(self.header)
        while True:
            before = self._offset + self._reader.line_num
            rows: list[list[str]] = []
            try:
                for row in self._reader:
                    rows.append(row)
                    if len(rows) == CHUNK_ROWS:
                        break
            except csv.Error as error:
                raise self._unreadable(before + 1 + sum(map(_height, rows)), error) from None
            if not rows:
                return
            yield self._chunk(before, rows, width)

    def _chunk(self, before: int, rows: list[list[str]], width: int) -> Chunk:
        self.last_is_short = len(rows[-1]) < width
        after = self._offset + self._reader.line_num
        if after - before == len(rows) and set(map(len, rows)) == {width}:
            self.rows += len(rows)
            return range(before + 1, after + 1), list(rows)
        lines, kept = [], list[Row]()
        line = before + 1
        for row in rows:
            if row:
                lines.append(line)
                kept.append(row if len(row) == width else _ragged(len(row), width))
            line += _height(row)
        self.rows += len(kept)
        return lines, kept

    def _unreadable(self, line: int, error: csv.Error) -> UsageError:
        return UsageError(
            f"{self.content.name} line {line} is not csv ({error}). "
            "Correct it: a quotation mark that is never closed swallows all that follows."
        )


class JsonlSource(Source):
    """One object per line; the header is every key that occurs in the file."""

    def __init__(self, content: Content) -> None:
        super().__init__(content)
        keys: set[str] = set()
        for _, line in self._lines():
            row = _parse(line)
            if isinstance(row, dict):
                keys.update(row)
        known = [name for name in COLUMNS if name in keys]
        self.header = known + sorted(keys.difference(known))

    def chunks(self) -> Iterator[Chunk]:
        lines, rows = [], list[Row]()
        for number, line in self._lines():
            lines.append(number)
            row = _parse(line)
            self.last_is_short = isinstance(row, str)
            rows.append(row if isinstance(row, str) else [_cell(row.get(name)) for name in self.header])
            if len(rows) == CHUNK_ROWS:
                self.rows += len(rows)
                yield lines, rows
                lines, rows = [], []
        if rows:
            self.rows += len(rows)
            yield lines, rows

    def _lines(self) -> Iterator[tuple[int, str]]:
        lines, first = self._start()
        for number, line in enumerate(chain([first], lines), self.header_line):
            if line.strip():
                yield number, line


def open_rows(content: Content) -> Source:
    """The rows of *content*. Raises UsageError where it is neither csv nor jsonl."""
    probe = Source(content)
    _, first = probe._start()
    opening = first.lstrip()[:1]
    if opening == "[":
        raise UsageError(
            f"{content.name} line {probe.header_line} opens a JSON array, but one object per line is expected (jsonl). "
            "Write each element on a line of its own, without the brackets."
        )
    if not first and not content.broken:
        raise UsageError(f"{content.name} holds comments only. Add a line of column names and one line per request.")
    return JsonlSource(content) if opening == "{" else CsvSource(content)


def _height(row: list[str]) -> int:
    """Lines that a row takes: a quoted cell may hold line ends."""
    return 1 + sum(len(cell.splitlines()) - 1 for cell in row if "\n" in cell or "\r" in cell)


def _ragged(fields: int, width: int) -> str:
    return f"{fields} field{'s' if fields > 1 else ''}, but the header names {width}"


def _parse(line: str) -> dict[str, object] | str:
    """The object on a line, its numbers with all their digits; or why there is none."""
    try:
        row = json.loads(line, parse_float=Decimal, parse_constant=Decimal)
    except (ValueError, ArithmeticError, RecursionError):
        return "this is not a JSON object"
    return row if isinstance(row, dict) else "this is not a JSON object"


def _cell(value: object) -> str:
    """A JSON value as the text that a csv cell would have."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | list | dict):
        return json.dumps(value, default=float)
    return str(value)
