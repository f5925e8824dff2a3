"""How long did requests take: the share that was served within a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from simbatch.errors import unknown
from simbatch.metrics import e2e_ps, normalized_ps, queue_ps, tpot_ps, ttft_ps
from simbatch.show.plot.style import CYCLE, RED, by_name, plain_numbers, styled
from simbatch.units import PS_PER_S, show_s

if TYPE_CHECKING:
    from matplotlib.axes import Axes

METRICS = {
    "ttft": ("time to first token", ttft_ps),
    "tpot": ("time per output token", tpot_ps),
    "e2e": ("end to end", e2e_ps),
    "queue": ("time in the queue", queue_ps),
    "normalized": ("end to end per output token", normalized_ps),
}


@styled
def latency_cdf(data: Any, ax: Axes, *, metric: str = "ttft", limit_s: float | None = None) -> None:
    """The share of finished requests with at most so much latency, for a result or several.

    *metric* is ttft, tpot, e2e, queue or normalized; *limit_s* draws a limit and what share keeps it.
    """
    if metric not in METRICS:
        raise unknown("latency", metric, METRICS)
    name, of = METRICS[metric]
    results = by_name(data)
    for (label, result), colour in zip(results.items(), CYCLE * (len(results) // len(CYCLE) + 1), strict=False):
        times_s = np.sort(np.asarray(of(result.facts), dtype=np.float64)) / PS_PER_S
        share = np.arange(1, times_s.size + 1) / max(times_s.size, 1)
        kept = f" ({np.mean(times_s <= limit_s):.1%} within)" if limit_s is not None and times_s.size else ""
        ax.step(times_s, share, where="post", color=colour, label=label + kept)
    if limit_s is not None:
        ax.axvline(limit_s, color=RED, linestyle="--", linewidth=1.2)
        ax.text(limit_s, 0.02, f" limit {show_s(limit_s)}", color=RED, transform=ax.get_xaxis_transform())
    ax.set_xscale("log")
    plain_numbers(ax.xaxis)
    ax.set_ylim(0, 1.01)
    ax.set_xlabel(f"{name} (s)")
    ax.set_ylabel("share of requests")
    ax.set_title(f"Who waits how long: {name}")
    ax.legend(loc="best")
