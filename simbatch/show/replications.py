"""Replications as text: the first run, and beside its figures what they are over all seeds.

Reads the JSON object of `simbatch.answers.replications` and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simbatch.show.summary import summary_text
from simbatch.show.text import number, percent, table, time

_SHOWN: dict[str, tuple[str, Callable[[float | None], str]]] = {
    "throughput.requests_per_s": ("requests/s", number),
    "throughput.output_tokens_per_s": ("output tokens/s", number),
    "goodput.requests_per_s": ("good requests/s", number),
    "goodput.share": ("keep all limits", percent),
    "latency_s.ttft.mean": ("TTFT mean", time),
    "latency_s.ttft.p99": ("TTFT p99", time),
    "latency_s.tpot.mean": ("TPOT mean", time),
    "latency_s.tpot.p99": ("TPOT p99", time),
    "latency_s.e2e.mean": ("end to end mean", time),
    "kv.peak_share": ("KV held at most", percent),
    "cost.usd_per_million_output_tokens": ("$/M output tokens", number),
}


def replications_text(metrics: dict[str, Any]) -> str:
    """The run of the first seed, then intervals over all of them; no line break at the end."""
    return f"{summary_text(metrics)}\n\n{intervals_text(metrics['replications'])}"


def intervals_text(replications: dict[str, Any]) -> str:
    """A table of mean and interval, and what the error of the timing adds where it states one."""
    figures, scaled = replications["figures"], replications.get("timing_error", {"figures": {}})["figures"]
    level = f"{replications['confidence']:.0%}".replace("%", " %")
    heads = [
        f"{len(replications['seeds'])} seeds",
        "mean",
        f"{level} from",
        "to",
        *(["timing from", "to"] if scaled else []),
    ]
    rows = []
    for path, (label, show) in _SHOWN.items():
        if path not in figures:
            continue
        found, bounds = figures[path], scaled.get(path)
        rows.append([label, *(show(found[key]) for key in ("mean", "low", "high"))])
        if scaled:
            rows[-1] += [show(bounds["low"]), show(bounds["high"])] if bounds else ["-", "-"]
    text = table(heads, rows, texts=1)
    if scaled:
        relative = percent(replications["timing_error"]["relative"])
        text += f"\n\ntiming: the first seed's, with every iteration shorter or longer by {relative}"
    return text
