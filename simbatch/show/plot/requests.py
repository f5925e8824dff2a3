"""The lives of single requests: queued, computing the prompt, decoding, preempted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from simbatch.facts import REQUEST_TIMES
from simbatch.show.plot.style import BLUE, GREY, ORANGE, RED, one_result, styled
from simbatch.units import PS_PER_S
from simbatch.waits import has_waits, stays_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from simbatch.result import Result


@styled
def timeline(result: Result, ax: Axes, *, most: int = 200) -> None:
    """One line per request, the first *most* that arrived; red while it was preempted.

    In a run saved before that was recorded a dot marks who was.
    """
    columns = one_result(result).facts.requests
    order = np.argsort(columns["arrival_ps"], kind="stable")[:most]
    arrived, scheduled, first, finished = (columns[name][order] / PS_PER_S for name in REQUEST_TIMES)
    place = np.arange(order.size)
    served = scheduled >= 0
    for label, colour, begin, end, ok in (
        ("queued", GREY, arrived, scheduled, served),
        ("prompt", ORANGE, scheduled, first, served & (first >= 0)),
        ("decode", BLUE, first, finished, finished >= 0),
    ):
        ax.hlines(place[ok], begin[ok], end[ok], color=colour, linewidth=1.5, label=label)
    thrown_out = columns["preemptions"][order] > 0
    if thrown_out.any() and has_waits(result.facts):
        stays = stays_of(result.facts)
        line = np.full(columns["status"].size, -1)
        line[order] = place
        mine = line[stays["request"]] >= 0
        out, back = (stays[name][mine] / PS_PER_S for name in ("out_ps", "back_ps"))
        ax.hlines(line[stays["request"][mine]], out, back, color=RED, linewidth=1.5, label="preempted")
    elif thrown_out.any():
        ax.plot(finished[thrown_out], place[thrown_out], "o", color=RED, markersize=3, label="was preempted")
    ax.invert_yaxis()
    ax.set_xlabel("simulated time (s)")
    ax.set_ylabel("requests in order of arrival")
    ax.set_title(f"The first {order.size} requests")
    ax.grid(axis="y", visible=False)
    ax.legend(loc="upper right")
