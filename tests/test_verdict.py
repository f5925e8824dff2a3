"""The verdict on queues whose load is known: one server, fixed service, Poisson or bursty arrivals.

A calm queue may be called otherwise once in twenty times at most, an overloaded one of a few
hundred requests nearly never be missed, and at a load of 1.02 a short trace never be called
overloaded more often than chance explains.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from simbatch.facts import Facts, facts_from
from simbatch.units import PS_PER_S
from simbatch.verdict import verdict

SERVICE_PS = PS_PER_S


def served(arrival_ps: np.ndarray, servers: int = 1) -> Facts:
    """First come, first served, each request for `servers` seconds; rows from event to event."""
    n, service_ps = len(arrival_ps), servers * SERVICE_PS
    start_ps = np.zeros(n, dtype=np.int64)
    for i in range(n):
        free_ps = start_ps[i - servers] + service_ps if i >= servers else 0
        start_ps[i] = max(int(arrival_ps[i]), free_ps)
    finish_ps = start_ps + service_ps
    edges = np.unique(np.concatenate([arrival_ps, start_ps, finish_ps]))
    begun, done = np.searchsorted(start_ps, edges, "right"), np.searchsorted(finish_ps, edges, "right")
    waiting = np.searchsorted(arrival_ps, edges, "right") - begun
    busy = (begun > done)[:-1]
    return facts_from(
        {
            "arrival_ps": arrival_ps,
            "first_scheduled_ps": start_ps,
            "first_token_ps": finish_ps,
            "finished_ps": finish_ps,
            "output_tokens": np.ones(n),
            "status": np.ones(n),
        },
        {
            "start_ps": edges[:-1][busy],
            "first_ps": np.diff(edges)[busy],
            "running": (begun - done)[:-1][busy],
            "waiting": waiting[:-1][busy],
        },
    )


def verdicts(load: float, n: int, runs: int, shape: float = 1.0, servers: int = 1) -> Counter[str]:
    """How often each verdict falls, over seeded runs of *n* arrivals with Gamma gaps."""
    found: Counter[str] = Counter()
    for seed in range(runs):
        gaps_s = np.random.default_rng(seed).gamma(shape, 1 / (shape * load), n)
        found[verdict(served((np.cumsum(gaps_s) * PS_PER_S).astype(np.int64), servers))] += 1
    return found


@pytest.mark.parametrize("n", [100, 300, 2000])
@pytest.mark.parametrize("servers", [1, 20])
def test_a_calm_queue_is_stable(n: int, servers: int) -> None:
    found = verdicts(0.7, n, 40, servers=servers)
    assert found["stable"] >= 38
    assert found["overloaded"] == 0


@pytest.mark.parametrize("servers", [1, 20])
def test_an_overloaded_queue_is_found(servers: int) -> None:
    assert verdicts(1.5, 300, 40, servers=servers)["overloaded"] >= 39
    assert verdicts(1.5, 1000, 20, servers=servers) == {"overloaded": 20}


def test_a_short_trace_cannot_tell_a_load_just_above_one() -> None:
    assert verdicts(1.02, 200, 60)["overloaded"] <= 2
    assert verdicts(1.02, 1000, 40)["overloaded"] <= 2


def test_bursts_are_not_overload() -> None:
    """Gaps with a squared variation of 4 at a load of 0.7."""
    found = verdicts(0.7, 500, 40, shape=0.25)
    assert found["overloaded"] == 0
    assert found["stable"] >= 36
    assert verdicts(1.5, 2000, 20, shape=0.25)["overloaded"] >= 19


def test_a_long_overload_just_above_one_is_found() -> None:
    assert verdicts(1.1, 20_000, 3) == {"overloaded": 3}


def test_overload_that_begins_late_is_found() -> None:
    """Two thirds of the time at half load, then one third at double load."""
    rng = np.random.default_rng(1)
    gaps_s = np.concatenate([rng.exponential(2.0, 400), rng.exponential(0.5, 800)])
    assert verdict(served((np.cumsum(gaps_s) * PS_PER_S).astype(np.int64))) == "overloaded"


def test_a_rush_that_is_over_is_stable() -> None:
    """Overloaded at first, then calm: the queue no longer grows."""
    rng = np.random.default_rng(2)
    gaps_s = np.concatenate([rng.exponential(0.5, 200), rng.exponential(2.0, 500)])
    assert verdict(served((np.cumsum(gaps_s) * PS_PER_S).astype(np.int64))) == "stable"


def test_regular_arrivals() -> None:
    assert verdict(served(np.arange(1, 200) * (SERVICE_PS + 1))) == "stable"
    assert verdict(served(np.arange(1, 200) * (SERVICE_PS * 2 // 3))) == "overloaded"


def test_all_at_once_is_offline() -> None:
    assert verdict(served(np.full(50, 7))) == "offline"
    assert verdict(served(np.array([7]))) == "offline"
    assert verdict(facts_from({}, {})) == "offline"


def test_two_requests_are_no_trend() -> None:
    assert verdict(served(np.array([0, 1]))) == "stable"


def refused(facts: Facts, rows: np.ndarray) -> Facts:
    """The same run with *rows* refused, whatever had become of them."""
    for name, nothing in (("status", 2), ("finished_ps", -1), ("first_token_ps", -1), ("first_scheduled_ps", -1)):
        facts.requests[name][rows] = nothing
    return facts


def test_refused_requests_do_not_make_a_run_offline() -> None:
    arrivals = np.arange(50) * SERVICE_PS * 2
    assert verdict(refused(served(arrivals), np.arange(1, 50))) == "stable"
    assert verdict(refused(served(arrivals), np.arange(2, 50))) == "stable"
    at_once = np.append(np.full(49, 7), 10**15)
    assert verdict(refused(served(at_once), np.array([49]))) == "stable", "49 of 50 are done long before the last comes"
    assert verdict(refused(served(np.full(50, 7)), np.arange(49))) == "offline"


def test_nobody_served_is_neither_stable_nor_offline() -> None:
    for arrivals in (np.arange(50) * SERVICE_PS, np.full(50, 7), np.array([7])):
        assert verdict(refused(served(arrivals), np.arange(len(arrivals)))) == "unserved"
