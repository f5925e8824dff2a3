"""How our figures look: one palette, one way to name things on an axis."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any

from simbatch.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

    from simbatch.result import Result

BLUE, ORANGE, GREEN, RED, PURPLE, BROWN, SKY, GREY = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#7F5B3A",
    "#56B4E9",
    "#9A9A9A",
)
"""Okabe and Ito's palette for all kinds of colour vision, yellow replaced by brown."""
CYCLE = (BLUE, ORANGE, GREEN, RED, PURPLE, BROWN, SKY, GREY)

_STYLE: dict[Any, Any] = {
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": "medium",
    "figure.figsize": (7.2, 4.0),
    "figure.constrained_layout.use": True,
    "font.size": 10,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "svg.fonttype": "none",
}


def styled(plot: Callable[..., None]) -> Callable[..., Axes]:
    """Run *plot* in our style, on the axis given or on one of its own; nothing global changes."""

    @wraps(plot)
    def drawn(data: Any, ax: Axes | None = None, **options: Any) -> Axes:
        import matplotlib.pyplot as plt

        with plt.rc_context(_STYLE):
            if ax is None:
                _, ax = plt.subplots()
            plot(data, ax, **options)
        return ax

    return drawn


def plain_numbers(axis: Axis) -> None:
    """Label a logarithmic *axis* with numbers, not with powers of ten."""
    from matplotlib.ticker import LogFormatter

    class Plain(LogFormatter):
        def __call__(self, x: float, pos: int | None = None) -> str:
            return f"{x:g}" if super().__call__(x, pos) else ""

    axis.set_major_formatter(Plain())
    axis.set_minor_formatter(Plain(minor_thresholds=(1, 0.4)))


def by_name(data: Result | Mapping[str, Result] | Any) -> dict[str, Result]:
    """The results in *data* by the name to draw beside them: one, a mapping, or a comparison.

    Raises UsageError for anything else, and where there is none.
    """
    results = getattr(data, "results", data)
    if not isinstance(results, Mapping):
        return {str(one_result(results).config.get("system") or "result"): results}
    if not results:
        raise UsageError("there is no result to draw. Give one, or several of them by name.")
    return {str(name): one_result(result) for name, result in results.items()}


def one_result(data: Any) -> Result:
    """*data*, which must be one result: raises UsageError for anything else."""
    from simbatch.result import Result

    if isinstance(data, Result):
        return data
    several = getattr(data, "results", data)
    hint = ""
    if isinstance(several, Mapping) and several:
        hint = f" Take one of its own: {', '.join(map(str, several))}."
    raise UsageError(f"this draws a result of simulate or Result.load, and was given a {type(data).__name__}.{hint}")
