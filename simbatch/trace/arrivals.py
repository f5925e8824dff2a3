"""When requests come: arrival processes, and how they are written on the command line.

Burstiness is the shape of a Gamma distribution of the gaps, as in vllm bench: 1 is a Poisson
process, less is burstier, more is steadier, infinite is constant (the coefficient of variation of a
gap is 1/√burstiness). Unlike vllm bench, the gaps are not rescaled so that the last request comes
at the expected time: the rate of a sample varies around the rate asked for, as that of real traffic
does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from simbatch.checks import real
from simbatch.errors import UsageError
from simbatch.trace.columns import Ints
from simbatch.trace.draws import generator
from simbatch.units import MAX_PS, PS_PER_S

LEAST_BURSTINESS = 0.001
"""The rate of N requests strays from the one asked for by about 1 ÷ √(N · burstiness)."""


class Arrivals(Protocol):
    """An arrival process. Frozen, so that its repr repeats it."""

    @property
    def rate_per_s(self) -> float:
        """Requests per second, on average over a long time."""

    def scaled_to(self, rate_per_s: float) -> Arrivals:
        """The same process at another mean rate."""

    def times_ps(self, requests: int, seed: int = 0) -> Ints:
        """Arrival times of *requests* requests in picoseconds, in order. The same seed gives the same times."""


@dataclass(frozen=True)
class Renewal:
    """Gaps that do not depend on one another: Gamma distributed, or all alike where *burstiness* is infinite."""

    rate_per_s: float
    burstiness: float = 1.0

    def __post_init__(self) -> None:
        check_rate(self.rate_per_s)
        check_burstiness(self.burstiness, allow_infinite=True)

    def scaled_to(self, rate_per_s: float) -> Renewal:
        """The same shape at another rate."""
        return Renewal(rate_per_s, self.burstiness)

    def times_ps(self, requests: int, seed: int = 0) -> Ints:
        """See `Arrivals`; the first request comes after the first gap."""
        if math.isinf(self.burstiness):
            # By multiplication, so that no rounding adds up.
            return in_clock_ps(np.arange(1, requests + 1) / self.rate_per_s, self.rate_per_s)
        random = generator(seed, "arrivals")
        gaps_s = random.gamma(self.burstiness, 1.0 / (self.rate_per_s * self.burstiness), requests)
        refuse_beyond_clock(float(gaps_s.sum()), requests, self.rate_per_s)
        return np.cumsum(np.rint(gaps_s * PS_PER_S).astype(np.int64))


def gamma_arrivals_ps(requests: int, rate_per_s: float, burstiness: float = 1.0, seed: int = 0) -> Ints:
    """Arrival times in picoseconds at *rate_per_s*; see `Renewal`. Raises UsageError."""
    return Renewal(rate_per_s, burstiness).times_ps(requests, seed)


def check_rate(rate_per_s: float) -> None:
    """Raises UsageError for a rate that is not positive and finite."""
    check_positive("rate", rate_per_s, " requests per second")


def check_burstiness(burstiness: float, allow_infinite: bool = False) -> None:
    """Raises UsageError for a shape that is not positive, or so small that no sample shows its rate."""
    check_positive("burstiness", burstiness, allow_infinite=allow_infinite)
    if burstiness < LEAST_BURSTINESS:
        raise UsageError(
            f"the burstiness is {burstiness:g}, at which nearly all requests come at once. "
            f"Give {LEAST_BURSTINESS} or more; 1 is Poisson."
        )


def check_positive(name: str, value: float, unit: str = "", allow_infinite: bool = False) -> None:
    """Raises UsageError for a number that is not positive, or not finite."""
    if not (real(f"the {name}", value) > 0 and (math.isfinite(value) or allow_infinite)):
        raise UsageError(f"the {name} is {value:g}{unit}, but it has to be more than 0. Give a positive number.")


def in_clock_ps(times_s: np.ndarray, rate_per_s: float) -> Ints:
    """Times in picoseconds. Raises UsageError where the clock ends before the last one."""
    if len(times_s):
        refuse_beyond_clock(float(times_s[-1]), len(times_s), rate_per_s)
    return np.asarray(np.rint(times_s * PS_PER_S).astype(np.int64))


def refuse_beyond_clock(span_s: float, requests: int, rate_per_s: float) -> None:
    """Raises UsageError where a span does not fit the clock."""
    if not span_s * PS_PER_S < MAX_PS:
        raise UsageError(
            f"{requests:,} requests at {rate_per_s:g} per second take {span_s / 86_400:,.0f} days, "
            f"but the clock ends after {MAX_PS // (86_400 * PS_PER_S)} days. Raise the rate or lower the requests."
        )
