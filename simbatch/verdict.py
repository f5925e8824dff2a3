"""Does it hold? The verdict on a run, judged from its first arrival to its last.

*stable*, *growing* (the queue grows in the last third of that time), *overloaded* (it does, and
finishes fall behind arrivals), *offline* (all arrive at once, so there is no rate to hold), *unserved*
(nobody finished). Who was refused has arrived, but is in no queue.
A queue's values are tied to one another over time, so a trend fitted through them finds growth
everywhere. Both tests here look at what is free of that: steps, which in a stable queue cancel out,
and block minima, which in a stable queue return to the floor. `docs/metrics.md` has the reasons.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from typing import Any

import numpy as np

from simbatch.facts import FINISHED, REFUSED, Facts, Ints, durations_ps, each_replica

BLOCKS = 10
"""Equal spans of time that the last third is cut into."""
T_5_PERCENT = 1.833
"""One-sided 5 % point of Student's t with BLOCKS - 1 degrees of freedom."""
NORMAL_5_PERCENT = 1.645
NORMAL_2_5_PERCENT = 1.960
"""One-sided 5 % and 2.5 % points of the normal distribution; the latter where either of two tests may speak."""


def verdict(facts: Facts) -> str:
    """`stable`, `growing`, `overloaded`, `offline` or `unserved`: see the module for what each means."""
    everybody, status = np.sort(facts.requests["arrival_ps"]), facts.requests["status"]
    if everybody.size and not (status == FINISHED).any():
        return "unserved"
    if everybody.size < 2 or everybody[0] == everybody[-1]:
        return "offline"
    arrivals = np.sort(facts.requests["arrival_ps"][status != REFUSED])
    finishes = np.sort(facts.requests["finished_ps"][facts.requests["finished_ps"] >= 0])
    first, last = int(everybody[0]), int(everybody[-1])
    block_ps = (last - first) // (3 * BLOCKS)
    edges = last - block_ps * np.arange(BLOCKS, -1, -1)
    queue = Queue.of(facts)
    at_edges = queue.at(edges)

    backlog_before, backlog_now = (_backlog(arrivals, finishes, int(t)) for t in (edges[0], last))
    variation = max(1.0, _squared_variation(arrivals))
    ended = int(np.searchsorted(finishes, last, side="right"))
    ended_late = ended - int(np.searchsorted(finishes, edges[0], side="right"))
    arrived_late = backlog_now - backlog_before + ended_late
    # Waiting at the end is the backlog without those that are being served, as they should be.
    behind_overall = int(at_edges[-1]) > NORMAL_2_5_PERCENT * sqrt(variation * arrivals.size + ended)
    behind_late = backlog_now - backlog_before > NORMAL_2_5_PERCENT * sqrt(variation * arrived_late + ended_late)

    rising = _steps_up(at_edges) or (behind_overall and _trends_up(queue.minima(edges)))
    if not rising:
        return "stable"
    return "overloaded" if behind_overall or behind_late else "growing"


@dataclass(frozen=True)
class Queue:
    """How many requests wait, as steps over time: `waiting[i]` from `since_ps[i]` on; 0 while nothing runs."""

    since_ps: Ints
    waiting: Ints

    @classmethod
    def of(cls, facts: Facts) -> Queue:
        """From the rows of a run; queues of several replicas are added up."""
        steps = [cls._of_one(alone.rows) for alone in each_replica(facts)]
        if len(steps) == 1:
            return cls(*steps[0])
        since = np.concatenate([since for since, _ in steps])
        change = np.concatenate([np.diff(waiting, prepend=0) for _, waiting in steps])
        order = np.argsort(since, kind="stable")
        since, waiting = since[order], np.cumsum(change[order])
        # Of the steps of one instant the last has them all.
        last = np.append(since[1:] != since[:-1], True) if since.size else np.zeros(0, dtype=bool)
        return cls(since[last], waiting[last])

    @staticmethod
    def _of_one(rows: dict[str, Any]) -> tuple[Ints, Ints]:
        starts = rows["start_ps"]
        ends = starts + durations_ps(rows)
        idle = ends != np.append(starts[1:], -1)
        since = np.concatenate([starts, ends[idle]])
        waiting = np.concatenate([rows["waiting"], np.zeros(int(idle.sum()), dtype=np.int64)])
        order = np.argsort(since, kind="stable")
        return since[order], waiting[order]

    def at(self, instants_ps: Ints) -> Ints:
        """Waiting at each instant."""
        if not self.since_ps.size:
            return np.zeros(instants_ps.size, dtype=np.int64)
        step = np.searchsorted(self.since_ps, instants_ps, side="right") - 1
        return np.where(step < 0, 0, self.waiting[step])

    def minima(self, edges_ps: Ints) -> Ints:
        """The fewest that waited in each span between two edges."""
        least = self.at(edges_ps)[:-1].copy()
        bounds = np.searchsorted(self.since_ps, edges_ps, side="left")
        for block, (start, stop) in enumerate(pairwise(bounds.tolist())):
            if stop > start:
                least[block] = min(int(least[block]), int(self.waiting[start:stop].min()))
        return least


def _backlog(arrivals: Ints, finishes: Ints, instant_ps: int) -> int:
    """Requests that have arrived and not finished."""
    arrived, finished = (int(np.searchsorted(times, instant_ps, side="right")) for times in (arrivals, finishes))
    return arrived - finished


def _squared_variation(arrivals: Ints) -> float:
    """Variance of the gaps between arrivals ÷ their squared mean: 1 for Poisson arrivals, more for bursts.

    0 where there is no gap, or none above 0.
    """
    gaps = np.diff(arrivals).astype(np.float64)
    return float(gaps.var() / gaps.mean() ** 2) if gaps.any() else 0.0


def _steps_up(levels: Ints) -> bool:
    """Student's t on the steps between levels, one-sided at 5 %: is the mean step above 0?"""
    steps = np.diff(levels).astype(np.float64)
    mean, spread = float(steps.mean()), float(steps.std(ddof=1))
    return mean > 0 and mean * sqrt(steps.size) > T_5_PERCENT * spread


def _trends_up(levels: Ints) -> bool:
    """Mann and Kendall's test for a rising trend, one-sided at 5 %, with its correction for ties."""
    n = levels.size
    score = int(np.sign(np.subtract.outer(levels, levels))[np.tril_indices(n, -1)].sum())
    ties = np.unique(levels, return_counts=True)[1]
    variance = (n * (n - 1) * (2 * n + 5) - int((ties * (ties - 1) * (2 * ties + 5)).sum())) / 18
    return score > 1 and score - 1 > NORMAL_5_PERCENT * sqrt(variance)
