"""What a dollar buys: requests within the limits, or tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from simbatch.errors import UsageError
from simbatch.show.plot.style import BLUE, by_name, styled
from simbatch.units import show_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

S_PER_HOUR = 3600


@styled
def capacity_per_dollar(data: Any, ax: Axes) -> None:
    """For each choice of a size, thousands of requests within the limits that a dollar pays for, at the highest rate.

    Whiskers are the intervals over seeds. For a result or several, thousands of output tokens as they were served.
    Raises UsageError where nothing has a price.
    """
    from simbatch.answers.sized import Size

    bars = _of_size(data) if isinstance(data, Size) else _of_results(data)
    if not bars:
        raise UsageError("nothing here has a price. Give price_usd_per_hour to the deployment.")
    names, values, spread = zip(*bars, strict=True)
    place = np.arange(len(names))
    ax.barh(place, values, color=BLUE, height=0.6)
    if any(spread):
        ax.errorbar(values, place, xerr=spread, fmt="none", ecolor="black", capsize=3, linewidth=1)
    for at, value, reach in zip(place, values, spread, strict=True):
        ax.annotate(show_number(value), (value + reach, at), textcoords="offset points", xytext=(6, 0), va="center")
    ax.set_yticks(place, names)
    ax.invert_yaxis()
    ax.margins(x=0.15)
    ax.set_xlim(left=0)
    of_size = isinstance(data, Size)
    ax.set_xlabel("thousand requests per USD" if of_size else "thousand output tokens per USD")
    ax.set_title("What a dollar buys, at the highest rate within the limits" if of_size else "What a dollar buys")
    ax.grid(axis="y", visible=False)


def _of_size(size: Any) -> list[tuple[str, float, float]]:
    bars = []
    for choice in size.choices:
        price = None if choice.deployment is None else choice.deployment.usd_per_hour
        if price and choice.found and choice.rate.mean:
            each = S_PER_HOUR / price / 1000
            spread = 0.0 if choice.rate.high is None else choice.rate.high - choice.rate.mean
            label = ", ".join(f"{name} {value}" for name, value in choice.varied.items())
            bars.append((label or str(choice.deployment.card.name), choice.rate.mean * each, spread * each))
    return bars


def _of_results(data: Any) -> list[tuple[str, float, float]]:
    bars = []
    for name, result in by_name(data).items():
        cost = result.metrics()["cost"]
        if cost and cost["usd_per_million_output_tokens"]:
            bars.append((name, 1000 / cost["usd_per_million_output_tokens"], 0.0))
    return bars
