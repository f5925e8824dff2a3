"""Laws that every run obeys, checked on its facts in whole picoseconds and tokens.

What came in is finished, refused or unfinished; KV memory is always all accounted for; iterations
do not overlap; every token but a request's first ends one gap, and the gaps of a request fill the
time from its first token to its last; the time that requests spend in the system is the area under
the number in it (Little's law without averages).
Cheap enough for every test. A law that fails names both numbers.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from simbatch.errors import SimbatchError
from simbatch.facts import (
    FINISHED,
    KV_SHARES,
    REQUEST_TIMES,
    UNFINISHED,
    Facts,
    Ints,
    as_the_engine_saw,
    durations_ps,
    each_replica,
    next_start_ps,
)
from simbatch.itl import gaps_of
from simbatch.stats import exact_dot, exact_sum


def check(facts: Facts) -> None:
    """Raises SimbatchError for the first law that the run breaks."""
    check_requests(facts)
    check_memory(facts)
    check_order(facts)
    check_tokens(facts)
    check_little(facts)


def check_requests(facts: Facts) -> None:
    """Everybody is finished, refused or unfinished, and things happen to them in their order."""
    requests = facts.requests
    status = requests["status"]
    counted = [int((status == code).sum()) for code in range(3)]
    _equal("arrived = unfinished + finished + refused", status.size, sum(counted))
    _equal("a request has a finish time exactly if it finished", counted[FINISHED], _happened(requests["finished_ps"]))
    done = status == FINISHED
    for earlier, later in pairwise(REQUEST_TIMES):
        wrong = np.flatnonzero(done & (requests[earlier] > requests[later]))
        if wrong.size:
            who = int(wrong[0])
            a, b = int(requests[earlier][who]), int(requests[later][who])
            raise _broken(f"{earlier} <= {later}", f"request {facts.ids[who]} has {a} and {b}")
    if facts.stays is not None:
        out = np.bincount(facts.stays["request"], minlength=status.size)
        for who in np.flatnonzero((out != requests["preemptions"]) & (status != UNFINISHED))[:1]:
            raise _broken(
                "a request is outside once for each preemption",
                f"request {facts.ids[who]} was preempted {requests['preemptions'][who]} times and out {out[who]} times",
            )


def check_memory(facts: Facts) -> None:
    """The parts of KV memory sum to the capacity in every row, none below 0, and the peak is one that was held."""
    rows, capacity = facts.rows, facts.capacity_tokens
    if not rows["start_ps"].size:
        return
    parts = np.stack([rows[name] for name in KV_SHARES])
    means = np.stack([rows[f"{name}_mean"] for name in KV_SHARES])
    whole, off = parts.sum(axis=0), np.abs(means.sum(axis=0) - capacity)
    for row in np.flatnonzero((whole != capacity) | (parts.min(axis=0) < 0))[:1]:
        split = ", ".join(f"{name} {int(rows[name][row])}" for name in KV_SHARES)
        raise _broken("live + reserved + internal + external + free = capacity", f"row {row}: {split} of {capacity}")
    for row in np.flatnonzero((off > 1e-6 * max(capacity, 1)) | (means.min(axis=0) < -1e-6 * max(capacity, 1)))[:1]:
        split = ", ".join(f"{name} {float(rows[f'{name}_mean'][row]):.6g}" for name in KV_SHARES)
        raise _broken("the mean parts of KV memory sum to its capacity", f"row {row}: {split} of {capacity}")
    held = int((rows["live"] + rows["reserved"] + rows["internal"]).max())
    if not held <= facts.peak_held_tokens <= capacity:
        raise _broken("held <= peak <= capacity", f"{held}, {facts.peak_held_tokens} and {capacity} tokens")


def check_order(facts: Facts) -> None:
    """Rows of a replica follow one another, and every iteration takes time."""
    for alone in each_replica(facts):
        _check_order_of_one(alone.rows)
    _equal("iterations = sum over rows", facts.iterations, exact_sum(facts.rows["iterations"]))


def _check_order_of_one(rows: dict[str, Any]) -> None:
    lasts, final = durations_ps(rows), rows["first_ps"] + (rows["iterations"] - 1) * rows["increment_ps"]
    for row in np.flatnonzero((rows["iterations"] < 1) | (rows["first_ps"] < 1) | (final < 1))[:1]:
        raise _broken(
            "an iteration lasts at least 1 ps", f"row {row}: first {rows['first_ps'][row]}, last {final[row]}"
        )
    ends, starts = (rows["start_ps"] + lasts)[:-1], rows["start_ps"][1:]
    for row in np.flatnonzero(ends > starts)[:1]:
        raise _broken(
            "rows do not overlap", f"row {row} ends at {ends[row]} ps and row {row + 1} starts at {starts[row]} ps"
        )


def check_tokens(facts: Facts) -> None:
    """Tokens out are those of the requests, and gaps fill the time from first token to last.

    The latter where every token belongs to a request that finished: of others the last is not known.
    """
    requests, gaps = facts.requests, gaps_of(facts)
    firsts = _happened(requests["first_token_ps"])
    _equal("tokens of requests = first tokens + gaps", exact_sum(requests["output_tokens"]), firsts + gaps.count)
    done = requests["status"] == FINISHED
    if not requests["output_tokens"][~done].any():
        spans = (requests["finished_ps"] - requests["first_token_ps"])[done]
        _equal("time from first token to last = sum of gaps, in ps", exact_sum(spans), gaps.total_ps)


def check_little(facts: Facts) -> None:
    """Time in the system, summed over requests, is the area under the number in it.

    An arrival is seen by the first plan at or after it; until then it is in the system and in no
    row. Only for runs in which everybody finished and no plan was made ahead: of others the rows do not tell.
    """
    if facts.planned_ahead or not (facts.requests["status"] == FINISHED).all():
        return
    for alone in each_replica(as_the_engine_saw(facts)):
        _check_little_of_one(alone)


def _check_little_of_one(facts: Facts) -> None:
    requests, rows = facts.requests, facts.rows
    area = exact_dot(rows["running"] + rows["waiting"], durations_ps(rows))
    unseen = exact_sum(unseen_ps(facts, requests["arrival_ps"]))
    inside = exact_sum(requests["finished_ps"] - requests["arrival_ps"])
    _equal("Little's law: time in the system = area under running + waiting + unseen, in ps", inside, area + unseen)


def unseen_ps(facts: Facts, arrival_ps: Ints) -> Ints:
    """From each arrival to the start of the first iteration at or after it.

    Raises SimbatchError for an arrival after the last iteration has started.
    """
    seen = next_start_ps(facts.rows, arrival_ps)
    unknown = np.flatnonzero(seen < 0)
    if unknown.size:
        who = int(unknown[0])
        raise _broken(
            "an arrival is followed by an iteration",
            f"request {facts.ids[who]} arrives at {int(arrival_ps[who])} ps, after the last one has started",
        )
    return seen - arrival_ps


def _happened(times: Ints) -> int:
    return int((times >= 0).sum())


def _equal(law: str, expected: int, found: int) -> None:
    if expected != found:
        raise _broken(law, f"{expected} against {found}")


def _broken(law: str, how: str) -> SimbatchError:
    return SimbatchError(
        f"the run breaks a law, {law}: {how}. The fault is in the simulator or in a policy of yours; "
        "simbatch.testing.check_scheduler looks for the smallest case."
    )
