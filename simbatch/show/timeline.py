"""A run as a timeline for Perfetto or `chrome://tracing`, in the trace-event format (JSON object form).

One slice per stretch of equal iterations, counters for batch, queue and KV memory, one track per
request with what it waited for. Its size follows requests, preemptions and rows, not tokens. Times are
microseconds, as the format has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from simbatch.facts import CAUSES, FINISHED, KV_SHARES, Facts, durations_ps, each_replica
from simbatch.show.reasons import SHORT
from simbatch.units import PS_PER_MS, PS_PER_US
from simbatch.waits import HELD_BACK, Waits, has_waits, stays_of, waits

if TYPE_CHECKING:
    from simbatch.result import Result

_REQUESTS, _ENGINE = 1, 2
"""Process ids of the groups of tracks; replicas follow the first engine."""


def trace_events(result: Result) -> dict[str, Any]:
    """The whole timeline as one JSON object. Runs saved before waits were recorded show them as queued."""
    facts = result.facts
    engines = [
        event
        for number, replica in enumerate(each_replica(facts))
        for event in _stretches(replica, _ENGINE + number, facts.ids)
    ]
    return {
        "displayTimeUnit": "ms",
        "otherData": {"simbatch": str(result.config.get("simbatch")), "system": str(result.config.get("system"))},
        "traceEvents": [*_names(facts.replicas), *engines, *_requests(facts)],
    }


def _names(replicas: int) -> Iterator[dict[str, Any]]:
    engines = ["engine"] if replicas == 1 else [f"engine {replica}" for replica in range(replicas)]
    for process, name in ((_REQUESTS, "requests"), *enumerate(engines, start=_ENGINE)):
        yield {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": name}}
        if process != _REQUESTS:
            yield {"ph": "M", "name": "thread_name", "pid": process, "tid": 1, "args": {"name": "iterations"}}


def _stretches(facts: Facts, process: int, ids: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Slices and counters of the rows of one replica; after an idle gap the counters fall to nothing.

    *ids* are those of the whole run, which is what heads of queues are numbered by.
    """
    rows = {name: column.tolist() for name, column in facts.rows.items()}
    lasts = durations_ps(facts.rows).tolist()
    nothing = dict.fromkeys(KV_SHARES, 0) | {"free": facts.capacity_tokens}
    heads = rows.get("head", [-1] * len(lasts))
    until = -1
    for i, start in enumerate(rows["start_ps"]):
        if 0 <= until < start:
            yield from _counters(process, until, 0, 0, nothing)
        until = start + lasts[i]
        kind = "mixed" if rows["prefill_tokens"][i] else "decode"
        held_back = {"held back by": CAUSES[rows["cause"][i]]} if rows["cause"][i] else {}
        yield {
            "ph": "X",
            "name": f"{kind} x {rows['iterations'][i]}" if rows["iterations"][i] > 1 else kind,
            "cat": kind,
            "pid": process,
            "tid": 1,
            "ts": start / PS_PER_US,
            "dur": lasts[i] / PS_PER_US,
            "args": {
                "iterations": rows["iterations"][i],
                "tokens": rows["tokens"][i],
                "prefill_tokens": rows["prefill_tokens"][i],
                "context_tokens": rows["context_tokens"][i],
                **({"head of the queue": str(ids[heads[i]])} if heads[i] >= 0 else {}),
                **held_back,
            },
        }
        kv = {name: rows[name][i] for name in KV_SHARES}
        yield from _counters(process, start, rows["running"][i], rows["waiting"][i], kv)
    if until >= 0:
        yield from _counters(process, until, 0, 0, nothing)


def _counters(process: int, at_ps: int, running: int, waiting: int, kv: dict[str, int]) -> Iterator[dict[str, Any]]:
    same = {"ph": "C", "pid": process, "tid": 0, "ts": at_ps / PS_PER_US}
    yield {**same, "name": "requests", "args": {"running": running, "waiting": waiting}}
    yield {**same, "name": "KV tokens", "args": kv}


# -- requests ------------------------------------------------------------------------------------


def _requests(facts: Facts) -> Iterator[dict[str, Any]]:
    """A track per request: what it waited for, prompt, decode, preempted."""
    columns = {name: column.tolist() for name, column in facts.requests.items()}
    queued, outside = _queued(facts), _outside(facts)
    for i, id_ in enumerate(facts.ids):
        track = i + 1
        yield {"ph": "M", "name": "thread_name", "pid": _REQUESTS, "tid": track, "args": {"name": str(id_)}}
        arrived, scheduled, first, finished = (
            columns[name][i] for name in ("arrival_ps", "first_scheduled_ps", "first_token_ps", "finished_ps")
        )
        about = {
            "prompt_tokens": columns["prompt_tokens"][i],
            "output_tokens": columns["output_tokens"][i],
            "preemptions": columns["preemptions"][i],
            "finished": columns["status"][i] == FINISHED,
        }
        slices = [
            *queued.get(i, [("queued", arrived, scheduled, {})]),
            *_without("prompt", scheduled, first, outside.get(i, [])),
            *_without("decode", first, finished, outside.get(i, [])),
            *(("preempted", out, back, {}) for out, back in outside.get(i, [])),
        ]
        for name, begin, end, more in slices:
            if begin >= 0 and end > begin:
                yield {
                    "ph": "X",
                    "name": name,
                    "cat": "request",
                    "pid": _REQUESTS,
                    "tid": track,
                    "ts": begin / PS_PER_US,
                    "dur": (end - begin) / PS_PER_US,
                    "args": {**about, **more},
                }


Slice = tuple[str, int, int, dict[str, Any]]
"""(name, begin, end, what more there is to say)"""


def _queued(facts: Facts) -> dict[int, list[Slice]]:
    """Slices of each finished request until it first runs."""
    if not has_waits(facts):
        return {}
    found = waits(facts)
    first = facts.requests["first_scheduled_ps"][found.request].tolist()
    arrived = facts.requests["arrival_ps"][found.request].tolist()
    seen, head_since = found.seen_ps.tolist(), found.head_since_ps.tolist()
    slices: dict[int, list[Slice]] = {}
    for row, i in enumerate(found.request.tolist()):
        at_head = first[row] if head_since[row] < 0 else head_since[row]
        behind, held = _shares(found, found.behind_ps, row), _shares(found, found.ps, row)
        in_engine = arrived[row] + facts.frontend_delay_ps
        slices[i] = [
            (SHORT["frontend"], arrived[row], in_engine, {}),
            ("waits for the next iteration", in_engine, seen[row], {}),
            (f"queued behind others{_most(behind)}", seen[row], at_head, behind),
            (f"first in the queue{_most(held)}", at_head, first[row], held),
        ]
    return slices


def _shares(found: Waits, parts: dict[str, Any], row: int) -> dict[str, Any]:
    """Milliseconds by what held the head of the queue back."""
    return {f"{SHORT[name]} (ms)": int(parts[name][row]) / PS_PER_MS for name in HELD_BACK if parts[name][row]}


def _most(shares: dict[str, Any]) -> str:
    return f": {max(shares, key=lambda name: shares[name]).removesuffix(' (ms)')}" if shares else ""


def _outside(facts: Facts) -> dict[int, list[tuple[int, int]]]:
    """When each finished request was preempted, in order of time."""
    if not has_waits(facts):
        return {}
    stays = {name: column.tolist() for name, column in stays_of(facts).items()}
    outside: dict[int, list[tuple[int, int]]] = {}
    for i, out, back in zip(stays["request"], stays["out_ps"], stays["back_ps"], strict=True):
        outside.setdefault(i, []).append((out, back))
    return {i: sorted(times) for i, times in outside.items()}


def _without(name: str, begin: int, end: int, outside: list[tuple[int, int]]) -> Iterator[Slice]:
    """Slices from *begin* to *end*, the times *outside* left out."""
    if begin < 0 or end < 0:
        return
    at = begin
    for out, back in outside:
        yield name, at, min(max(out, at), end), {}
        at = max(at, min(back, end))
    yield name, at, end, {}
