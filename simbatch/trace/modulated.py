"""Arrivals whose rate changes: between states at random (MMPP), or along a curve (day and night).

Both are Poisson processes at any moment; what is bursty or periodic is the rate. An MMPP starts in a
state drawn by how long it lasts, so it is stationary from the first second.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from simbatch.errors import UsageError
from simbatch.trace.arrivals import check_burstiness, check_positive, check_rate, in_clock_ps, refuse_beyond_clock
from simbatch.trace.columns import Ints
from simbatch.trace.draws import generator


@dataclass(frozen=True)
class Mmpp:
    """A Markov-modulated Poisson process: states follow one another in a circle, each for an exponential time."""

    rates_per_s: tuple[float, ...]
    """Requests per second in each state; 0 is silence."""
    stays_s: tuple[float, ...]
    """How long a state lasts on average."""

    def __post_init__(self) -> None:
        if len(self.rates_per_s) != len(self.stays_s) or len(self.rates_per_s) < 2:
            raise UsageError(
                f"an MMPP has {len(self.rates_per_s)} rates and {len(self.stays_s)} stays. "
                "Give one of each for at least two states, such as mmpp:rates=2/20,stays=60s/5s."
            )
        for rate in self.rates_per_s:
            if not 0 <= rate < float("inf"):
                raise UsageError(f"an MMPP has a rate of {rate:g} requests per second. Give 0 or more.")
        for stay_s in self.stays_s:
            check_positive("stay of an MMPP", stay_s, " s")
        check_rate(self.rate_per_s)

    @property
    def rate_per_s(self) -> float:
        """Requests per second on average."""
        weighted = sum(rate * stay for rate, stay in zip(self.rates_per_s, self.stays_s, strict=True))
        return weighted / sum(self.stays_s)

    def scaled_to(self, rate_per_s: float) -> Mmpp:
        """The same stays with all rates multiplied."""
        check_rate(rate_per_s)
        factor = rate_per_s / self.rate_per_s
        return replace(self, rates_per_s=tuple(rate * factor for rate in self.rates_per_s))

    def times_ps(self, requests: int, seed: int = 0) -> Ints:
        """See `Arrivals`."""
        random = generator(seed, "arrivals")
        shares = np.array(self.stays_s) / sum(self.stays_s)
        state = int(random.choice(len(shares), p=shares))
        times: list[np.ndarray] = []
        found, now_s = 0, 0.0
        while found < requests:
            stay_s = float(random.exponential(self.stays_s[state]))
            count = int(random.poisson(self.rates_per_s[state] * stay_s))
            times.append(np.sort(random.random(count)) * stay_s + now_s)
            found += count
            now_s += stay_s
            state = (state + 1) % len(shares)
            refuse_beyond_clock(now_s, requests, self.rate_per_s)
        return in_clock_ps(np.concatenate(times)[:requests], self.rate_per_s)


@dataclass(frozen=True)
class RateCurve:
    """A rate that is constant from each point on to the next, and starts again after a period.

    >>> RateCurve(starts_s=(0, 8 * 3600, 20 * 3600), rates_per_s=(2, 20, 5), period_s=24 * 3600).rate_per_s
    11.5
    """

    starts_s: tuple[float, ...]
    """Where each rate begins; the first at 0."""
    rates_per_s: tuple[float, ...]
    period_s: float
    burstiness: float = 1.0
    """1 is Poisson; otherwise gaps are Gamma distributed in a time that runs as fast as the rate is high."""

    def __post_init__(self) -> None:
        starts = self.starts_s
        if not starts or len(starts) != len(self.rates_per_s) or starts[0] != 0:
            raise UsageError(
                "a rate curve begins at 0 and has a rate for each time. Write curve:0h=2,8h=20,period=24h."
            )
        if any(later <= earlier for earlier, later in zip(starts, (*starts[1:], self.period_s), strict=True)):
            raise UsageError(
                f"the times of a rate curve are {', '.join(f'{s:g}' for s in starts)} s with a period of "
                f"{self.period_s:g} s, but each has to be later than the one before. Put them in order."
            )
        for rate in self.rates_per_s:
            if not 0 <= rate < float("inf"):
                raise UsageError(f"a rate curve has a rate of {rate:g} requests per second. Give 0 or more.")
        check_rate(self.rate_per_s)
        check_burstiness(self.burstiness)

    @property
    def rate_per_s(self) -> float:
        """Requests per second on average over a period."""
        return self._filled()[-1] / self.period_s

    def scaled_to(self, rate_per_s: float) -> RateCurve:
        """The same shape with all rates multiplied."""
        check_rate(rate_per_s)
        factor = rate_per_s / self.rate_per_s
        return replace(self, rates_per_s=tuple(rate * factor for rate in self.rates_per_s))

    def times_ps(self, requests: int, seed: int = 0) -> Ints:
        """See `Arrivals`."""
        gaps = generator(seed, "arrivals").gamma(self.burstiness, 1.0 / self.burstiness, requests)
        filled = self._filled()
        times = []
        # A request comes when as many as its number were expected.
        for expected in np.cumsum(gaps).tolist():
            rounds, rest = divmod(expected, filled[-1])
            piece = min(bisect_right(filled, rest) - 1, len(self.rates_per_s) - 1)
            times.append(
                rounds * self.period_s + self.starts_s[piece] + (rest - filled[piece]) / self.rates_per_s[piece]
            )
        return in_clock_ps(np.array(times), self.rate_per_s)

    def _filled(self) -> list[float]:
        """Requests expected up to each point, and in a whole period."""
        ends = (*self.starts_s[1:], self.period_s)
        pieces = zip(self.rates_per_s, self.starts_s, ends, strict=True)
        return list(accumulate((rate * (end - start) for rate, start, end in pieces), initial=0.0))
