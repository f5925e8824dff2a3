"""Other arrival times for the rows of a trace: drawn from a process, or the recorded ones scaled.

Where there are sessions, the process says when they begin. Their later turns get the time of the
first: they come when the turn before has ended, and not before.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from simbatch.errors import UsageError
from simbatch.trace.arrivals import Arrivals
from simbatch.trace.chains import chains
from simbatch.trace.columns import ARRAYS, scale_ps
from simbatch.trace.select import figure
from simbatch.units import MAX_PS

if TYPE_CHECKING:
    from simbatch.trace.trace import Trace


def arriving(trace: Trace, process: Arrivals, seed: int) -> dict[str, Any]:
    """Fields of *trace* with arrival times from *process*. Raises UsageError where the clock ends before."""
    if trace.session is None:
        return {"arrival_ps": process.times_ps(len(trace), seed)}
    first, following = chains(trace.session, len(trace))
    starts = process.scaled_to(process.rate_per_s * len(first) / len(trace)).times_ps(len(first), seed)
    arrival_ps = np.zeros(len(trace), dtype=np.int64)
    for row, start_ps in zip(first, starts.tolist(), strict=True):
        while row >= 0:
            arrival_ps[row] = start_ps
            row = following[row]
    if (np.diff(arrival_ps) >= 0).all():
        return {"arrival_ps": arrival_ps}
    order = np.argsort(arrival_ps, kind="stable")
    return {**reordered(trace, order.tolist()), "arrival_ps": arrival_ps[order]}


def reordered(trace: Trace, order: list[int]) -> dict[str, Any]:
    """Fields of *trace* with its rows in *order*; requests keep their names."""
    ids = tuple(map(str, range(len(trace)))) if trace.ids is None else trace.ids
    changes: dict[str, Any] = {name: getattr(trace, name)[order] for name in ARRAYS if getattr(trace, name) is not None}
    changes["prefix"] = {key: tuple(values[row] for row in order) for key, values in trace.prefix.items()}
    changes["ids"] = tuple(ids[row] for row in order)
    if trace.session is not None:
        changes["session"] = tuple(trace.session[row] for row in order)
    return changes


def scaled(trace: Trace, factor: float) -> dict[str, Any]:
    """Arrivals and think times of *trace*, times *factor*.

    Raises UsageError where there are none, or the clock ends before.
    """
    if trace.arrival_ps is None and trace.think_ps is None:
        raise UsageError(f"{trace.name} has no arrival times to scale. Give a rate instead, such as --rate 5.")
    changes: dict[str, Any] = {}
    for name in ("arrival_ps", "think_ps"):
        values = getattr(trace, name)
        if values is None:
            continue
        times_ps = scale_ps(values.tolist(), Fraction(str(factor)))
        if max(times_ps) > MAX_PS:
            raise UsageError(
                f"{trace.name}: scaled by {figure(factor)}, times pass the clock's end (106 days). Scale by less."
            )
        changes[name] = times_ps
    return changes
