"""Where latencies go: waiting by what held the queue back, preempted, running."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from simbatch.errors import UsageError
from simbatch.show.plot.style import BLUE, BROWN, GREEN, GREY, ORANGE, PURPLE, RED, SKY, by_name, styled
from simbatch.show.reasons import SHORT
from simbatch.units import PS_PER_S
from simbatch.waits import waits

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from simbatch.result import Result

COLOURS = {
    "running": BLUE,
    "frontend": SKY,
    "next_iteration": GREY,
    "kv": RED,
    "max_num_seqs": ORANGE,
    "token_budget": GREEN,
    "policy": BROWN,
    "preempted": PURPLE,
}
_LEAST_SEEN = 0.005
"""Share of the longest bar below which a part is too thin for a label."""


@styled
def wait_reasons(data: Any, ax: Axes) -> None:
    """Mean end-to-end latency by cause: of each result; of a single one also of its fastest half and slowest tenth.

    Time behind others is counted under what held the head of the queue back.
    """
    results = by_name(data)
    if len(results) == 1:
        bars = parts_of_groups(*results.values())
    else:
        bars = {name: parts_of_groups(result)["all"] for name, result in results.items()}
    place, left = np.arange(len(bars)), np.zeros(len(bars))
    for name, colour in COLOURS.items():
        widths = np.array([parts[name] for parts in bars.values()])
        if widths.any():
            seen = widths.max() > _LEAST_SEEN * max(sum(parts.values()) for parts in bars.values())
            ax.barh(place, widths, left=left, color=colour, height=0.6, label=SHORT[name] if seen else None)
            left += widths
    ax.set_yticks(place, list(bars))
    ax.invert_yaxis()
    ax.set_xlim(left=0)
    ax.set_xlabel("mean end-to-end latency (s)")
    ax.set_title("Where the time goes")
    ax.grid(axis="y", visible=False)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=4, fontsize="small")


def parts_of_groups(result: Result) -> dict[str, dict[str, float]]:
    """Mean seconds by cause of all finished requests, of the fastest half and of the slowest tenth."""
    found = waits(result.facts)
    size = found.request.size
    if not size:
        raise UsageError("nobody finished, so there is no latency to split. Draw a run that served somebody.")
    order = np.argsort(found.latency_ps, kind="stable")
    causes = found.by_cause_ps()
    groups = {"all": order, "fastest half": order[: max(1, size // 2)], "slowest tenth": order[-max(1, size // 10) :]}
    return {
        group: {name: float(causes[name][who].mean()) / PS_PER_S for name in COLOURS} for group, who in groups.items()
    }
