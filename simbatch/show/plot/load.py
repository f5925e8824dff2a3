"""Who runs and who waits, over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from simbatch.facts import Facts, Floats, Ints, durations_ps
from simbatch.show.plot.style import BLUE, GREY, ORANGE, one_result, styled
from simbatch.units import PS_PER_S

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from simbatch.result import Result


@styled
def batch_and_queue(result: Result, ax: Axes) -> None:
    """Running and waiting requests over simulated time, and the cap on those that run where there is one.

    Those of all replicas together.
    """
    facts = one_result(result).facts
    most = 0
    for name, colour in (("running", BLUE), ("waiting", ORANGE)):
        times_s, counts = counts_over_time(facts, name)
        ax.step(times_s, counts, where="post", color=colour, label=name)
        most = max(most, int(counts.max(initial=0))) if name == "running" else most
    cap = result.config.get("limits", {}).get("max_num_seqs")
    if cap is not None and most >= 0.8 * cap * facts.replicas:
        label = f"max_num_seqs {cap}" if facts.replicas == 1 else f"max_num_seqs {cap} x {facts.replicas} replicas"
        ax.axhline(cap * facts.replicas, color=GREY, linestyle="--", linewidth=1.2)
        ax.text(0.01, cap * facts.replicas, label, color=GREY, va="bottom", transform=ax.get_yaxis_transform())
    ax.set_ylim(bottom=0)
    ax.set_xlabel("simulated time (s)")
    ax.set_ylabel("requests")
    ax.set_title("Batch and queue")
    ax.legend(loc="best")


def counts_over_time(facts: Facts, name: str) -> tuple[Floats, Ints]:
    """(times in s, from when on there are how many), the rows of all replicas added up; idle counts as 0."""
    starts, counts = facts.rows["start_ps"], facts.rows[name]
    times, place = np.unique(np.concatenate((starts, starts + durations_ps(facts.rows))), return_inverse=True)
    changes = np.zeros(times.size, dtype=np.int64)
    np.add.at(changes, place, np.concatenate((counts, -counts)))
    return times / PS_PER_S, np.cumsum(changes)
