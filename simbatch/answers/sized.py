"""What sizing gave: for each combination of options a `Choice`, and all of them as a `Size`, cheapest first.

Nothing here simulates; `simbatch.answers.size` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

from simbatch.answers.highest_rate import Found, Probe
from simbatch.deployment import Deployment
from simbatch.metrics import S_PER_HOUR, plain
from simbatch.stats import CONFIDENCE, Interval, interval

if TYPE_CHECKING:
    import pandas as pd


@dataclass
class Choice:
    """One combination of options: what was found out about it."""

    varied: Mapping[str, Any]
    """The options in which it differs from others."""
    deployment: Deployment | None
    found: list[Found] = field(default_factory=list)
    """The highest rate, for each seed."""
    scaled: list[Found] = field(default_factory=list)
    """For the first seed, with iterations longer and shorter by the error of the timing."""
    curve: list[Probe] = field(default_factory=list)
    """Rates up to the highest and a little above, for the first seed."""
    checks: dict[int, list[Probe]] = field(default_factory=dict)
    """Simulations of the rate asked for, for each number of replicas that was tried and each seed."""
    failed: str = ""
    """Why it is no answer; empty where it is one."""

    @property
    def rate(self) -> Interval:
        """Requests per second that one replica holds."""
        found = interval([found.rate_per_s for found in self.found])
        return found if found.low is None else found._replace(low=max(0.0, found.low))

    @property
    def replicas(self) -> int | None:
        """The fewest that held the rate asked for with every seed; 1 where none was; None where none did."""
        if not self.checks:
            return None if self.failed else 1
        held = [count for count, probes in self.checks.items() if all(one.held for one in probes)]
        return min(held, default=None)

    @property
    def gpus(self) -> int | None:
        each = 1 if self.deployment is None else self.deployment.tensor_parallel_size
        return None if self.replicas is None else self.replicas * each

    @property
    def usd_per_hour(self) -> float | None:
        """All replicas together; None without a price."""
        price = None if self.deployment is None else self.deployment.usd_per_hour
        return None if price is None or self.replicas is None else price * self.replicas

    def usd_per_million(self, tokens: str, rate_per_s: float | None) -> float | None:
        """Price ÷ tokens served: at *rate_per_s*, or at the highest rate of one replica."""
        held = next((found.held for found in self.found if found.held is not None), None)
        rate = self.rate.mean if rate_per_s is None and self.found else rate_per_s
        if self.usd_per_hour is None or held is None or not rate:
            return None
        each: float = getattr(held, tokens)
        return self.usd_per_hour / (S_PER_HOUR * rate * each) * 1e6 if each else None

    @property
    def bound_by(self) -> dict[str, Any] | None:
        """What binds first: the limit that breaks just above the highest rate, and what holds the engine back there."""
        broken = self.found[0].broken if self.found else None
        if broken is None:
            return None
        limit, share = min(broken.share_by_limit.items(), key=lambda item: item[1])
        causes = {name: held for name, held in broken.bound_by.items() if name != "nothing" and held > 0}
        return {
            "limit": limit,
            "limit_kept_by": share,
            "verdict": broken.verdict,
            "engine": max(causes, key=lambda name: causes[name]) if causes else "iteration_time",
            "shares": dict(broken.bound_by),
        }

    @property
    def knee_per_s(self) -> float | None:
        """The rate at which throughput ÷ mean end-to-end latency is largest (Kleinrock's power): beyond it waiting
        grows faster than what is served."""
        powers = {one.rate_per_s: one.rate_per_s / one.e2e_mean_s for one in self.curve if one.e2e_mean_s}
        return max(powers, key=lambda rate: powers[rate]) if powers else None

    def rates(self) -> dict[str, Any]:
        """The JSON object of the highest rate of one replica; with the error of the timing where it states one."""
        values = [found.rate_per_s for found in self.found]
        rates: dict[str, Any] = {**self.rate._asdict(), "values": values}
        if self.scaled and values[0]:
            first = self.found[0].held
            ends = sorted(rates["mean"] * found.rate_per_s / values[0] for found in self.scaled)
            rates["timing_error"] = {
                "relative": first.timing_error if first else 0.0,
                "low": ends[0],
                "high": ends[-1],
            }
        return rates

    def row(self, rate_per_s: float | None) -> dict[str, Any]:
        """One row of the table."""
        rate: Interval | None = self.rate if self.found else None
        return {
            **{name: plain(value) for name, value in self.varied.items()},
            "rate_per_replica_per_s": rate and rate.mean,
            "rate_low_per_s": rate and rate.low,
            "rate_high_per_s": rate and rate.high,
            "replicas": self.replicas,
            "gpus": self.gpus,
            "usd_per_hour": self.usd_per_hour,
            "usd_per_million_output_tokens": self.usd_per_million("output_tokens", rate_per_s),
            "usd_per_million_tokens": self.usd_per_million("total_tokens", rate_per_s),
            "bound_by": (self.bound_by or {}).get("limit"),
            "engine": (self.bound_by or {}).get("engine"),
            "failed": self.failed or ("" if self.replicas else "the rate is not held by the numbers tried"),
        }


class Size:
    """The answer. Shows itself; `best` is the cheapest combination that keeps the limits."""

    def __init__(self, config: dict[str, Any], choices: list[Choice]) -> None:
        self.config = config
        """Everything that repeats it."""
        self.choices = sorted(choices, key=self._rank)
        """Cheapest first, those that are no answer last."""

    @property
    def rate_per_s(self) -> float | None:
        """The rate that was asked for."""
        rate: float | None = self.config["rate_per_s"]
        return rate

    @property
    def best(self) -> Choice:
        return self.choices[0]

    def _rank(self, choice: Choice) -> tuple[bool, float, float]:
        """By cost where there are prices, else by GPUs; for the highest rate, by what each rate or GPU costs."""
        if choice.failed or not choice.replicas:
            return True, 0.0, 0.0
        spent: float = choice.gpus or 1 if choice.usd_per_hour is None else choice.usd_per_hour
        if self.config["rate_per_s"] is None:
            spent /= choice.rate.mean or 1e-12
        return False, spent, -choice.rate.mean

    @cached_property
    def warnings(self) -> list[str]:
        """What limits the answer without making it wrong."""
        said: dict[str, None] = {}
        for choice in self.choices:
            for found in choice.found:
                probes = [one for one in (found.held, found.broken) if one is not None]
                said |= dict.fromkeys(text for one in probes for text in one.warnings)
                if found.held is not None and found.held.still_filling:
                    said[
                        f"at {found.held.rate_per_s:.3g} requests per second fewer left than came until the end: the "
                        "batch still filled, so less may be held in the long run. Give more requests"
                    ] = None
        return list(said)

    def metrics(self) -> dict[str, Any]:
        """The JSON object: plain numbers, None for what does not exist."""
        best = self.best
        return {
            "config": plain({**self.config, "deployment": best.deployment and best.deployment.describe()}),
            "chosen": plain(dict(best.varied)),
            "rate_per_replica": {**best.rates(), "confidence": CONFIDENCE} if best.found else None,
            "replicas": best.replicas,
            "gpus": best.gpus,
            "usd_per_hour": best.usd_per_hour,
            "usd_per_million_output_tokens": best.usd_per_million("output_tokens", self.rate_per_s),
            "usd_per_million_tokens": best.usd_per_million("total_tokens", self.rate_per_s),
            "bound_by": best.bound_by,
            "knee_per_s": best.knee_per_s,
            "curve": [one.plain() for one in best.curve],
            "checks": [
                {
                    "replicas": count,
                    "held": all(one.held for one in probes),
                    "shares": [one.share for one in probes],
                    "verdicts": [one.verdict for one in probes],
                }
                for count, probes in sorted(best.checks.items())
            ],
            "table": [choice.row(self.rate_per_s) for choice in self.choices],
            "failed": best.failed,
            "warnings": self.warnings,
        }

    def frame(self) -> pd.DataFrame:
        """The table, cheapest first, as a data frame."""
        import pandas as pd

        return pd.DataFrame([choice.row(self.rate_per_s) for choice in self.choices])

    def __repr__(self) -> str:
        from simbatch.show.size import size_text

        return size_text(self.metrics())

    def _repr_html_(self) -> str:
        return f'<pre style="max-height: 80vh; overflow: auto; line-height: 1.2">{escape(repr(self))}</pre>'
