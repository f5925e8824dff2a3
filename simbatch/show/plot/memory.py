"""KV memory over time, split by use: the picture that paged against contiguous is about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from simbatch.facts import KV_SHARES, durations_ps, each_replica
from simbatch.show.plot.style import BLUE, GREEN, ORANGE, RED, one_result, styled
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
    """Mean shares of KV memory in *slices* of the run, stacked; idle time is free. Of replicas, the mean of them."""
    edges_s, shares = shares_over_time(one_result(result), slices)
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
    of_each = f"{result.facts.replicas} x " if result.facts.replicas > 1 else ""
    tokens = f"{of_each}{result.facts.capacity_tokens:,} tokens"
    ax.set_title(f"KV memory of {tokens}, by use ({result.config.get('system')})")
    ax.grid(False)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, fontsize="small")


def shares_over_time(result: Result, slices: int) -> tuple[Any, dict[str, Any]]:
    """(edges of equal slices of time in s, mean share in each by use), weighted by time; idle counts as free.

    Replicas count alike.
    """
    facts = result.facts
    starts, ends = facts.rows["start_ps"], facts.rows["start_ps"] + durations_ps(facts.rows)
    begin, end = (int(starts.min()) / PS_PER_S, int(ends.max()) / PS_PER_S) if starts.size else (0.0, 1.0)
    edges = np.linspace(begin, end, slices + 1)
    shares: dict[str, Any] = {name: np.zeros(slices) for name in KV_SHARES}
    whole = np.diff(edges) * facts.capacity_tokens * facts.replicas
    for alone in each_replica(facts):
        rows = alone.rows
        starts, lasts = rows["start_ps"] / PS_PER_S, durations_ps(rows) / PS_PER_S
        known = np.concatenate(([begin], np.ravel(np.column_stack((starts, starts + lasts)))))
        for name in KV_SHARES[:-1]:
            # The integral up to each edge, linear within a row, since a row has one mean.
            until = np.concatenate(([0.0], np.cumsum(rows[f"{name}_mean"] * lasts)))
            area = np.concatenate(([0.0], np.ravel(np.column_stack((until[:-1], until[1:])))))
            shares[name] += np.diff(np.interp(edges, known, area)) / whole
    shares["free"] = 1 - sum(shares[name] for name in KV_SHARES if name != "free")
    return edges, shares
