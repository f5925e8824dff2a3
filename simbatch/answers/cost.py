"""What tokens cost: as served, at full load, at the limits; and what a system wastes of what its GPUs cost.

The price of a GPU's hour is the user's. *As served* is what the trace asks for, at its times. *At full load* everything
is there at once, so that the GPUs never idle: about the least that a token can cost on this system. *At the
limits* is the highest rate at which enough requests keep all limits. The waste is against a paged, continuous system
that serves the same requests on the same GPUs.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from html import escape
from math import sqrt
from typing import TYPE_CHECKING, Any

from simbatch.answers.compare import compare
from simbatch.answers.comparison import shared_warnings
from simbatch.answers.replications import timing_error
from simbatch.deployment import Deployment
from simbatch.errors import SimbatchError, UsageError
from simbatch.limits import DEFAULT_PERCENTILE, LatencyLimits, limits_met
from simbatch.metrics import plain
from simbatch.simulate import simulate
from simbatch.systems import DEFAULT_SYSTEM, find_system
from simbatch.version import __version__

if TYPE_CHECKING:
    from simbatch.trace import Trace

PAGED = "vllm"
"""The paged, continuous system that waste is measured against."""
TOLERANCE = 1.02
"""Ratio of the last rate that held and the first that did not, at which the search for the highest one ends."""
MOST_OF_FULL_LOAD, LEAST_OF_FULL_LOAD = 2.0, 1 / 256
"""Multiples of the rate at full load between which it looks. Above the first, the trace is too short to tell."""
_COSTS = ("usd_per_million_output_tokens", "usd_per_million_tokens")


class Cost:
    """Dollars per million tokens at three loads, and dollars wasted per hour. Shows itself as a table."""

    def __init__(self, config: dict[str, Any], usd_per_hour: float) -> None:
        self.config = config
        self.usd_per_hour = usd_per_hour
        """All GPUs of the replica."""
        self.loads: dict[str, dict[str, Any] | None] = {}
        """`as_served`, `full_load`, `at_limits`: dollars, rates, the verdict; None where there is no such load."""
        self.waste: dict[str, Any] = {}
        self.timing_error: dict[str, Any] | None = None
        """Between what dollars at full load lie when iterations take less, or longer, by the error that the timing
        states; None where it states none."""
        self.warnings: list[str] = []

    def metrics(self) -> dict[str, Any]:
        """The JSON object."""
        found: dict[str, Any] = plain(
            {
                "config": self.config,
                "usd_per_hour": self.usd_per_hour,
                **self.loads,
                "waste": self.waste,
                "timing_error": self.timing_error,
                "warnings": self.warnings,
            }
        )
        return found

    def __repr__(self) -> str:
        from simbatch.show.cost import cost_text

        return cost_text(self.metrics())

    def _repr_html_(self) -> str:
        return f'<pre style="max-height: 80vh; overflow: auto; line-height: 1.2">{escape(repr(self))}</pre>'


def cost(
    trace: Trace,
    deployment: Deployment | None = None,
    *,
    price_usd_per_hour: float | None = None,
    system: str = DEFAULT_SYSTEM,
    ttft_s: float | None = None,
    tpot_s: float | None = None,
    e2e_s: float | None = None,
    percentile: float = DEFAULT_PERCENTILE,
    seed: int = 0,
    **options: Any,
) -> Cost:
    """What a million tokens of *trace* cost on *deployment* with *system*.

    Parameters
    ----------
    price_usd_per_hour
        Of one GPU; the deployment's own unless given.
    ttft_s, tpot_s, e2e_s, percentile
        Limits; without any there is no cost at the limits. The rate that keeps them is searched with the trace's
        requests in Poisson arrivals.
    options
        What `simulate` takes.

    Raises UsageError without a price, with an example of one that carries its date.
    """
    here = Deployment() if deployment is None else deployment
    if price_usd_per_hour is not None:
        here = here.replace(price_usd_per_hour=price_usd_per_hour)
    if here.usd_per_hour is None:
        raise UsageError(f"there is no price. Give dollars per GPU and hour{_example(here)}.")
    limits = LatencyLimits(ttft_s, tpot_s, e2e_s, percentile)
    asked = {"system": find_system(system).name, "seed": seed, **options}
    found = Cost(_config(trace, here, asked, limits), here.usd_per_hour)

    runs: dict[str, dict[str, Any]] = {}
    if trace.arrival_ps is not None:
        runs["as_served"] = simulate(trace, here, **asked).metrics()
    at_once = replace(trace, arrival_ps=None)
    systems: dict[str, dict[str, Any]] = {"this": {"system": asked["system"]}, PAGED: {"system": PAGED}}
    own = {key: value for key, value in asked.items() if key not in ("system", "reserve", "placement", "batch_size")}
    contiguous: dict[str, Any] = {key: asked[key] for key in ("reserve", "placement", "batch_size") if key in asked}
    systems["this"] |= contiguous
    side_by_side = compare(at_once, here, systems=systems, **own)
    if side_by_side.failed:
        raise SimbatchError(next(iter(side_by_side.failed.values())))
    full = {name: result.metrics() for name, result in side_by_side.results.items()}
    runs["full_load"] = full["this"]
    too_short = False
    if limits.given():
        rate_per_s = full["this"]["throughput"]["requests_per_s"] or 0.0
        highest = _highest(trace, here, asked, limits, rate_per_s)
        if highest is not None:
            runs["at_limits"] = highest
            too_short = highest["rate_per_s"] * TOLERANCE > rate_per_s * MOST_OF_FULL_LOAD
    found.loads = {
        name: _load(runs[name]) if name in runs else None for name in ("as_served", "full_load", "at_limits")
    }
    found.config["timing"] = runs["full_load"]["config"].get("timing")
    error = timing_error(side_by_side.results["this"])
    if error:
        again = {**own, **systems["this"]}
        ends = [simulate(at_once, here, **again, timing_scale=1 + sign * error).metrics()["cost"] for sign in (-1, 1)]
        found.timing_error = {
            "relative": error,
            "full_load": {name: sorted(end[name] for end in ends) for name in _COSTS},
        }
    found.waste = _waste(full["this"], full[PAGED], here.usd_per_hour, asked["system"])
    found.warnings = [warning for warning in shared_warnings(runs) if "no arrival times" not in warning]
    if too_short:
        found.warnings.append(
            "the limits are kept at twice the rate that is served at full load: the trace is too short to tell the "
            "highest rate. Give more requests"
        )
    return found


def _example(deployment: Deployment) -> str:
    """Rents seen for the card, with their date; they move, and are no default."""
    card = deployment.card
    if card.usd_per_hour_low is None or card.usd_per_hour_high is None:
        return ", such as price_usd_per_hour=2.5"
    seen = f"{card.usd_per_hour_low:g} to {card.usd_per_hour_high:g}"
    return f" ({card.name} was seen for {seen}, {card.price_date})"


def _config(trace: Trace, here: Deployment, asked: dict[str, Any], limits: LatencyLimits) -> dict[str, Any]:
    return {
        "simbatch": __version__,
        "trace": trace.describe(),
        "deployment": here.describe(),
        "arguments": asked,
        "limits": asdict(limits),
    }


def _load(run: dict[str, Any]) -> dict[str, Any]:
    """Dollars and rates of one run."""
    spent, rates = run["cost"], run["throughput"]
    return {
        **{name: spent[name] for name in _COSTS},
        "verdict": run["verdict"],
        **rates,
        "rate_per_s": run.get("rate_per_s"),
        "timing": (run["config"].get("timing") or {}).get("kind"),
    }


def _waste(this: dict[str, Any], paged: dict[str, Any], usd_per_hour: float, system: str) -> dict[str, Any]:
    """Of the price of an hour, what a paged, continuous system would not have needed for the same tokens."""
    own, best = (run["throughput"]["output_tokens_per_s"] for run in (this, paged))
    share = None if own is None or not best else max(0.0, 1 - own / best)
    return {
        "system": system,
        "against": PAGED,
        "share": share,
        "usd_per_hour": None if share is None else share * usd_per_hour,
        "gain": best / own if own and best else None,
    }


def _highest(
    trace: Trace, here: Deployment, asked: dict[str, Any], limits: LatencyLimits, full_per_s: float
) -> dict[str, Any] | None:
    """Metrics at the highest rate that keeps the limits, by bisection on its logarithm; None where none does."""
    held: dict[str, Any] | None = None
    low, high = full_per_s * LEAST_OF_FULL_LOAD, full_per_s * MOST_OF_FULL_LOAD
    rate = full_per_s * 0.5
    while full_per_s and high > low * TOLERANCE:
        run = simulate(trace.at_rate(rate, seed=asked["seed"]), here, **asked).metrics(**asdict(limits))
        if limits_met(run) and run["verdict"] not in ("overloaded", "unserved"):
            held, low = {**run, "rate_per_s": rate}, rate
        else:
            high = rate
        rate = sqrt(low * high)
    return held
