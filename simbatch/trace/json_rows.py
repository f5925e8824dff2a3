"""Rows out of JSON: an object per line, or the result file of a benchmark run.

Numbers keep all their digits: they are handed on as the text that stood in the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from itertools import chain
from typing import Any

from simbatch.checks import shown
from simbatch.errors import UsageError
from simbatch.trace.columns import COLUMNS
from simbatch.trace.container import Content
from simbatch.trace.formats import OURS, recognise
from simbatch.trace.formats.records import RUN, runs
from simbatch.trace.rows import CHUNK_ROWS, Chunk, Row, Source

_NO_OBJECT = "this is not a JSON object"


class JsonlSource(Source):
    """One object per line; the header is every key that occurs in the file."""

    def __init__(self, content: Content) -> None:
        super().__init__(content)
        keys: set[str] = set()
        first: dict[str, Any] = {}
        for _, line in self._lines():
            row = parse(line)
            if isinstance(row, dict):
                first = first or row
                keys.update(row)
        self.format = recognise(keys, first) or OURS
        if self.format.take_apart is not None:
            keys = set(self.format.columns.values()) & keys
            for _, row in self._objects():
                keys.update(row if isinstance(row, dict) else ())
            keys = keys or set(self.format.columns.values())
        known = [name for name in COLUMNS if name in keys]
        self.header = known + sorted(keys.difference(known))

    def chunks(self) -> Iterator[Chunk]:
        lines, rows = [], list[Row]()
        for number, row in self._objects():
            lines.append(number)
            self.last_is_short = row == _NO_OBJECT
            rows.append(row if isinstance(row, str) else [_cell(row.get(name)) for name in self.header])
            if len(rows) == CHUNK_ROWS:
                self.rows += len(rows)
                yield lines, rows
                lines, rows = [], []
        if rows:
            self.rows += len(rows)
            yield lines, rows

    def _objects(self) -> Iterator[tuple[int, dict[str, Any] | str]]:
        take_apart = self.format.take_apart
        for number, line in self._lines():
            row = parse(line)
            yield number, take_apart(row) if take_apart is not None and isinstance(row, dict) else row

    def _lines(self) -> Iterator[tuple[int, str]]:
        lines, first = self.start()
        for number, line in enumerate(chain([first], lines), self.header_line):
            if line.strip():
                yield number, line


class RunSource(Source):
    """The requests of the one run that a result file of vllm bench or SGLang holds."""

    def __init__(self, content: Content, run: dict[str, Any], line: int) -> None:
        super().__init__(content)
        self.header_line = line
        self.format = RUN
        found = runs(run)
        if isinstance(found, str):
            raise UsageError(f"{self.where}: {found}. Give a file with both, of the same run.")
        self._requests = found
        self.header = [name for name in RUN.columns.values() if run.get(name)]

    def chunks(self) -> Iterator[Chunk]:
        for start in range(0, len(self._requests), CHUNK_ROWS):
            rows = self._requests[start : start + CHUNK_ROWS]
            self.rows += len(rows)
            cells = [row if isinstance(row, str) else [_cell(row.get(name)) for name in self.header] for row in rows]
            yield [self.header_line] * len(rows), list[Row](cells)


def parse(line: str) -> dict[str, Any] | str:
    """The object on a line, its numbers with all their digits; or why there is none."""
    try:
        row = json.loads(line, parse_float=Decimal, parse_constant=Decimal, object_pairs_hook=_once_each)
    except TwiceError as twice:
        return f"the key {shown(twice.args[0])} stands twice in an object"
    except (ValueError, ArithmeticError, RecursionError):
        return _NO_OBJECT
    return row if isinstance(row, dict) else _NO_OBJECT


class TwiceError(ValueError):
    """A key that stands twice in one object."""


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON. Readers differ in which value of a key they take, so a second one is no value at all."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise TwiceError(next(key for key in keys if keys.count(key) > 1))
    return found


def find_run(content: Content) -> RunSource | None:
    """The one run in a result file: an object with lists of lengths, on one line or over many.

    None where the file holds something else. Raises UsageError where it holds several runs.
    """
    source = Source(content)
    lines, first = source.start()
    run = parse(first)
    if isinstance(run, str) and '"input_lens"' in (text := first + "".join(lines)):
        run = parse(text)
        lines = iter(())
    if isinstance(run, str) or not RUN.fits(run, {}):
        return None
    more = sum(1 for line in lines if line.strip())
    if more:
        raise UsageError(
            f"{content.name} holds {more + 1} runs, one a line. Keep the line of one run in a file of its own."
        )
    return RunSource(content, run, source.header_line)


def _cell(value: object) -> str:
    """A JSON value as the text that a csv cell would have."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | list | dict):
        return json.dumps(value, default=float)
    return str(value)
