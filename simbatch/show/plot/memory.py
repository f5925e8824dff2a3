"""KV memory over time, split by use: the picture that paged against contiguous is about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from simbatch.facts import KV_SHARES, durations_ps
from simbatch.show.plot.style import BLUE, GREEN, ORANGE, RED, styled
from simbatch.units import PS_PER_S

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from simbatch.result import Result

COLOURS = {"live": BLUE, "reserved": GREEN, "internal": ORANGE, "external": RED, "free": "#E8E8E8"}
MEANING = {
    "live": "tokens in the cache",
    "reserved": "held, will be filled",
    "internal": "held, never filled",
    "external": "rounded away or of no use to the head of the queue",
    "free": "nobody's",
}


@styled
def kv_memory(result: Result, ax: Axes, *, slices: int = 400) -> None:
    """Mean shares of KV memory in *slices* of the run, stacked; idle time is free."""
    edges_s, shares = shares_over_time(result, slices)
    bottom = np.zeros(len(edges_s) - 1)
    for name in KV_SHARES:
        top = bottom + shares[name]
        ax.fill_between(
            edges_s,
            np.append(bottom, bottom[-1:]),
            np.append(top, top[-1:]),
            step="post",
            color=COLOURS[name],
            linewidth=0,
            label=f"{name}: {MEANING[name]}",
        )
        bottom = top
    ax.set_xlim(edges_s[0], edges_s[-1])
    ax.set_ylim(0, 1)
    ax.set_xlabel("simulated time (s)")
    ax.set_ylabel("share of KV memory")
    ax.set_title(f"KV memory of {result.facts.capacity_tokens:,} tokens, by use ({result.config.get('system')})")
    ax.grid(False)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, fontsize="small")


def shares_over_time(result: Result, slices: int) -> tuple[Any, dict[str, Any]]:
    """(edges of equal slices of time in s, mean share in each by use), weighted by time; idle counts as free."""
    rows, capacity = result.facts.rows, result.facts.capacity_tokens
    starts = rows["start_ps"] / PS_PER_S
    lasts = durations_ps(rows) / PS_PER_S
    begin, end = (float(starts[0]), float(starts[-1] + lasts[-1])) if starts.size else (0.0, 1.0)
    edges = np.linspace(begin, end, slices + 1)
    shares: dict[str, Any] = {}
    for name in KV_SHARES:
        # The integral up to each edge, linear within a row, since a row has one mean.
        known = np.concatenate(([begin], np.ravel(np.column_stack((starts, starts + lasts)))))
        area = np.concatenate(([0.0, 0.0], np.repeat(np.cumsum(rows[f"{name}_mean"] * lasts), 2)[:-1]))
        shares[name] = np.diff(np.interp(edges, known, area)) / np.diff(edges) / capacity
    shares["free"] = 1 - sum(shares[name] for name in KV_SHARES if name != "free")
    return edges, shares
