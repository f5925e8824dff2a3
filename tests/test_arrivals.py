"""Arrival processes have the rate, the variation and the independence that they promise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from simbatch.errors import UsageError
from simbatch.trace.arrivals import gamma_arrivals_ps, generator
from simbatch.units import PS_PER_S

REQUESTS = 20_000
SIGMAS = 4
"""A seeded draw that passes once always passes; four standard errors leave room for other seeds too."""


@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gaps_have_the_mean_and_variation_promised(burstiness: float, seed: int) -> None:
    rate_per_s = 20.0
    arrivals_s = gamma_arrivals_ps(REQUESTS, rate_per_s, burstiness, seed) / PS_PER_S
    gaps_s = np.diff(arrivals_s, prepend=0.0)
    cv = 1 / math.sqrt(burstiness)
    assert gaps_s.mean() * rate_per_s == pytest.approx(1, abs=SIGMAS * cv / math.sqrt(REQUESTS))
    # A sample variance has the relative error √((excess kurtosis + 2)/n); Gamma has 6/shape; a root halves it.
    error = math.sqrt((6 / burstiness + 2) / REQUESTS) / 2
    assert gaps_s.std() / gaps_s.mean() == pytest.approx(cv, rel=SIGMAS * error)


def test_poisson_counts_per_second_are_not_dispersed() -> None:
    arrivals_s = gamma_arrivals_ps(REQUESTS, 20.0, 1.0, 3) / PS_PER_S
    seconds = int(arrivals_s[-1])
    counts = np.histogram(arrivals_s, bins=seconds, range=(0, seconds))[0]
    assert counts.var() / counts.mean() == pytest.approx(1, abs=SIGMAS * math.sqrt(2 / seconds))


def test_times_are_whole_picoseconds_that_never_go_back() -> None:
    arrival_ps = gamma_arrivals_ps(1000, 5.0, 0.05, 1)
    assert arrival_ps.dtype == np.int64
    assert (np.diff(arrival_ps) >= 0).all()
    assert arrival_ps[0] >= 0


def test_a_seed_repeats_and_another_differs() -> None:
    assert (gamma_arrivals_ps(100, 5.0, seed=1) == gamma_arrivals_ps(100, 5.0, seed=1)).all()
    assert (gamma_arrivals_ps(100, 5.0, seed=1) != gamma_arrivals_ps(100, 5.0, seed=2)).any()


def test_more_requests_do_not_change_the_first_ones() -> None:
    assert (gamma_arrivals_ps(500, 5.0, seed=1)[:100] == gamma_arrivals_ps(100, 5.0, seed=1)).all()


def test_a_rate_changes_the_clock_only() -> None:
    slow, fast = (gamma_arrivals_ps(100, rate, seed=1) for rate in (1.0, 10.0))
    assert slow / fast == pytest.approx(np.full(100, 10.0))


def test_purposes_do_not_share_random_numbers() -> None:
    assert generator(0, "arrivals").random() != generator(0, "sample").random()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0.0,), "the rate is 0 requests per second, but it has to be more than 0. Give a positive number."),
        ((-2.5,), "the rate is -2.5 requests per second, but it has to be more than 0. Give a positive number."),
        ((math.inf,), "the rate is inf requests per second, but it has to be more than 0. Give a positive number."),
        ((5.0, 0.0), "the burstiness is 0, but it has to be more than 0. Give a positive number."),
        ((5.0, math.nan), "the burstiness is nan, but it has to be more than 0. Give a positive number."),
        ((5.0, 1.0, -1), "the seed is -1, but seeds count from 0. Give a whole number that is not negative."),
    ],
)
def test_what_cannot_be_drawn_is_refused(arguments: tuple[float, ...], message: str) -> None:
    with pytest.raises(UsageError) as error:
        gamma_arrivals_ps(10, *arguments)
    assert str(error.value) == message


def test_the_clock_ends_before_a_rate_that_is_too_low() -> None:
    with pytest.raises(
        UsageError, match=r"^10 requests at 1e-08 per second take [0-9,]+ days, but the clock ends after 106"
    ):
        gamma_arrivals_ps(10, 1e-8)
