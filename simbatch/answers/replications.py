"""The same question with several seeds: how much of an answer is chance.

Each seed draws everything anew that was drawn for the trace: arrivals, sampled rows. Figures are
means over seeds with Student's interval; differences between systems are paired, since all systems
met the same requests. Replications are independent, so these intervals hold; percentiles inside
of one run are not, and get none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, TypeAlias

from simbatch.answers.figures import FIGURES, at, flat, intervals
from simbatch.answers.parallel import run_all
from simbatch.checks import shown, whole
from simbatch.deployment import Deployment
from simbatch.errors import UsageError
from simbatch.result import Result
from simbatch.simulate import check_world, simulate
from simbatch.stats import CONFIDENCE

if TYPE_CHECKING:
    import pandas as pd

    from simbatch.trace import Trace

Drawn: TypeAlias = "Trace | Callable[[int], Trace]"
"""A trace that can be drawn again, or a function from a seed to a trace."""


class Replications:
    """Runs that differ in their seed alone. Shows itself as the first one and the intervals over all."""

    def __init__(self, seeds: Sequence[int], results: Sequence[Result], scaled: Mapping[float, Result]) -> None:
        self.seeds = list(seeds)
        self.results = list(results)
        """One for each seed."""
        self.scaled = dict(scaled)
        """The first seed again with every iteration longer by a factor: what the error of the timing comes to."""

    @property
    def config(self) -> dict[str, Any]:
        """Of the first run."""
        return self.results[0].config

    def metrics(self, **asked: Any) -> dict[str, Any]:
        """The JSON object of the first run, and `replications`: the interval of each figure over the seeds.

        *asked* is what `Result.metrics` takes. Where the timing states an error, `timing_error` says between what
        the first run's figures lie when every iteration takes less, or longer, by it.
        """
        runs = [result.metrics(**asked) for result in self.results]
        found: dict[str, Any] = {"seeds": self.seeds, "confidence": CONFIDENCE, "figures": intervals(runs)}
        if self.scaled:
            ends = [result.metrics(**asked) for result in self.scaled.values()]
            found["timing_error"] = {
                "relative": max(self.scaled) - 1,
                "figures": bounds([runs[0], *ends]),
            }
        return {**runs[0], "replications": found}

    def frame(self, **asked: Any) -> pd.DataFrame:
        """One row per seed, units in the column names."""
        import pandas as pd

        rows = [flat(result.metrics(**asked)) for result in self.results]
        return pd.DataFrame(rows, index=pd.Index(self.seeds, name="seed"))

    def __repr__(self) -> str:
        from simbatch.show.replications import replications_text

        return replications_text(self.metrics())

    def _repr_html_(self) -> str:
        return f'<pre style="max-height: 80vh; overflow: auto; line-height: 1.2">{escape(repr(self))}</pre>'


def bounds(runs: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """The least and the most of each figure that all *runs* have."""
    found = {}
    for path in FIGURES:
        known = [value for run in runs if (value := at(run, path)) is not None]
        if len(known) == len(runs):
            found[path] = {"low": min(known), "high": max(known)}
    return found


def replicate(
    trace: Drawn,
    deployment: Deployment | None = None,
    *,
    seeds: int | Iterable[int] = 5,
    n_jobs: int = 1,
    on_progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> Replications:
    """Simulate *trace*, drawn anew with each of *seeds*, and give every figure with an interval.

    Parameters
    ----------
    trace
        One for which something was drawn (`at_rate`, `sample`), or a function from a seed to a trace.
    seeds
        How many, counted from the option `seed` (0), or which.
    n_jobs
        Processes: see `simbatch.answers.parallel`.
    on_progress
        Called with (runs done, runs in all).
    options
        What `simulate` takes.
    """
    chosen = chosen_seeds(seeds, options.pop("seed", 0))
    traces = [drawn(trace, seed) for seed in chosen]
    check_world(traces[0], deployment)
    jobs = [
        (one, {"deployment": deployment, **options, "seed": seed}) for one, seed in zip(traces, chosen, strict=True)
    ]
    results: dict[int, Result] = {}
    for number, result in run_all(run_one, jobs, n_jobs):
        results[number] = result
        if on_progress is not None:
            on_progress(len(results), len(jobs))
    error = timing_error(results[0])
    factors = [1 - error, 1 + error] if error else []
    again = [(traces[0], {**jobs[0][1], "timing_scale": factor}) for factor in factors]
    scaled = {factors[number]: result for number, result in run_all(run_one, again, n_jobs)}
    return Replications(chosen, [results[number] for number in sorted(results)], scaled)


def run_one(trace: Trace, arguments: dict[str, Any]) -> Result:
    """One run, as a job that may be done elsewhere."""
    return simulate(trace, **arguments)


def timing_error(result: Result) -> float:
    """The relative error of iteration times that the timing of a run states for itself; 0 where it states none."""
    timing = result.config.get("timing")
    error = timing.get("error") if isinstance(timing, dict) else None
    return float(error) if isinstance(error, int | float) and 0 < error < 1 else 0.0


def chosen_seeds(seeds: int | Iterable[int], first: int = 0) -> list[int]:
    """The seeds asked for. Raises UsageError for less than two, and for one that comes twice."""
    if isinstance(seeds, int) or not isinstance(seeds, Iterable):
        whole("the number of seeds", seeds, most=100_000)
        chosen = list(range(first, first + seeds))
    else:
        chosen = [whole("a seed", seed, least=0) for seed in seeds]
    if len(chosen) < 2 or len(set(chosen)) < len(chosen):
        raise UsageError(
            f"seeds is {shown(seeds)}, but an interval needs at least 2 different ones. Ask for 5 or more."
        )
    return chosen


def drawn(trace: Drawn, seed: int) -> Trace:
    """The trace of one seed."""
    from simbatch.trace import Trace

    if isinstance(trace, Trace):
        return trace.with_seed(seed)
    if callable(trace):
        return trace(seed)
    raise UsageError(f"the trace is {shown(trace)}. Give a Trace, or a function from a seed to a Trace.")
