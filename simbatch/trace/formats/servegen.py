"""ServeGen (alibaba/ServeGen): a client is a rate over time and a distribution of lengths; requests are drawn.

`…-trace.csv` has no names: start of a window (s), requests per second, coefficient of variation of
the gaps, the distribution fitted to them and its two parameters. `…-dataset.json` beside it has, for
spans of hours, how often each length occurs. Gaps are drawn with the fitted shape, scaled so that
their mean is that of the window's rate; prompt and output are drawn apart, since the data keep no
correlation. The same seed draws the same requests.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from simbatch.errors import UsageError
from simbatch.trace.container import Content, read_content
from simbatch.trace.draws import generator
from simbatch.trace.formats.base import Format
from simbatch.trace.rows import CHUNK_ROWS, Chunk, Row, Source

_LINE = re.compile(r"\d+,[\d.e+-]+,[\d.e+-]+,[A-Za-z]*,[\d.e+-]+,[\d.e+-]+\s*")
_NAMES = ("input_tokens", "output_tokens")
CLIENT = Format(
    "ServeGen client",
    frozenset(),
    {"arrival_s": "arrival_s", "prompt_tokens": "input_tokens", "output_tokens": "output_tokens"},
    note="its requests are drawn from rates and lengths that were measured, prompt and output apart",
)
Lengths = dict[str, tuple[list[int], list[float]]]


def is_client(content: Content) -> bool:
    """Does *content* hold the windows of a client?"""
    lines = content.lines()
    return all(_LINE.fullmatch(next(lines, "")) for _ in range(2))


class ClientSource(Source):
    """The requests of a client, drawn with *seed*."""

    def __init__(self, content: Content, seed: int) -> None:
        super().__init__(content)
        self.header_line = 1
        self.format = CLIENT
        self.header = ["arrival_s", *_NAMES]
        self._lengths = _read_lengths(content)
        self._random = generator(seed, "sample")

    def chunks(self) -> Iterator[Chunk]:
        windows = list(self._windows())
        lines, rows = list[int](), list[Row]()
        for place, (line, start_s, rate, name, shape) in enumerate(windows):
            end_s = windows[place + 1][1] if place + 1 < len(windows) else start_s + 600
            if rate == 0 or not name:
                continue
            lengths = self._at(start_s)
            if lengths is None:
                raise self._wrong(line, f"there are requests at {start_s} s, but no lengths at or before it")
            times = self._times(line, start_s, end_s, rate, name, shape)
            drawn = [self._random.choice(values, len(times), p=shares).tolist() for values, shares in lengths]
            for time, prompt, output in zip(times, *drawn, strict=True):
                lines.append(line)
                rows.append([f"{time:.9f}", str(prompt), str(output)])
        self.rows = len(rows)
        for start in range(0, len(rows), CHUNK_ROWS):
            yield lines[start : start + CHUNK_ROWS], rows[start : start + CHUNK_ROWS]

    def _windows(self) -> Iterator[tuple[int, int, float, str, float]]:
        """Line, start, rate, distribution and shape of each window."""
        before = -1
        for line, text in enumerate(self.content.lines(), 1):
            if not text.strip():
                continue
            if not _LINE.fullmatch(text):
                raise self._wrong(line, "a window of a client has a start, a rate, a variation, a name and two numbers")
            start, rate, _, name, shape, _ = text.strip().split(",")
            if int(start) <= before:
                raise self._wrong(line, f"a window starts at {start} s, but the one before at {before} s")
            before = int(start)
            try:
                yield line, before, float(rate), name, float(shape)
            except ValueError:
                raise self._wrong(line, f"{rate} or {shape} is no number") from None

    def _times(self, line: int, start_s: int, end_s: int, rate: float, name: str, shape: float) -> list[float]:
        """Arrivals in a window, in seconds."""
        if name not in ("Gamma", "Weibull") or not shape > 0 or not rate > 0:
            raise self._wrong(line, f"gaps of {name!r} with shape {shape:g} at {rate:g} requests per second")
        times: list[float] = []
        now = float(start_s)
        mean = shape if name == "Gamma" else math.gamma(1 + 1 / shape)
        while now < end_s:
            count = 64 + int(rate * (end_s - start_s))
            gaps = self._random.gamma(shape, size=count) if name == "Gamma" else self._random.weibull(shape, size=count)
            sums = now + np.cumsum(gaps / (mean * rate))
            times += sums[sums < end_s].tolist()
            now = float(sums[-1])
        return times

    def _at(self, start_s: int) -> list[tuple[list[int], list[float]]] | None:
        """Prompt and output lengths, and how often each occurs, at a time."""
        found = [at for at in self._lengths if at <= start_s]
        return [self._lengths[max(found)][name] for name in _NAMES] if found else None

    def _wrong(self, line: int, what: str) -> UsageError:
        return UsageError(f"{self.content.name} line {line}: {what}. Fetch the client's two files again.")


def _read_lengths(content: Content) -> dict[int, Lengths]:
    """Lengths by the second from which they hold, from the file beside the client's windows."""
    path = content.path
    stem = path.name.removesuffix(".gz").removesuffix("trace.csv")
    beside = [path.with_name(stem + ending) for ending in ("dataset.json", "dataset.json.gz")]
    found = next((place for place in beside if stem != path.name and place.is_file()), None)
    if found is None:
        raise UsageError(
            f"{content.name} is a client of ServeGen: rates over time, without lengths. "
            "Put its …-dataset.json beside it, under the same beginning of the name as its …-trace.csv."
        )
    return _parse_lengths(found)


def _parse_lengths(path: Path) -> dict[int, Lengths]:
    content = read_content(path)
    result: dict[int, Lengths] = {}
    try:
        for start, fields in json.loads(content.data).items():
            lengths: Lengths = {}
            for name in _NAMES:
                shares = ast.literal_eval(fields[name])
                total = sum(shares.values())
                lengths[name] = ([int(value) for value in shares], [share / total for share in shares.values()])
            if all(values for values, _ in lengths.values()):
                result[int(start)] = lengths
    except (ValueError, TypeError, KeyError, AttributeError, SyntaxError, ZeroDivisionError, RecursionError) as error:
        raise UsageError(
            f"{content.name} does not hold the lengths of a ServeGen client ({type(error).__name__}: {error}). "
            "Fetch it again."
        ) from None
    return result
