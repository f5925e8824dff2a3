"""A trace as requests: made when they are asked for, in chunks, so that a million of them need no memory."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import TYPE_CHECKING

from simbatch.request import Request
from simbatch.trace.columns import NOT_GIVEN

if TYPE_CHECKING:
    from simbatch.trace.trace import Trace

_CHUNK_ROWS = 4096


def requests_of(trace: Trace, lo: int, hi: int) -> Iterator[Request]:
    """The requests of rows *lo* to *hi* (not included) of *trace*; everything in them is plain Python."""
    for start in range(lo, hi, _CHUNK_ROWS):
        rows = slice(start, min(start + _CHUNK_ROWS, hi))
        index = range(rows.start, rows.stop)
        yield from map(
            Request,
            index,
            map(str, index) if trace.ids is None else trace.ids[rows],
            repeat(0) if trace.arrival_ps is None else trace.arrival_ps[rows].tolist(),
            trace.prompt_tokens[rows].tolist(),
            trace.output_tokens[rows].tolist(),
            repeat(None)
            if trace.max_tokens is None
            else [None if most == NOT_GIVEN else most for most in trace.max_tokens[rows].tolist()],
            repeat(0) if trace.priority is None else trace.priority[rows].tolist(),
            map(trace.segments, index) if trace.prefix else repeat(None),
            repeat(-1) if trace.sample_of is None else trace.sample_of[rows].tolist(),
        )
