"""The highest rate that keeps the limits, for one seed: bisection on the logarithm of the rate.

A rate is held when enough requests keep all limits and the queue is not overloaded. The same seed
at another rate gives the same gaps, only longer or shorter, and the same requests, so that holding is
all but monotone in the rate. The search ends when the last rate that held and the first that did not are `TOLERANCE`
apart; the answer is in the middle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from simbatch.answers.replications import timing_error
from simbatch.checks import whole
from simbatch.facts import Facts
from simbatch.limits import LatencyLimits, limits_met
from simbatch.simulate import simulate

if TYPE_CHECKING:
    from simbatch.trace import Trace

TOLERANCE = 1.01
"""Ratio of two rates that need not be told apart."""
FEWEST_OF_SATURATION = 1 / 1024
"""Share of the saturated throughput below which no rate is looked for."""
MOST_OF_SATURATION = 4.0
"""Multiple of it above which the trace is too short to tell."""
DEFAULT_REQUESTS = 10_000
"""Requests of a run, where the trace has more."""


@dataclass(frozen=True)
class Traffic:
    """Requests at any rate: drawn from *trace* with replacement, where that tears nothing apart, in Poisson arrivals.

    Rows that share prompts or belong to sessions are not drawn but taken in order. *trace* may be a function from
    a rate and a seed to a trace.
    """

    trace: Trace | Callable[[float, int], Trace]
    requests: int | None = None
    burstiness: float = 1.0

    def at(self, rate_per_s: float, seed: int, replicas: int = 1) -> Trace:
        """*replicas* times as many requests, at *rate_per_s* in all."""
        if callable(self.trace):
            return self.trace(rate_per_s, seed)
        count = self.count * replicas
        torn = self.trace.session is not None or bool(self.trace.prefix)
        rows = self.trace.head(count) if torn else self.trace.sample(count, seed)
        return rows.at_rate(rate_per_s, self.burstiness, seed)

    @property
    def count(self) -> int:
        """Requests for one replica."""
        if self.requests is not None:
            return whole("the number of requests", self.requests)
        return DEFAULT_REQUESTS if callable(self.trace) else min(len(self.trace), DEFAULT_REQUESTS)


@dataclass(frozen=True)
class Probe:
    """What one rate came to."""

    rate_per_s: float
    held: bool
    verdict: str
    share: float
    """Of requests that keep all limits."""
    share_by_limit: Mapping[str, float]
    bound_by: Mapping[str, float]
    """Share of the time that the head of the queue was held back, by cause."""
    requests_per_s: float
    e2e_mean_s: float | None
    output_tokens: float
    """Of a request, on average."""
    total_tokens: float
    still_filling: bool
    """Did fewer leave than came until the end? Then what is served in the long run is less than this rate."""
    timing_error: float
    """Relative error that the timing states for itself; 0 where it states none."""
    warnings: tuple[str, ...] = ()

    def plain(self) -> dict[str, Any]:
        """For the JSON object."""
        return {name: value for name, value in asdict(self).items() if name != "warnings"}


@dataclass(frozen=True)
class Found:
    """The end of a search: the highest rate that held and the lowest that did not, None where there is none."""

    held: Probe | None
    broken: Probe | None
    runs: int

    @property
    def rate_per_s(self) -> float:
        """The middle; 0 where no rate holds, and the highest one tried where all do."""
        if self.held is None:
            return 0.0
        return self.held.rate_per_s if self.broken is None else sqrt(self.held.rate_per_s * self.broken.rate_per_s)


def probe(traffic: Traffic, rate_per_s: float, seed: int, limits: LatencyLimits, arguments: dict[str, Any]) -> Probe:
    """Simulate *rate_per_s* requests per second; *arguments* are those of `simulate`."""
    trace = traffic.at(rate_per_s, seed, arguments.get("replicas", 1))
    result = simulate(trace, **arguments, seed=seed)
    metrics = result.metrics(**asdict(limits))
    finished, served = metrics["requests"]["finished"], metrics["throughput"]
    per_s = served["requests_per_s"] or 0.0
    return Probe(
        rate_per_s=rate_per_s,
        held=limits_met(metrics) and metrics["verdict"] not in ("overloaded", "unserved"),
        verdict=metrics["verdict"],
        share=metrics["goodput"]["share"],
        share_by_limit=metrics["goodput"]["share_by_limit"],
        bound_by={name: share or 0.0 for name, share in metrics["bound_by"].items()},
        requests_per_s=per_s,
        e2e_mean_s=metrics["latency_s"]["e2e"]["mean"],
        output_tokens=served["output_tokens_per_s"] / per_s if finished else 0.0,
        total_tokens=served["total_tokens_per_s"] / per_s if finished else 0.0,
        still_filling=_still_filling(result.facts),
        timing_error=timing_error(result),
        warnings=tuple(metrics["warnings"]),
    )


def _still_filling(facts: Facts) -> bool:
    """In the second half of the arrivals a tenth fewer left than came, chance (three deviations of it) apart."""
    came_ps, left_ps = facts.requests["arrival_ps"], facts.requests["finished_ps"]
    end = int(came_ps.max())
    half = (int(came_ps.min()) + end) // 2
    came = int(np.count_nonzero(came_ps > half))
    left = int(np.count_nonzero((left_ps > half) & (left_ps <= end)))
    return left < came - came / 10 - 3 * sqrt(2 * came)


def saturated_per_s(traffic: Traffic, seed: int, arguments: dict[str, Any]) -> float:
    """Requests per second that are served when all come at once: no rate above it can be held for long."""
    trace = replace(traffic.at(1.0, seed), arrival_ps=None)
    return simulate(trace, **arguments, seed=seed).metrics()["throughput"]["requests_per_s"] or 0.0


def search(
    traffic: Traffic,
    seed: int,
    limits: LatencyLimits,
    arguments: dict[str, Any],
    bracket: tuple[float, float],
    bounds: tuple[float, float],
) -> Found:
    """The highest rate held; it is looked for in *bracket* first, and no further than *bounds*."""
    held: Probe | None = None
    broken: Probe | None = None
    low, high = bracket
    runs, step = 0, high / low
    while held is None or broken is None or broken.rate_per_s / held.rate_per_s > TOLERANCE:
        if held is not None and broken is not None:
            rate = sqrt(held.rate_per_s * broken.rate_per_s)
        elif held is not None and held.rate_per_s < high:
            rate = high
        elif held is not None:
            rate, step = held.rate_per_s * step, step * step
        elif broken is not None:
            rate, step = broken.rate_per_s / step, step * step
        else:
            rate = low
        if not bounds[0] <= rate <= bounds[1]:
            break
        found = probe(traffic, rate, seed, limits, arguments)
        runs += 1
        if found.held:
            held = found
        else:
            broken = found
    return Found(held, broken, runs)
