"""Rows of text cells out of csv and jsonl, with the line each one stands on.

The format is told by the content: a file whose first line that is not a comment opens with a brace
is jsonl, anything else is csv (or its kin with tabs or semicolons). Comments stand before the first
row only, so that a label may start with a hash sign. A line that is no row comes out as the reason,
and the reader counts those.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from typing import TYPE_CHECKING

from simbatch.errors import UsageError
from simbatch.trace.container import Content
from simbatch.trace.formats import OURS, Format, recognise

if TYPE_CHECKING:
    import _csv

CHUNK_ROWS = 8192
_DELIMITERS = {",": "commas", "\t": "tabs", ";": "semicolons"}
"""What may part the columns of a csv file: the first of them that its header has."""
Row = list[str] | str
"""Cells in the order of the header, or why the line is no row."""
Chunk = tuple[Sequence[int], list[Row]]


class Source:
    """A file as a header and chunks of rows; made by `simbatch.trace.source.open_rows`."""

    def __init__(self, content: Content) -> None:
        self.content = content
        self.comments: list[str] = []
        self.header: list[str] = []
        self.header_line = 0
        self.format: Format = OURS
        """Ours also where no format is known: the columns then have to be mapped."""
        self.rows = 0
        """Rows given out so far, those that are none included."""
        self.last_is_short = False
        """The last row given out lacks its end, as where a file breaks off."""

    @property
    def where(self) -> str:
        """Opens a message about the header."""
        return f"{self.content.name} line {self.header_line}"

    def chunks(self) -> Iterator[Chunk]:
        raise NotImplementedError

    def start(self) -> tuple[Iterator[str], str]:
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
    """The first row names the columns; they are parted by commas, or by what stands there instead of any."""

    def __init__(self, content: Content) -> None:
        super().__init__(content)
        self._reader = self._open()
        try:
            self.header = [name.strip() for name in next(self._reader)]
        except csv.Error as error:
            raise self._unreadable(self.header_line, error) from None
        self._offset = self.header_line - 1
        self.format = recognise(self.header, {}) or OURS

    def _open(self) -> _csv.Reader:
        lines, first = self.start()
        self.parted_by = next((mark for mark in _DELIMITERS if mark in first), ",")
        return csv.reader(chain([first], lines), strict=True, delimiter=self.parted_by)

    @property
    def where(self) -> str:
        return super().where + self._delimiter(", read as parted by {}")

    def _delimiter(self, text: str) -> str:
        """*text* with the name of what parts the columns in it, where that is not the usual comma."""
        return "" if self.parted_by == "," else text.format(_DELIMITERS[self.parted_by])

    def chunks(self) -> Iterator[Chunk]:
        width = len(self.header)
        while True:
            before = self._offset + self._reader.line_num
            try:
                rows = list(islice(self._reader, CHUNK_ROWS))
            except csv.Error as error:
                raise self._unreadable(self._line_of_error(), error) from None
            if not rows:
                return
            yield self._chunk(before, rows, width)

    def _line_of_error(self) -> int:
        """Where the row begins that cannot be read: the whole file again, one row at a time."""
        reader = self._open()
        line = self._offset
        with suppress(csv.Error):
            for _ in reader:
                line = self._offset + reader.line_num
        return line + 1

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
                kept.append(row if len(row) == width else self._ragged(len(row), width))
            line += _height(row)
        self.rows += len(kept)
        return lines, kept

    def _ragged(self, fields: int, width: int) -> str:
        parted = self._delimiter(" parted by {}")
        return f"{fields} field{'s' if fields > 1 else ''}{parted}, but the header names {width}"

    def _unreadable(self, line: int, error: csv.Error) -> UsageError:
        if "field larger" in str(error):
            return UsageError(
                f"{self.content.name} line {line} has a field of more than {csv.field_size_limit():,} characters, "
                "which csv readers do not take. Close the quotation mark that may be open there, or write jsonl."
            )
        return UsageError(
            f"{self.content.name} line {line} is not csv ({error}). "
            "Correct it: a quotation mark that is never closed swallows all that follows."
        )


def _height(row: list[str]) -> int:
    """Lines that a row takes: a quoted cell may hold line ends."""
    return 1 + sum(len(cell.splitlines()) - 1 for cell in row if "\n" in cell or "\r" in cell)
