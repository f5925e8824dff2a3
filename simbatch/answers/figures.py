"""The JSON object of a run as single figures: by path, or as the cells of a row; and their intervals over runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from simbatch.stats import interval

FIGURES = (
    "throughput.requests_per_s",
    "throughput.output_tokens_per_s",
    "goodput.requests_per_s",
    "goodput.share",
    "latency_s.ttft.mean",
    "latency_s.ttft.p50",
    "latency_s.ttft.p90",
    "latency_s.ttft.p99",
    "latency_s.tpot.mean",
    "latency_s.tpot.p99",
    "latency_s.itl.mean",
    "latency_s.itl.p99",
    "latency_s.e2e.mean",
    "latency_s.e2e.p99",
    "batch.running_mean",
    "kv.live_share",
    "kv.peak_share",
    "requests.preemptions",
    "cost.usd_per_million_output_tokens",
)
"""What intervals are given for, as paths into the JSON object of a run."""


def at(run: dict[str, Any], path: str) -> float | None:
    """The figure at *path* of a run's JSON object."""
    value: Any = run
    for key in path.split("."):
        value = None if value is None else value[key]
    found: float | None = value
    return found


def intervals(runs: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Each of `FIGURES` that all *runs* have: mean, interval, and the values one by one."""
    found: dict[str, dict[str, Any]] = {}
    for path in FIGURES:
        values = [at(run, path) for run in runs]
        known = [value for value in values if value is not None]
        if len(known) == len(values):
            found[path] = {**interval(known)._asdict(), "values": known}
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


def flat(run: dict[str, Any]) -> dict[str, Any]:
    """One run as the cells of a row."""
    row: dict[str, Any] = {"verdict": run["verdict"]}
    for group, prefix in _GROUPS:
        cells = run[group] or {}
        row |= {f"{prefix}{key}": value for key, value in cells.items() if not isinstance(value, dict)}
    for name, figures in run["latency_s"].items():
        row |= {f"{name}_{figure}_s": value for figure, value in figures.items()}
    return row
