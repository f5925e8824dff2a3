"""A run as a timeline for Perfetto or `chrome://tracing`, in the trace-event format (JSON object form).

One slice per stretch of equal iterations, counters for batch, queue and KV memory, one track per
request. Its size follows requests and rows, not tokens. Times are microseconds, as the format has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from simbatch.facts import CAUSES, FINISHED, KV_SHARES, durations_ps
from simbatch.units import PS_PER_US

if TYPE_CHECKING:
    from simbatch.result import Result

_ENGINE, _REQUESTS = 1, 2
"""Process ids of the two groups of tracks."""


def trace_events(result: Result) -> dict[str, Any]:
    """The whole timeline as one JSON object."""
    return {
        "displayTimeUnit": "ms",
        "otherData": {"simbatch": str(result.config.get("simbatch")), "system": str(result.config.get("system"))},
        "traceEvents": [*_names(), *_stretches(result), *_requests(result)],
    }


def _names() -> Iterator[dict[str, Any]]:
    for process, name in ((_ENGINE, "engine"), (_REQUESTS, "requests")):
        yield {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": name}}
    yield {"ph": "M", "name": "thread_name", "pid": _ENGINE, "tid": 1, "args": {"name": "iterations"}}


def _stretches(result: Result) -> Iterator[dict[str, Any]]:
    """Slices and counters of the rows; after an idle gap the counters fall to nothing."""
    rows = {name: column.tolist() for name, column in result.facts.rows.items()}
    lasts = durations_ps(result.facts.rows).tolist()
    capacity = result.facts.capacity_tokens
    until = -1
    for i, start in enumerate(rows["start_ps"]):
        if 0 <= until < start:
            yield from _counters(until, 0, 0, dict.fromkeys(KV_SHARES, 0) | {"free": capacity})
        until = start + lasts[i]
        kind = "mixed" if rows["prefill_tokens"][i] else "decode"
        yield {
            "ph": "X",
            "name": f"{kind} x {rows['iterations'][i]}" if rows["iterations"][i] > 1 else kind,
            "cat": kind,
            "pid": _ENGINE,
            "tid": 1,
            "ts": start / PS_PER_US,
            "dur": lasts[i] / PS_PER_US,
            "args": {
                "iterations": rows["iterations"][i],
                "tokens": rows["tokens"][i],
                "prefill_tokens": rows["prefill_tokens"][i],
                "context_tokens": rows["context_tokens"][i],
                "head of the queue held back by": CAUSES[rows["cause"][i]],
            },
        }
        kv = {name: rows[name][i] for name in KV_SHARES}
        yield from _counters(start, rows["running"][i], rows["waiting"][i], kv)
    if until >= 0:
        yield from _counters(until, 0, 0, dict.fromkeys(KV_SHARES, 0) | {"free": capacity})


def _counters(at_ps: int, running: int, waiting: int, kv: dict[str, int]) -> Iterator[dict[str, Any]]:
    same = {"ph": "C", "pid": _ENGINE, "tid": 0, "ts": at_ps / PS_PER_US}
    yield {**same, "name": "requests", "args": {"running": running, "waiting": waiting}}
    yield {**same, "name": "KV tokens", "args": kv}


def _requests(result: Result) -> Iterator[dict[str, Any]]:
    """A track per request: queued, prompt, decode."""
    facts = result.facts
    columns = {name: column.tolist() for name, column in facts.requests.items()}
    for i, id_ in enumerate(facts.ids):
        track = i + 1
        yield {"ph": "M", "name": "thread_name", "pid": _REQUESTS, "tid": track, "args": {"name": str(id_)}}
        times = [columns[name][i] for name in ("arrival_ps", "first_scheduled_ps", "first_token_ps", "finished_ps")]
        for name, begin, end in zip(("queued", "prompt", "decode"), times, times[1:], strict=False):
            if begin >= 0 and end > begin:
                yield {
                    "ph": "X",
                    "name": name,
                    "cat": "request",
                    "pid": _REQUESTS,
                    "tid": track,
                    "ts": begin / PS_PER_US,
                    "dur": (end - begin) / PS_PER_US,
                    "args": {
                        "prompt_tokens": columns["prompt_tokens"][i],
                        "output_tokens": columns["output_tokens"][i],
                        "preemptions": columns["preemptions"][i],
                        "finished": columns["status"][i] == FINISHED,
                    },
                }
