"""What a rate does: latency against it, and how much of it is served within the limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from simbatch.errors import UsageError
from simbatch.show.plot.style import CYCLE, GREY, RED, plain_numbers, styled
from simbatch.units import show_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HOW = "Give what size or sweep returned (a sweep over rate_per_s), or several of them by name."


@styled
def rate_latency(data: Any, ax: Axes, *, latency: str = "e2e_mean_s") -> None:
    """Latency against the rate of requests, and its knee: most throughput for its latency (Kleinrock's power).

    *data* is what `sb.size` or, over ``rate_per_s``, `sb.sweep` returned, or several by name; *latency* is a
    column of a sweep. A size also has its highest rate within the limits drawn; it knows the mean end to end.
    """
    for (label, curve), colour in _coloured(data, latency):
        rates, seconds = curve["rate_per_s"], curve[latency]
        ax.plot(rates, seconds, "o-", color=colour, markersize=4, label=label)
        knee = int(np.argmax(rates / seconds))
        if 0 < knee < rates.size - 1:  # at an end it is that of the rates tried
            ax.plot(rates[knee], seconds[knee], "D", color=colour, markersize=9, markerfacecolor="none")
            ax.annotate(
                f"knee {show_number(float(rates[knee]))}/s",
                (rates[knee], seconds[knee]),
                textcoords="offset points",
                xytext=(-6, 9),
                ha="right",
                color=colour,
            )
        _highest(curve, ax, label and colour)
    ax.set_yscale("log")
    plain_numbers(ax.yaxis)
    ax.set_xlim(left=0)
    ax.set_xlabel("requests per second")
    ax.set_ylabel(f"{latency.removesuffix('_s').replace('_', ' ')} (s)")
    ax.set_title("Latency against rate")
    _legend(ax)


@styled
def goodput(data: Any, ax: Axes) -> None:
    """Requests per second that keep all limits, against those that arrive; the dashed line is all of them.

    It is the rate of arrivals times the share that keeps the limits, so that the end of a trace, when the last
    requests run alone, does not count. *data* is what `sb.size` or, over ``rate_per_s`` and with limits, `sb.sweep`
    returned, or several by name.
    """
    most = 0.0
    for (label, curve), colour in _coloured(data, "good_share"):
        rates, good = curve["rate_per_s"], curve["rate_per_s"] * curve["good_share"]
        ax.plot(rates, good, "o-", color=colour, markersize=4, label=label)
        most = max(most, float(rates.max()))
        _highest(curve, ax, label and colour)
    ax.plot([0, most], [0, most], color=GREY, linestyle="--", linewidth=1.2)
    ax.text(most, most, "all that arrive ", color=GREY, ha="right", va="bottom")
    ax.set_xlim(left=0)
    ax.set_ylim(bottom=0)
    ax.set_xlabel("requests per second")
    ax.set_ylabel("requests per second within the limits")
    ax.set_title("Goodput against rate")
    _legend(ax)


def _coloured(data: Any, column: str) -> list[tuple[tuple[str, dict[str, Any]], str]]:
    curves = curves_of(data, column)
    return list(zip(curves.items(), CYCLE * (len(curves) // len(CYCLE) + 1), strict=False))


def curves_of(data: Any, column: str) -> dict[str, dict[str, Any]]:
    """`rate_per_s` and *column* of each curve in *data*, in order of the rate; with `highest_per_s` where it is known.

    A sweep over more than the rate has a curve for each combination of the rest of its grid.
    """
    import pandas as pd

    from simbatch.answers.sized import Size

    curves: dict[str, dict[str, Any]] = {}
    for name, one in data.items() if isinstance(data, Mapping) and not isinstance(data, pd.DataFrame) else [("", data)]:
        if isinstance(one, Size):
            curves[name] = _of_size(one)
        elif isinstance(one, pd.DataFrame):
            curves |= {f"{name} {rest}".strip(): curve for rest, curve in _of_sweep(one, column)}
        else:
            raise UsageError(f"a {type(one).__name__} has no rates to draw. {_HOW}")
    for curve in curves.values():
        if column not in curve:
            raise UsageError(f"there is no {column!r} to draw. {_HOW}")
        known = np.isfinite(curve["rate_per_s"]) & np.isfinite(curve[column])
        if not known.any():
            raise UsageError("no run of it served anybody, so there is nothing to draw. Try lower rates.")
        order = np.argsort(curve["rate_per_s"][known], kind="stable")
        curve |= {key: curve[key][known][order] for key in ("rate_per_s", column)}
    return curves


def _of_size(size: Any) -> dict[str, Any]:
    best = size.best
    probes = [one for one in best.curve if one.e2e_mean_s is not None]
    if not probes:
        raise UsageError(f"the size has no curve: {best.failed or 'nothing was served'}.")
    return {
        "rate_per_s": np.array([one.rate_per_s for one in probes]),
        "e2e_mean_s": np.array([one.e2e_mean_s for one in probes]),
        "good_share": np.array([one.share for one in probes]),
        "highest_per_s": best.rate.mean if best.found else None,
    }


def _of_sweep(frame: Any, column: str) -> list[tuple[str, dict[str, Any]]]:
    if "rate_per_s" not in frame or column not in frame:
        missing = "rate_per_s" if "rate_per_s" not in frame else column
        raise UsageError(f"the table has no column {missing!r}. {_HOW}")
    varied = list(frame.columns[: list(frame.columns).index("verdict")]) if "verdict" in frame else ["rate_per_s"]
    others = [name for name in varied if name != "rate_per_s" and frame[name].nunique() > 1]
    groups = frame.groupby(others, sort=False) if others else [((), frame)]
    return [
        (
            ", ".join(v if isinstance(v, str) else f"{name} {v}" for name, v in zip(others, key, strict=True)),
            {name: rows[name].to_numpy(dtype=float) for name in ("rate_per_s", column)},
        )
        for key, rows in groups
    ]


def _highest(curve: dict[str, Any], ax: Axes, colour: str) -> None:
    """Where the highest rate is known, draw it: red, or in the *colour* of one of several curves."""
    colour = colour or RED
    if curve.get("highest_per_s"):
        ax.axvline(curve["highest_per_s"], color=colour, linestyle="--", linewidth=1.2)
        ax.text(
            curve["highest_per_s"],
            0.03,
            f"within the limits up to {show_number(curve['highest_per_s'])}/s ",
            color=colour,
            ha="right",
            rotation=90,
            va="bottom",
            transform=ax.get_xaxis_transform(),
        )


def _legend(ax: Axes) -> None:
    if len(ax.get_legend_handles_labels()[1]) > 1:
        ax.legend(loc="best")
