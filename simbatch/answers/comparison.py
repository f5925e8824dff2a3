"""What a comparison gave: a result for each system, and the differences between them.

A difference is that of two systems which met the same requests, so what chance did to both cancels
out. Nothing here runs anything; `simbatch.answers.compare` does.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from simbatch.metrics import plain
from simbatch.result import Result

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

    def metrics(self, **asked: Any) -> dict[str, Any]:
        """The JSON object: plain numbers, None for what does not exist.

        `systems` holds the metrics of each run, `failed` the messages of those that gave none,
        `differences` what `differences` gives. *asked* is what `Result.metrics` takes: limits, a
        warm-up, a price.
        """
        runs = {name: result.metrics(**asked) for name, result in self.results.items()}
        return {
            "config": plain(self.config),
            "systems": runs,
            "failed": dict(self.failed),
            "differences": differences(runs),
            "interrupted": self.interrupted,
            "warnings": shared_warnings(runs),
        }

    def frame(self, **asked: Any) -> pd.DataFrame:
        """One row per system, units in the column names; one that gave no result says why in `failed`.

        *asked* is what `Result.metrics` takes.
        """
        import pandas as pd

        names = [name for name in self.config["systems"] if name in self.results or name in self.failed]
        rows = [
            _flat(self.results[name].metrics(**asked)) if name in self.results else {"failed": self.failed[name]}
            for name in names
        ]
        columns: dict[str, None] = dict.fromkeys(key for row in rows for key in row)
        ordered = [key for key in columns if key != "failed"]
        frame = pd.DataFrame(rows, index=pd.Index(names, name="system"))
        return frame[ordered].assign(failed=[self.failed.get(name, "") for name in names])

    def __repr__(self) -> str:
        from simbatch.show.comparison import comparison_text

        return comparison_text(self.metrics())

    def _repr_html_(self) -> str:
        return f'<pre style="max-height: 80vh; overflow: auto; line-height: 1.2">{escape(repr(self))}</pre>'


def differences(runs: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """For every pair of systems and every figure of `COMPARED` that both have: how much more *b* has than *a*.

    `mean` is b minus a. `low` and `high` bound it over several seeds; of one run each they are None.
    """
    found = []
    for a, b in itertools.combinations(runs, 2):
        for metric in COMPARED:
            of_a, of_b = _at(runs[a], metric), _at(runs[b], metric)
            if of_a is not None and of_b is not None:
                found.append({"metric": metric, "a": a, "b": b, "mean": of_b - of_a, "low": None, "high": None})
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


def _at(run: dict[str, Any], path: str) -> float | None:
    value: Any = run
    for key in path.split("."):
        value = None if value is None else value[key]
    found: float | None = value
    return found


_GROUPS: Iterable[tuple[str, str]] = (
    ("requests", ""),
    ("throughput", ""),
    ("goodput", "good_"),
    ("batch", ""),
    ("kv", "kv_"),
    ("bound_by", "held_back_by_"),
    ("cost", ""),
    ("simulation", ""),
)


def _flat(run: dict[str, Any]) -> dict[str, Any]:
    """One run as the cells of a row."""
    row: dict[str, Any] = {"verdict": run["verdict"]}
    for group, prefix in _GROUPS:
        cells = run[group] or {}
        row |= {f"{prefix}{key}": value for key, value in cells.items() if not isinstance(value, dict)}
    for name, figures in run["latency_s"].items():
        row |= {f"{name}_{figure}_s": value for figure, value in figures.items()}
    return row
