"""What a comparison gave: a result for each system, and the differences between them.

A difference is that of two systems which met the same requests, so what chance did to both cancels
out. Nothing here runs anything; `simbatch.answers.compare` does.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from simbatch.answers.figures import at, flat, intervals
from simbatch.answers.scaled import ranges
from simbatch.answers.uncertainty import near_saturation
from simbatch.metrics import plain
from simbatch.result import Result
from simbatch.stats import CONFIDENCE, interval

if TYPE_CHECKING:
    import pandas as pd

COMPARED = (
    "throughput.requests_per_s",
    "throughput.output_tokens_per_s",
    "goodput.requests_per_s",
    "goodput.share",
    "latency_s.ttft.mean",
    "latency_s.ttft.p99",
    "latency_s.tpot.mean",
    "latency_s.tpot.p99",
    "latency_s.e2e.mean",
    "batch.running_mean",
    "kv.live_share",
    "requests.preemptions",
    "cost.usd_per_million_output_tokens",
)
"""What differences are given for, as paths into the JSON object of a run."""


class Comparison:
    """Systems side by side, in the order in which they were asked for. Shows itself as a table."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        """Everything that repeats it; each result has its own beside it."""
        self.results: dict[str, Result] = {}
        self.failed: dict[str, str] = {}
        """What a system that gave no result says about it."""
        self.interrupted = False
        """Did somebody end it before all systems had run?"""
        self.seeds: list[int] = []
        """Of the replications, if there are any; `results` are those of the first."""
        self.replications: list[dict[str, Result]] = []
        """For each seed, the result of each system."""
        self.scaled: dict[str, dict[float, Result]] | None = None
        """Each system (of the first seed) again with every iteration longer by a factor; None where not asked for."""
        self.left_out: dict[str, str] = {}
        """Why a system has no scaled runs though they were asked for."""

    def metrics(self, **asked: Any) -> dict[str, Any]:
        """The JSON object: plain numbers, None for what does not exist.

        `systems` holds the metrics of each run, `failed` the messages of those that gave none,
        `differences` what `differences` gives, `replications`, if there are seeds, the interval of each
        system's figures over them, and `uncertainty`, if it was asked for, what the error of the timing comes
        to. *asked* is what `Result.metrics` takes: limits, a warm-up, a price.
        """
        runs = {name: result.metrics(**asked) for name, result in self.results.items()}
        every = [
            runs if results is self.results else {name: result.metrics(**asked) for name, result in results.items()}
            for results in self.replications or [self.results]
        ]
        ends = {
            name: {factor: result.metrics(**asked) for factor, result in sorted(of_one.items())}
            for name, of_one in (self.scaled or {}).items()
        }
        near = {name: near_saturation(runs[name], of_one, max(of_one) - 1) for name, of_one in ends.items()}
        return {
            "config": plain(self.config),
            "systems": runs,
            "failed": dict(self.failed),
            "differences": differences(*every),
            **({"replications": self._replications(every)} if self.replications else {}),
            **({} if self.scaled is None else {"uncertainty": self._uncertainty(runs, ends)}),
            "interrupted": self.interrupted,
            "warnings": shared_warnings(
                {name: {"warnings": [*run["warnings"], *near.get(name, [])]} for name, run in runs.items()}
            ),
        }

    def frame(self, **asked: Any) -> pd.DataFrame:
        """One row per system, units in the column names; one that gave no result says why in `failed`.

        *asked* is what `Result.metrics` takes.
        """
        import pandas as pd

        names = [name for name in self.config["systems"] if name in self.results or name in self.failed]
        rows = [
            flat(self.results[name].metrics(**asked)) if name in self.results else {"failed": self.failed[name]}
            for name in names
        ]
        columns: dict[str, None] = dict.fromkeys(key for row in rows for key in row)
        ordered = [key for key in columns if key != "failed"]
        frame = pd.DataFrame(rows, index=pd.Index(names, name="system"))
        return frame[ordered].assign(failed=[self.failed.get(name, "") for name in names])

    def _replications(self, every: list[dict[str, dict[str, Any]]]) -> dict[str, Any]:
        return {
            "seeds": self.seeds,
            "confidence": CONFIDENCE,
            "systems": {name: intervals([runs[name] for runs in every]) for name in self.results},
        }

    def _uncertainty(
        self, runs: dict[str, dict[str, Any]], ends: dict[str, dict[float, dict[str, Any]]]
    ) -> dict[str, Any]:
        return {
            "seed": self.seeds[0] if self.seeds else None,
            **ranges(runs, ends, first_that_served(runs)),
            "left_out": dict(self.left_out),
        }

    def __repr__(self) -> str:
        from simbatch.show.comparison import comparison_text

        return comparison_text(self.metrics())

    def _repr_html_(self) -> str:
        return f'<pre style="max-height: 80vh; overflow: auto; line-height: 1.2">{escape(repr(self))}</pre>'


def first_that_served(runs: Mapping[str, dict[str, Any]]) -> str:
    """The system that others are measured against: the first that served anything, or the first."""
    return next((name for name, run in runs.items() if at(run, "throughput.output_tokens_per_s")), next(iter(runs)))


def differences(*replications: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """For every pair of systems and every figure of `COMPARED` that both have: how much more *b* has than *a*.

    *replications* are the runs by system, of one seed each. `mean` is b minus a, on the same requests; `low` and
    `high` bound it over the seeds, and are None for one run each.
    """
    found = []
    for a, b in itertools.combinations(replications[0], 2):
        for metric in COMPARED:
            pairs = [(at(runs[a], metric), at(runs[b], metric)) for runs in replications]
            known = [of_b - of_a for of_a, of_b in pairs if of_a is not None and of_b is not None]
            if len(known) == len(pairs):
                found.append({"metric": metric, "a": a, "b": b, **interval(known)._asdict()})
    return found


def shared_warnings(runs: Mapping[str, dict[str, Any]]) -> list[str]:
    """Each warning once: as it is where all systems have it, else with the systems that it is about."""
    about: dict[str, list[str]] = {}
    for name, run in runs.items():
        for warning in run["warnings"]:
            about.setdefault(warning, []).append(name)
    return [
        warning if len(names) == len(runs) else f"{', '.join(names)}: {warning}" for warning, names in about.items()
    ]
