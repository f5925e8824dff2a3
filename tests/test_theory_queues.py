"""Queueing theory: the simulator as M/M/1, M/D/1, M/G/1, M/M/c and M/G/∞, and arrivals as a Poisson process.

An engine with one seat, or c, and iterations of constant length is a textbook queue. Two steps,
since the mean of a queue near saturation settles slowly: on some thousand requests the simulator
equals the textbook's recursion, request by request and not only on average; and the recursion,
fast enough for a million, has the mean of the closed form within a 99.9 % confidence interval over
independent batches, no wider than stated. An arrival joins at the next boundary, so with more than
one seat a start may be late by up to one iteration, never more and never early.
"""

from __future__ import annotations

import heapq
from math import exp, factorial
from statistics import fmean

import numpy as np
import pytest
from scipy import stats

import simbatch as sb
from simbatch.facts import Facts, durations_ps

STEP_PS = 10**9
MEAN_TOKENS = 1000
"""So a request is served for 1 s on average, and an iteration is a thousandth of that."""
S = 10**12


def lengths(kind: str, count: int, seed: int) -> np.ndarray:
    """Output tokens of mean `MEAN_TOKENS`: geometric, all equal, or of two kinds."""
    draw = np.random.default_rng([seed, 1])
    if kind == "exponential":
        return draw.geometric(1 / MEAN_TOKENS, count)
    if kind == "equal":
        return np.full(count, MEAN_TOKENS)
    return np.where(draw.random(count) < 0.9, 500, 5500)


SECOND_MOMENT = {"exponential": 2 - 1 / MEAN_TOKENS, "equal": 1.0, "two kinds": 0.9 * 0.5**2 + 0.1 * 5.5**2}
"""Of a service, in s²."""


def served(kind: str, rate_per_s: float, seats: int | None, count: int, seed: int) -> Facts:
    """*count* requests of one prompt token, so that an output of n tokens takes exactly n iterations."""
    trace = sb.Trace.from_lengths(np.ones(count), lengths(kind, count, seed)).at_rate(rate_per_s, seed=seed)
    result = sb.simulate(
        trace,
        scheduler="naive" if seats == 1 else "orca",
        memory="paged",
        max_num_seqs=seats,
        kv_tokens=1 << 40,
        max_model_len=1 << 20,
        timing="linear:base_ms=1",
    )
    result.check()
    return result.facts


def starts_ps(arrival_ps: list[int], service_ps: list[int], seats: int) -> list[int]:
    """First come, first served on *seats* servers: the recursion of Lindley, and of Kiefer and Wolfowitz."""
    free = [0] * seats
    starts = []
    for at, service in zip(arrival_ps, service_ps, strict=True):
        start = max(at, free[0])
        heapq.heapreplace(free, start + service)
        starts.append(start)
    return starts


def recursion_waits_s(kind: str, rate_per_s: float, seats: int, count: int, seed: int) -> np.ndarray:
    """Waiting times of the textbook queue, the first tenth (from an empty start) left out."""
    gaps_ps = np.random.default_rng([seed, 2]).exponential(S / rate_per_s, count).astype(np.int64)
    arrival_ps = np.cumsum(gaps_ps)
    service_ps = lengths(kind, count, seed) * STEP_PS
    waits = np.array(starts_ps(arrival_ps.tolist(), service_ps.tolist(), seats)) - arrival_ps
    return waits[count // 10 :] / S


def interval(means: list[float], confidence: float = 0.999) -> tuple[float, float]:
    """Centre and half width of Student's interval over independent *means*."""
    half = stats.t.ppf((1 + confidence) / 2, len(means) - 1) * np.std(means, ddof=1) / len(means) ** 0.5
    return fmean(means), float(half)


# -- one seat: T3, T4, T5 ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SECOND_MOMENT)
def test_one_seat_is_lindleys_recursion_to_the_picosecond(kind: str) -> None:
    requests = served(kind, rate_per_s=0.8, seats=1, count=3000, seed=1).requests
    arrival_ps, service_ps = requests["arrival_ps"].tolist(), (requests["output_tokens"] * STEP_PS).tolist()
    assert requests["first_scheduled_ps"].tolist() == starts_ps(arrival_ps, service_ps, 1)
    assert (requests["finished_ps"] - requests["first_scheduled_ps"]).tolist() == service_ps


@pytest.mark.parametrize(
    ("law", "kind", "load", "wait_s"),
    [
        ("T3: M/M/1 has time 5/µ at load 0.8, so wait 4/µ", "exponential", 0.8, 4.0),
        ("T4: M/D/1 has wait 2/µ at load 0.8", "equal", 0.8, 2.0),
        (
            "T5: M/G/1, load times E[S²] over 2 (1 - load)",
            "two kinds",
            0.7,
            0.7 * SECOND_MOMENT["two kinds"] / 2 / (1 - 0.7),
        ),
    ],
)
def test_wait_of_one_seat(law: str, kind: str, load: float, wait_s: float) -> None:
    assert wait_s == pytest.approx(load * SECOND_MOMENT[kind] / (2 * (1 - load)), rel=1e-3), law
    mean, half = interval([recursion_waits_s(kind, load, 1, 60_000, seed).mean() for seed in range(20)])
    assert half < 0.05 * wait_s
    assert abs(mean - wait_s) < half


# -- c seats: T6 -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seats", "load"), [(4, 0.8), (8, 0.9)])
def test_seats_of_a_continuous_batch_are_servers(seats: int, load: float) -> None:
    facts = served("exponential", load * seats, seats, count=4000, seed=3)
    requests = facts.requests
    arrival_ps, service_ps = requests["arrival_ps"].tolist(), (requests["output_tokens"] * STEP_PS).tolist()
    late = requests["first_scheduled_ps"] - starts_ps(arrival_ps, service_ps, seats)
    assert late.min() >= 0
    assert late.max() < STEP_PS
    assert late.mean() == pytest.approx(STEP_PS / 2, rel=0.1)
    assert facts.rows["running"].max() == seats


@pytest.mark.parametrize(
    ("seats", "load", "waiting_share", "wait_s", "count"),
    [(4, 0.8, 0.59643, 0.74554, 60_000), (8, 0.9, 0.70153, 0.87692, 160_000)],
)
def test_wait_of_several_seats(seats: int, load: float, waiting_share: float, wait_s: float, count: int) -> None:
    offered = seats * load
    terms = [offered**k / factorial(k) for k in range(seats)] + [offered**seats / factorial(seats) / (1 - load)]
    assert terms[-1] / sum(terms) == pytest.approx(waiting_share, abs=1e-5)  # Erlang's C
    assert waiting_share / (seats * (1 - load)) == pytest.approx(wait_s, abs=2e-5)
    waits = [recursion_waits_s("exponential", offered, seats, count, seed) for seed in range(20)]
    for expected, means in ((waiting_share, [(w > 0).mean() for w in waits]), (wait_s, [w.mean() for w in waits])):
        mean, half = interval(means)
        assert half < 0.06 * expected
        assert abs(mean - expected) < half


# -- no limit: T7 ------------------------------------------------------------------------------------


def test_without_a_limit_the_number_running_is_poisson() -> None:
    """M/G/∞ has mean λE[S] and variance the same, whatever the lengths; each request is late by half an iteration."""
    rate_per_s = 8.0
    expected = rate_per_s * (1 + 0.5 * STEP_PS / S)
    means, variances, shares = [], [], []
    for seed in range(12):
        facts = served("two kinds", rate_per_s, None, count=3000, seed=seed)
        requests = facts.requests
        late = requests["finished_ps"] - requests["arrival_ps"] - requests["output_tokens"] * STEP_PS
        assert late.min() >= 0
        assert late.max() < STEP_PS
        start_ps, lasts_ps = facts.rows["start_ps"], durations_ps(facts.rows)
        # Once the first of the longest may have ended, and while requests still come.
        low, high = 10 * S, int(requests["arrival_ps"].max())
        inside = np.clip(np.minimum(start_ps + lasts_ps, high) - np.maximum(start_ps, low), 0, None)
        time_at = np.bincount(facts.rows["running"], weights=inside, minlength=60)
        time_at[0] += high - low - time_at.sum()  # no row: nobody ran
        share = time_at / (high - low)
        number = np.arange(share.size)
        means.append(float(share @ number))
        variances.append(float(share @ number**2) - means[-1] ** 2)
        shares.append(share[:30])
    for values in (means, variances):
        mean, half = interval(values)
        assert half < 0.15 * expected
        assert abs(mean - expected) < half
    poisson = [exp(-expected) * expected**k / factorial(k) for k in range(30)]
    assert 0.5 * np.abs(np.mean(shares, axis=0) - poisson).sum() < 0.03


# -- arrivals: T15 -----------------------------------------------------------------------------------


def test_arrivals_are_poisson() -> None:
    """Gaps vary by their mean, counts by its root, windows have nothing in common: all within 4 standard errors."""
    count, rate_per_s = 100_000, 5.0
    arrival_ps = sb.Trace.from_lengths(np.ones(count), np.ones(count)).at_rate(rate_per_s, seed=11).arrival_ps
    assert arrival_ps is not None
    gaps = np.diff(arrival_ps, prepend=0)
    assert gaps.mean() == pytest.approx(S / rate_per_s, rel=4 / count**0.5)
    assert gaps.std() / gaps.mean() == pytest.approx(1, abs=4 / count**0.5)
    windows = np.bincount(arrival_ps // (4 * S))[:-1]
    assert windows.mean() == pytest.approx(4 * rate_per_s, rel=4 / count**0.5)
    assert windows.var() / windows.mean() == pytest.approx(1, abs=4 * (2 / windows.size) ** 0.5)
    assert abs(np.corrcoef(windows[:-1], windows[1:])[0, 1]) < 4 / windows.size**0.5
