"""How good a fitted timing is: predicted against measured, each by a fit that had not seen it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from simbatch.errors import UsageError
from simbatch.show.plot.style import BLUE, GREY, plain_numbers, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_DOTS = 20_000
_BAND = 0.10


@styled
def predicted_against_measured(fit: Any, ax: Axes) -> None:
    """Iteration times of what `sb.fit` returned: the line is a perfect prediction, the band is ± 10 %.

    Where several iterations were measured together it is their mean.

    Raises UsageError for fits to client-side results, which have no iterations to compare with.
    """
    problem = getattr(fit, "problem", None)
    if problem is None:
        raise UsageError(
            "there are no measured iterations to compare with. Draw a fit to logs of iterations or tables."
        )
    # An observation may be the time of several iterations together.
    measured_ms = np.asarray(problem.measured_s) / problem.total(np.ones(problem.count.size)) * 1e3
    errors = np.asarray(fit.unseen_errors)
    step = -(-measured_ms.size // _MOST_DOTS)
    ends = np.array([measured_ms.min() * 0.8, measured_ms.max() * 1.25])
    ax.fill_between(ends, ends * (1 - _BAND), ends * (1 + _BAND), color=GREY, alpha=0.25, linewidth=0)
    ax.plot(ends, ends, color=GREY, linewidth=1.2)
    ax.plot(
        measured_ms[::step],
        (measured_ms * (1 + errors))[::step],
        ".",
        color=BLUE,
        markersize=4,
        alpha=0.5,
        rasterized=True,
    )
    within = float((np.abs(errors) <= _BAND).mean())
    ax.text(
        0.02,
        0.97,
        f"{within:.1%} of {errors.size:,} within ± {_BAND:.0%}",
        transform=ax.transAxes,
        va="top",
        color="black",
    )
    ax.set_xscale("log")
    ax.set_yscale("log")
    for axis in (ax.xaxis, ax.yaxis):
        plain_numbers(axis)
    ax.set_xlim(*ends)
    ax.set_ylim(*ends)
    ax.set_xlabel("measured iteration (ms)")
    ax.set_ylabel("predicted iteration (ms)")
    ax.set_title(f"Predicted against measured: {fit.card.name}")
