"""Who runs and who waits, over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from simbatch.facts import durations_ps
from simbatch.show.plot.style import BLUE, GREY, ORANGE, styled
from simbatch.units import PS_PER_S

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from simbatch.result import Result


@styled
def batch_and_queue(result: Result, ax: Axes) -> None:
    """Running and waiting requests over simulated time, and the cap on those that run where there is one."""
    rows = result.facts.rows
    starts = rows["start_ps"] / PS_PER_S
    ends = starts + durations_ps(rows) / PS_PER_S
    idle = np.flatnonzero(starts[1:] > ends[:-1] + 1e-12) + 1
    times = np.insert(starts, idle, ends[idle - 1])
    for name, colour in (("running", BLUE), ("waiting", ORANGE)):
        counts = np.insert(rows[name].astype(np.float64), idle, 0)
        ax.step(np.append(times, ends[-1:]), np.append(counts, counts[-1:]), where="post", color=colour, label=name)
    cap = result.config.get("limits", {}).get("max_num_seqs")
    if cap is not None and rows["running"].size and rows["running"].max() >= 0.8 * cap:
        ax.axhline(cap, color=GREY, linestyle="--", linewidth=1.2)
        ax.text(0.01, cap, f"max_num_seqs {cap}", color=GREY, va="bottom", transform=ax.get_yaxis_transform())
    ax.set_ylim(bottom=0)
    ax.set_xlabel("simulated time (s)")
    ax.set_ylabel("requests")
    ax.set_title("Batch and queue")
    ax.legend(loc="best")
