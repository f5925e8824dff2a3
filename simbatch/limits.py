"""Limits on latency: who kept them, what that is worth (goodput), and whether a run passes.

A request is good when it keeps all limits that were given; one that was refused or never finished
is not. A run passes at percentile P when at least P % of the requests that arrived are good.
A percentile that rests on a handful of requests is said to: see `few_requests`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simbatch.checks import real
from simbatch.errors import UsageError
from simbatch.facts import FINISHED, Facts
from simbatch.units import PS_PER_S

DEFAULT_PERCENTILE = 90.0
FEWEST_BEYOND = 10
"""Requests beyond a percentile below which it is mostly chance."""


@dataclass(frozen=True)
class LatencyLimits:
    """Longest times in seconds that a request may take; None where there is no limit.

    Raises UsageError for a limit that is not above 0 and for a percentile outside 0..100.
    """

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None
    percentile: float = DEFAULT_PERCENTILE

    def __post_init__(self) -> None:
        for name, limit_s in self.given().items():
            if not real(f"the limit {name}", limit_s, "seconds") > 0:
                raise UsageError(f"the limit {name}={limit_s:g} s is not above 0 s. Give a time such as 500ms or 2s.")
        if not 0 < real("the percentile", self.percentile) <= 100:
            raise UsageError(
                f"the percentile {self.percentile:g} is not in 0..100. Give a share of requests, such as 95."
            )

    def given(self) -> dict[str, float]:
        """The limits that there are, by the name of the latency they hold for."""
        every = {"ttft": self.ttft_s, "tpot": self.tpot_s, "e2e": self.e2e_s}
        return {name: limit_s for name, limit_s in every.items() if limit_s is not None}


def kept_by(facts: Facts, limits: LatencyLimits) -> dict[str, NDArray[np.bool_]]:
    """Which requests keep each limit that was given: finished, and within it.

    A request of one token has no time between tokens, so it keeps any limit on TPOT.
    """
    requests = facts.requests
    finished = requests["status"] == FINISHED
    outputs = np.maximum(requests["output_tokens"] - 1, 1)
    times_ps = {
        "ttft": requests["first_token_ps"] - requests["arrival_ps"],
        "tpot": (requests["finished_ps"] - requests["first_token_ps"]) / outputs,
        "e2e": requests["finished_ps"] - requests["arrival_ps"],
    }
    return {name: finished & (times_ps[name] <= limit_s * PS_PER_S) for name, limit_s in limits.given().items()}


def goodput(facts: Facts, limits: LatencyLimits, makespan_s: float | None) -> dict[str, Any] | None:
    """Requests per second that keep all limits, and their share of those that arrived; None without limits.

    `requests_per_s` is over first arrival to last finish. Beside it stand the limits, the share of
    requests that keeps each of them, and the percentile at which the run is to pass.
    """
    if not limits.given():
        return None
    kept = kept_by(facts, limits)
    arrived = facts.requests["status"].size
    good = int(np.logical_and.reduce(list(kept.values())).sum())
    return {
        "requests_per_s": good / makespan_s if makespan_s else None,
        "share": good / arrived if arrived else None,
        "percentile": limits.percentile,
        "limits_s": limits.given(),
        "share_by_limit": {name: int(keeps.sum()) / arrived if arrived else None for name, keeps in kept.items()},
    }


def limits_met(metrics: dict[str, Any]) -> bool:
    """Whether at least the percentile asked for of all requests kept all limits.

    Raises UsageError where no limit was given: nothing can be required then.
    """
    found = metrics["goodput"]
    if found is None:
        raise UsageError("no limit was given, so none can be required. Add --ttft, --tpot or --e2e, such as --ttft 2s.")
    # In whole requests, lest a share of exactly 90 % fail by the last bit of a division.
    arrived = metrics["requests"]["arrived"]
    return found["share"] is not None and round(found["share"] * arrived) >= found["percentile"] / 100 * arrived - 1e-9


def few_requests(facts: Facts, limits: LatencyLimits) -> list[str]:
    """A warning where the percentile asked for rests on too few requests."""
    arrived = facts.requests["status"].size
    beyond = arrived * (1 - limits.percentile / 100)
    if not limits.given() or beyond >= FEWEST_BEYOND - 1e-9 or limits.percentile == 100:
        return []
    needed = round(FEWEST_BEYOND / (1 - limits.percentile / 100))
    return [
        f"percentile {limits.percentile:g} rests on {arrived:,} requests, {beyond:.3g} of them beyond it. "
        f"Simulate at least {needed:,} (--requests {needed}) before trusting it."
    ]
