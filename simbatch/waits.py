"""Why each request took as long as it did: its latency split by reason, in whole picoseconds.

A request waits in front of the engine, and for the iteration in flight to end; then in the queue, as its head, held
back for a reason, or behind others; it runs; and it is outside while it is preempted. The invariant: the parts of a
request add up to its latency exactly. A wait for which the policy named no reason is a part of its own.
When a plan was made ahead (asynchronous scheduling) is told by nobody; that it knew of an arrival is told by how
many wait in its row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from simbatch.errors import UsageError
from simbatch.facts import CAUSES, FINISHED, REFUSED, Facts, Ints, as_the_engine_saw, durations_ps, next_start_ps

REASONS = (
    "frontend",
    "next_iteration",
    "kv",
    "max_num_seqs",
    "token_budget",
    "policy",
    "head_of_line",
    "preempted",
    "running",
)
"""Parts of a latency in order of time. From `kv` to `policy`: at the head of the queue; `policy` is a wait for which
no reason was named, in any place. `head_of_line`: behind others. The rest is not spent in the queue."""
HELD_BACK = CAUSES[1:]


@dataclass(frozen=True)
class Waits:
    """The latencies of all finished requests by reason. One entry per request in every array."""

    request: Ints
    """Places in `Facts.requests`."""
    latency_ps: Ints
    ps: dict[str, Ints]
    """For each of `REASONS`."""
    behind_ps: dict[str, Ints]
    """`head_of_line` by what held the head back meanwhile, for each of `HELD_BACK`."""
    seen_ps: Ints
    """When the first plan that knew of it took effect."""
    head_since_ps: Ints
    """Since when it was at the head of the queue without a break until it first ran; -1: it was not."""

    def by_cause_ps(self) -> dict[str, Ints]:
        """The same latencies with the time behind others counted under what held the head back meanwhile."""
        parts = {name: part for name, part in self.ps.items() if name != "head_of_line"}
        return {name: part + self.behind_ps[name] if name in self.behind_ps else part for name, part in parts.items()}


def waits(facts: Facts) -> Waits:
    """Split the latency of every request that finished; a delay in front of the engine is a part of its own.

    Raises UsageError for a run saved by a version that did not record what this needs.
    """
    if not has_waits(facts):
        raise UsageError(
            "the run was saved by a version that did not record who waited for what. "
            "Run it again with this version: config.json in its folder says what to repeat."
        )
    delay, facts = facts.frontend_delay_ps, as_the_engine_saw(facts)
    requests = facts.requests
    size = requests["status"].size
    done = requests["status"] == FINISHED
    outside, before = _stays(facts)
    queued, at_head = np.zeros((2, size, len(CAUSES)), dtype=np.int64)
    seen, head_since = requests["first_scheduled_ps"].copy(), np.full(size, -1, dtype=np.int64)
    for replica in range(facts.replicas):
        here, rows = done, facts.rows
        if facts.replicas > 1:
            here = done & (requests["replica"] == replica)
            rows = {name: column[facts.rows["replica"] == replica] for name, column in rows.items()}
        who = np.flatnonzero(here)
        if who.size:
            seen[who] = _seen_ps(facts, rows, who)
            head_since[who] = _head_since_ps(rows, who, seen[who], requests["first_scheduled_ps"][who])
            for some, begin, end in _in_queue(facts, who, seen, before):
                queued[some] += _held_back_ps(rows, end) - _held_back_ps(rows, begin)
                _add_as_head(at_head, rows, some, begin, end)
    who = np.flatnonzero(done)
    arrived, first, finished = (requests[name][who] for name in ("arrival_ps", "first_scheduled_ps", "finished_ps"))
    early = np.zeros(size, dtype=np.int64)
    np.add.at(early, before["request"], before["back_ps"] - before["out_ps"])
    known, behind = queued[who][:, 1:].sum(axis=1), (queued - at_head)[who]
    parts = {
        "frontend": np.full(who.size, delay),
        "next_iteration": seen[who] - arrived,
        **{name: at_head[who, code] for code, name in enumerate(CAUSES) if code},
        "policy": first - seen[who] - early[who] - known,
        "head_of_line": behind[:, 1:].sum(axis=1),
        "preempted": outside[who],
        "running": finished - first - (outside - early)[who],
    }
    return Waits(
        request=who,
        latency_ps=finished - arrived + delay,
        ps={name: parts[name] for name in REASONS},
        behind_ps={name: behind[:, code] for code, name in enumerate(CAUSES) if code},
        seen_ps=seen[who],
        head_since_ps=head_since[who],
    )


def has_waits(facts: Facts) -> bool:
    """Does the run have what waits are told from? Those saved by earlier versions do not."""
    return facts.stays is not None and "head" in facts.rows


def stays_of(facts: Facts) -> dict[str, Ints]:
    """The stays outside of requests that finished, those that never ended until the finish."""
    assert facts.stays is not None
    finished = facts.requests["finished_ps"]
    done = facts.requests["status"][facts.stays["request"]] == FINISHED
    request, out, back = (facts.stays[name][done] for name in ("request", "out_ps", "back_ps"))
    end = finished[request]
    # A last token may have been on the way: then it was thrown out as it finished.
    return {
        "request": request,
        "out_ps": np.minimum(out, end),
        "back_ps": np.where(back < 0, end, np.minimum(back, end)),
    }


def _stays(facts: Facts) -> tuple[Ints, dict[str, Ints]]:
    """(time outside of each request, the stays of those that were thrown out before they first ran)."""
    stays = stays_of(facts)
    outside = np.zeros(facts.requests["status"].size, dtype=np.int64)
    np.add.at(outside, stays["request"], stays["back_ps"] - stays["out_ps"])
    first = facts.requests["first_scheduled_ps"][stays["request"]]
    early = stays["out_ps"] < first
    return outside, {name: column[early] for name, column in stays.items()}


def _seen_ps(facts: Facts, rows: dict[str, Any], who: Ints) -> Ints:
    """When the first plan that knew of each of *who* took effect."""
    arrived, first = facts.requests["arrival_ps"][who], facts.requests["first_scheduled_ps"][who]
    seen = next_start_ps(rows, arrived)
    in_doubt = np.full(who.size, facts.planned_ahead)
    if (facts.requests["status"] == REFUSED).any():  # whoever a refusal makes come is there just after the plan
        in_doubt |= seen == arrived
    if in_doubt.any():
        unknown = in_doubt & ~_known_at(facts, rows, who, seen)
        seen = np.where(unknown, _or_never(next_start_ps(rows, seen + 1)), seen)
    return np.minimum(seen, first)


def _known_at(facts: Facts, rows: dict[str, Any], who: Ints, start: Ints) -> Ints:
    """Did the plan for the iteration at *start*, the first after the arrival of each of *who*, know of it?

    Nobody wrote down when it was made; but rows count who waits, and who arrived first was known first.
    """
    starts = rows["start_ps"]
    arrived, first = facts.requests["arrival_ps"][who], facts.requests["first_scheduled_ps"][who]
    older = _count(start, starts, "left") - _count(first, starts, "left")
    takes = np.searchsorted(starts, first[start < first])
    older -= np.bincount(takes, minlength=starts.size)
    stays = stays_of(facts)
    later = np.isin(stays["request"], who)
    later &= stays["out_ps"] >= facts.requests["first_scheduled_ps"][stays["request"]]
    outside = _count(stays["out_ps"][later], starts, "right") - _count(stays["back_ps"][later], starts, "right")
    known = rows["waiting"] - older - outside
    row = np.minimum(np.searchsorted(starts, start), starts.size - 1)
    waits = (starts[row] == start) & (first > start)
    order = np.lexsort((who, arrived, row, ~waits))[: int(waits.sum())]
    place = np.arange(order.size) - np.searchsorted(row[order], row[order])
    found = np.zeros(who.size, dtype=bool)
    found[order] = place < known[row[order]]
    return found


def _count(instants: Ints, until: Ints, side: Literal["left", "right"]) -> Ints:
    """How many of *instants* lie before each of *until* (side left), or not after it (right)."""
    return np.searchsorted(np.sort(instants), until, side=side)


def _or_never(instants: Ints) -> Ints:
    return np.where(instants < 0, np.iinfo(np.int64).max, instants)


def _head_since_ps(rows: dict[str, Any], who: Ints, seen: Ints, first: Ints) -> Ints:
    """Since when each of *who* was at the head without a break until it ran; -1 where another was last."""
    starts, head = rows["start_ps"], rows["head"]
    change = np.flatnonzero(np.diff(head, prepend=-2))
    row = np.searchsorted(starts, first, side="left") - 1
    was_head = (row >= 0) & (head[row] == who)
    begin = starts[change[np.searchsorted(change, row, side="right") - 1]]
    return np.where(was_head, np.maximum(begin, seen), -1)


def _in_queue(facts: Facts, who: Ints, seen: Ints, before: dict[str, Ints]) -> list[tuple[Ints, Ints, Ints]]:
    """(requests, begin, end) of times in the queue; each request at most once in each entry of the list."""
    first = facts.requests["first_scheduled_ps"]
    cut = np.isin(who, before["request"])
    whole = who[~cut]
    found = [(whole, seen[whole], first[whole])]
    for one in who[cut].tolist():
        at = int(seen[one])
        mine = before["request"] == one
        for out, back in sorted(zip(before["out_ps"][mine].tolist(), before["back_ps"][mine].tolist(), strict=True)):
            found.append(_piece(one, at, out))
            at = back
        found.append(_piece(one, at, int(first[one])))
    return found


def _piece(request: int, begin: int, end: int) -> tuple[Ints, Ints, Ints]:
    return np.array([request]), np.array([begin]), np.array([end])


def _held_back_ps(rows: dict[str, Any], instants: Ints) -> Ints:
    """Up to each instant, how long somebody was held back: a column for each of `CAUSES`."""
    starts, lasts, cause = rows["start_ps"], durations_ps(rows), rows["cause"]
    row = np.searchsorted(starts, instants, side="right") - 1
    within = np.maximum(row, 0)
    part = np.where(row < 0, 0, np.minimum(instants - starts[within], lasts[within]))
    found = np.zeros((instants.size, len(CAUSES)), dtype=np.int64)
    for code in range(len(CAUSES)):
        until = np.cumsum(np.where(cause == code, lasts, 0)) - np.where(cause == code, lasts, 0)
        found[:, code] = np.where(row < 0, 0, until[within]) + np.where(cause[within] == code, part, 0)
    return found


def _add_as_head(at_head: Ints, rows: dict[str, Any], who: Ints, begin: Ints, end: Ints) -> None:
    """Add to *at_head* how long each of *who* was at the head of the queue between *begin* and *end*, by cause."""
    size = at_head.shape[0]
    of_interest = np.zeros(size, dtype=bool)
    of_interest[who] = True
    row = np.flatnonzero((rows["head"] >= 0) & of_interest[rows["head"]])
    if not row.size:
        return
    begins, ends = np.zeros((2, size), dtype=np.int64)
    begins[who], ends[who] = begin, end
    head, starts = rows["head"][row], rows["start_ps"][row]
    lasts = durations_ps({name: rows[name][row] for name in ("first_ps", "increment_ps", "iterations")})
    overlap = np.minimum(starts + lasts, ends[head]) - np.maximum(starts, begins[head])
    np.add.at(at_head, (head, rows["cause"][row]), np.maximum(overlap, 0))
