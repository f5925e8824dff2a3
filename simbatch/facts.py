"""What a run leaves behind: the record that every metric is a function of.

One entry per request and one per stretch of equal iterations (a row), as flat integer arrays in
picoseconds and tokens. Iteration j of a row lasts ``first_ps + j * increment_ps``, so a row stands
for thousands of iterations and still gives each of them exactly.
The invariant: nothing here is rounded, estimated or averaged, except the five ``*_mean`` columns,
which are exact time-weighted means over their row.
Metrics read this in `simbatch.metrics`; its laws are checked in `simbatch.conservation`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]

STATUSES = ("unfinished", "finished", "refused")
"""What `status` counts from 0."""
UNFINISHED, FINISHED, REFUSED = range(3)
CAUSES = ("nothing", "kv", "max_num_seqs", "token_budget")
"""Why the head of the queue was held back: what `cause` counts from 0."""
KV_SHARES = ("live", "reserved", "internal", "external", "free")
"""The parts that KV memory splits into; in every row they sum to the capacity."""

REQUEST_TIMES = ("arrival_ps", "first_scheduled_ps", "first_token_ps", "finished_ps")
REQUEST_COLUMNS = (
    *REQUEST_TIMES,
    "prompt_tokens",
    "output_tokens",
    "preemptions",
    "cached_tokens",
    "recomputed_tokens",
    "status",
)
ROW_COUNTS = ("iterations", "running", "waiting", "tokens", "sequences", "prefill_tokens", "context_tokens", "gaps")
ROW_TIMES = ("start_ps", "first_ps", "increment_ps")
ROW_COLUMNS = (*ROW_TIMES, *ROW_COUNTS, *KV_SHARES, "cause", "head", *(f"{share}_mean" for share in KV_SHARES))
GAP_COLUMNS = ("end_ps", "gap_ps", "count")
STAY_COLUMNS = ("request", "out_ps", "back_ps")


@dataclass
class Facts:
    """What one run left behind. Times in picoseconds, -1 for what never happened; lengths in tokens."""

    requests: dict[str, Ints]
    """One entry per request, `REQUEST_COLUMNS`. `output_tokens` counts those generated."""
    ids: Sequence[str]
    rows: dict[str, NDArray[Any]]
    """One entry per stretch of equal iterations in order of time, `ROW_COLUMNS`.

    `gaps` counts sequences that emit a token at the end of each iteration of the row and also
    emitted one at its start. `context_tokens` is that of the first iteration, the KV shares those
    at its start. `cause` is why `head`, the request that was first in the queue once the plan was made
    (its place in `requests`, -1: nobody), was held back; runs saved before there was a `head` lack it."""
    extra_gaps: dict[str, Ints]
    """Inter-token gaps that rows do not give, `GAP_COLUMNS`. A negative `count` cancels gaps counted in a row."""
    capacity_tokens: int
    peak_held_tokens: int
    iterations: int
    events: int
    """SimPy events that the run took."""
    wall_s: float
    """Time that the engine took on the clock of whoever waited for it."""
    config: dict[str, Any]
    stays: dict[str, Ints] | None = None
    """Stays outside, `STAY_COLUMNS`, one per preemption: `request` is out from the start of the iteration that it
    was thrown out of to that of the one that it is in again. None in runs saved before they were kept."""
    frontend_delay_ps: int = 0
    """From a client's sending to the engine's seeing: `arrival_ps` is the former, so latencies contain it."""
    gpu_memory_share: float | None = None
    """KV memory as a share of GPU memory; None where no GPU is named."""
    price_usd_per_hour: float | None = None
    """All GPUs together."""
    warnings: list[str] = field(default_factory=list)
    planned_ahead: bool = False
    """Were plans made while the batch before ran? Rows then do not tell when an arrival was first seen."""
    replicas: int = 1
    """Engines that served. With several, requests and rows have a column `replica` (-1: sent to none), rows of
    different replicas overlap, and `capacity_tokens` and `peak_held_tokens` are those of one of them."""
    decisions: list[dict[str, Any]] | None = None
    """One entry per iteration with the fields of the golden logs; only of runs taken step by step."""


def as_the_engine_saw(facts: Facts) -> Facts:
    """The same with the times at which the engine saw its requests as their arrivals."""
    if not facts.frontend_delay_ps:
        return facts
    seen = {"arrival_ps": facts.requests["arrival_ps"] + facts.frontend_delay_ps}
    return replace(facts, requests={**facts.requests, **seen}, frontend_delay_ps=0)


def each_replica(facts: Facts) -> Iterator[Facts]:
    """The requests and rows of each replica, as if it had been alone; single values stay those of the run."""
    if facts.replicas == 1:
        yield facts
        return
    for replica in range(facts.replicas):
        asked, ran = facts.requests["replica"] == replica, facts.rows["replica"] == replica
        yield replace(
            facts,
            requests={name: column[asked] for name, column in facts.requests.items()},
            ids=[facts.ids[i] for i in np.flatnonzero(asked).tolist()],
            rows={name: column[ran] for name, column in facts.rows.items()},
            replicas=1,
        )


def facts_from(
    requests: Mapping[str, ArrayLike],
    rows: Mapping[str, ArrayLike],
    *,
    extra_gaps: Iterable[tuple[int, int, int]] = (),
    stays: Iterable[tuple[int, int, int]] | None = None,
    capacity_tokens: int = 0,
    **others: Any,
) -> Facts:
    """Facts by hand: the columns that are given, and nothing having happened in those that are not.

    For stories and tests. *extra_gaps* are (end_ps, gap_ps, count), *stays* (request, out_ps, back_ps);
    what is not held is free; the mean parts of KV memory are those at the start of a row unless given.
    """
    asked = _columns(REQUEST_COLUMNS, requests, unset=dict.fromkeys(REQUEST_TIMES[1:], -1))
    asked["status"] = asked["status"].astype(np.int8)
    ran = _columns(ROW_COLUMNS, rows, unset={"iterations": 1, "head": -1})
    if "free" not in rows:
        ran["free"] = capacity_tokens - np.sum([ran[name] for name in KV_SHARES[:-1]], axis=0)
    for name in KV_SHARES:
        ran[f"{name}_mean"] = np.asarray(rows.get(f"{name}_mean", ran[name]), dtype=np.float64)
    held = capacity_tokens - ran["free"] - ran["external"]
    defaults: dict[str, Any] = {
        "ids": [str(i) for i in range(asked["status"].size)],
        "peak_held_tokens": int(held.max()) if held.size else 0,
        "iterations": int(ran["iterations"].sum()),
        "events": 0,
        "wall_s": 0.0,
        "config": {},
    }
    return Facts(
        requests=asked,
        rows=ran,
        extra_gaps=_entries(GAP_COLUMNS, extra_gaps),
        stays=None if stays is None else _entries(STAY_COLUMNS, stays),
        capacity_tokens=capacity_tokens,
        **(defaults | others),
    )


def _columns(names: Iterable[str], given: Mapping[str, ArrayLike], unset: Mapping[str, int]) -> dict[str, Ints]:
    size = max((np.asarray(column).size for column in given.values()), default=0)
    whole = {name: np.full(size, unset.get(name, 0), dtype=np.int64) for name in names}
    return whole | {name: np.asarray(column, dtype=np.int64) for name, column in given.items()}


def _entries(names: tuple[str, ...], given: Iterable[tuple[int, ...]]) -> dict[str, Ints]:
    table = np.array(list(given), dtype=np.int64).reshape(-1, len(names))
    return {name: table[:, i] for i, name in enumerate(names)}


def offsets_ps(first_ps: Ints, increment_ps: Ints, iterations: Ints) -> Ints:
    """From the start of rows to the end of their first *iterations* iterations.

    The products may leave 64 bits on the way; what they sum to does not, and integer arithmetic
    that wraps around still ends at the right sum.
    """
    # Of k and k - 1 one is even; halving that one keeps k (k - 1) / 2 whole.
    odd = iterations & 1
    triangle: Ints = (iterations >> (1 - odd)) * ((iterations - 1) >> odd)
    sums: Ints = iterations * first_ps + triangle * increment_ps
    return sums


def durations_ps(rows: dict[str, NDArray[Any]]) -> Ints:
    """How long each row lasts, all its iterations together."""
    return offsets_ps(rows["first_ps"], rows["increment_ps"], rows["iterations"])


def next_start_ps(rows: dict[str, NDArray[Any]], instants_ps: Ints) -> Ints:
    """The start of the first iteration at or after each instant; -1 where there is none. Of one replica's rows."""
    starts = rows["start_ps"]
    if not starts.size:
        return np.full(instants_ps.size, -1, dtype=np.int64)
    row = np.searchsorted(starts, instants_ps, side="right") - 1
    within = np.maximum(row, 0)
    before = iterations_started(rows, within, instants_ps)
    inside = (row >= 0) & (before < rows["iterations"][within])
    start = starts[within] + offsets_ps(rows["first_ps"][within], rows["increment_ps"][within], before)
    return np.where(inside, start, np.append(starts, -1)[row + 1])


def iterations_started(rows: dict[str, NDArray[Any]], row: Ints, instant_ps: Ints) -> Ints:
    """Iterations of *row* (an index per instant) that start before *instant_ps*; at most all of them."""
    first, increment = rows["first_ps"][row], rows["increment_ps"][row]
    wanted = instant_ps - rows["start_ps"][row]
    low: Ints = np.zeros_like(wanted)
    high: Ints = rows["iterations"][row].copy()
    while (open_ := low < high).any():
        middle = (low + high) >> 1
        reached = offsets_ps(first, increment, middle) >= wanted
        high = np.where(open_ & reached, middle, high)
        low = np.where(open_ & ~reached, middle + 1, low)
    return low
