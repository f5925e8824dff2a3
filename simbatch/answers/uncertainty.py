"""What the error of a timing comes to in one run: the same again with every iteration shorter, and longer, by it.

A timing that was compared with measurements says how far off it may be. Below saturation the figures
move about as much; near it, where a queue is about to grow, a small error of the step becomes a
long wait, and that is said as a warning. With several seeds `simbatch.answers.replications` does the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from simbatch.answers.figures import at
from simbatch.answers.replications import bounds, timing_error
from simbatch.deployment import Deployment
from simbatch.errors import UsageError
from simbatch.result import Result
from simbatch.simulate import simulate

if TYPE_CHECKING:
    from simbatch.trace import Trace

AMPLIFIED = 2.0
"""Mean TTFT or TPOT that moves so many times as far as the iterations do is warned of."""
_JUDGED = {"TTFT": "latency_s.ttft.mean", "TPOT": "latency_s.tpot.mean"}


class Uncertainty:
    """A run and what the error of its timing does to it. Shows itself as the run, with a range for its figures."""

    def __init__(self, result: Result, scaled: Mapping[float, Result]) -> None:
        self.result = result
        self.scaled = dict(scaled)
        """The run again with every iteration longer by a factor; empty where the timing states no error."""

    @property
    def config(self) -> dict[str, Any]:
        """Everything that repeats the run."""
        return self.result.config

    def metrics(self, **asked: Any) -> dict[str, Any]:
        """The JSON object of the run, and `timing_error`: between what its figures lie when every iteration takes
        less, or longer, by the error of the timing; None where it states none.

        *asked* is what `Result.metrics` takes.
        """
        found = self.result.metrics(**asked)
        if not self.scaled:
            return {**found, "timing_error": None}
        relative = max(self.scaled) - 1
        ends = {factor: result.metrics(**asked) for factor, result in sorted(self.scaled.items())}
        warnings = [*found["warnings"], *near_saturation(found, ends, relative)]
        figures = bounds([found, *ends.values()])
        return {**found, "timing_error": {"relative": relative, "figures": figures}, "warnings": warnings}

    def __repr__(self) -> str:
        from simbatch.show.summary import summary_text

        return summary_text(self.metrics())

    def _repr_html_(self) -> str:
        return f'<pre style="max-height: 80vh; overflow: auto; line-height: 1.2">{escape(repr(self))}</pre>'


def uncertainty(trace: Trace, deployment: Deployment | None = None, **options: Any) -> Uncertainty:
    """Simulate *trace* as `simulate` does, and twice more with its iterations scaled by the error of the timing.

    *options* are those of `simulate`. Raises UsageError for a `timing_scale`, which is what this varies.
    """
    if "timing_scale" in options:
        raise UsageError("timing_scale is what is varied here. Leave it out, or simulate with it.")
    result = simulate(trace, deployment, **options)
    return around(result, lambda factor: simulate(trace, deployment, **options, timing_scale=factor))


def around(result: Result, again: Callable[[float], Result]) -> Uncertainty:
    """*result* with its ends; *again* repeats its run with every iteration longer by a factor."""
    error = timing_error(result)
    return Uncertainty(result, {factor: again(factor) for factor in (1 - error, 1 + error)} if error else {})


def near_saturation(found: dict[str, Any], ends: Mapping[float, dict[str, Any]], relative: float) -> list[str]:
    """A warning where a small error of iterations is a large one of waiting."""
    runs = [found, *ends.values()]
    moved = []
    for name, path in _JUDGED.items():
        values = [value for run in runs if (value := at(run, path))]
        if len(values) == len(runs) and (max(values) - min(values)) / values[0] > AMPLIFIED * 2 * relative:
            moved.append(
                f"mean {name} is {min(values) / values[0]:.2g} to {max(values) / values[0]:.2g} times that shown"
            )
    verdicts = sorted({run["verdict"] for run in runs})
    if len(verdicts) > 1:
        moved.append(f"the verdict is {' or '.join(verdicts)}")
    if not moved:
        return []
    return [
        "near saturation a small error of the iteration times is a large one of waiting: if they are off by "
        f"{relative * 100:.1f} %, {', '.join(moved)}"
    ]
