"""What the error of the timing comes to in a comparison: every system again with its iterations shorter, and longer.

A profile that is wrong is wrong for all systems that use it. So the ratio of two of them is taken with both scaled
alike. Systems with timings of their own may be off each by itself, and their ratio is taken over every combination.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from simbatch.answers.figures import at
from simbatch.answers.replications import bounds, timing_error
from simbatch.errors import SimbatchError, UsageError
from simbatch.result import Result
from simbatch.simulate import simulate

if TYPE_CHECKING:
    from simbatch.trace import Trace

RATIOS = (
    "throughput.output_tokens_per_s",
    "latency_s.ttft.mean",
    "latency_s.tpot.mean",
    "cost.usd_per_million_output_tokens",
)
"""What ratios to the first system are given for, as paths into the JSON object of a run."""
INTERRUPTED = "interrupted before its end"


def check_scalable(trace: Trace, arguments: Iterable[dict[str, Any]]) -> None:
    """Find out with the first request of *trace* alone whether any timing states an error.

    *arguments* of `simulate`, for each system. Raises UsageError where none does, and for a `timing_scale` in them.
    """
    every = list(arguments)
    if any("timing_scale" in own for own in every):
        raise UsageError("timing_scale is what is varied here. Leave it out, or leave uncertainty out.")
    silent: list[str] = []
    for own in every:
        try:
            result = simulate(trace.head(1), **_plain(own))
        except SimbatchError:
            continue  # the run itself will say so in its place
        if timing_error(result):
            return
        silent.append(_name(result))
    if silent:
        raise UsageError(
            f"uncertainty: the timing {', '.join(dict.fromkeys(silent))} states no error that could be put through. "
            "Take a profile (simbatch list profiles), or leave uncertainty out."
        )


def scaled_jobs(
    results: Mapping[str, Result], arguments: Mapping[str, dict[str, Any]]
) -> list[tuple[str, float, dict[str, Any]]]:
    """(system, factor, arguments of `simulate`) for both ends of every system whose timing states an error."""
    return [
        (name, factor, {**_plain(arguments[name]), "timing_scale": factor})
        for name, result in results.items()
        if (error := timing_error(result))
        for factor in (1 - error, 1 + error)
    ]


def silent_systems(results: Mapping[str, Result]) -> dict[str, str]:
    """Systems that have no range, since their timing states no error, and why."""
    return {
        name: f"its timing {_name(result)} states no error"
        for name, result in results.items()
        if not timing_error(result)
    }


def ranges(
    runs: Mapping[str, dict[str, Any]], ends: Mapping[str, Mapping[float, dict[str, Any]]], base: str
) -> dict[str, Any]:
    """Between what the figures of each system lie, and their ratios to those of *base*.

    *runs* are the JSON objects of all systems, *ends* those of their scaled runs, by factor.
    """
    relative = {name: max(of_one) - 1 for name, of_one in ends.items()}
    apart = [name for name in ends if name != base] if base in ends else []
    entries = [_ratio(path, base, name, runs, ends) for name in apart for path in RATIOS]
    return {
        "relative": next(iter(relative.values())) if len(set(relative.values())) == 1 else None,
        "systems": {
            name: {"relative": relative[name], "figures": bounds([runs[name], *of_one.values()])}
            for name, of_one in ends.items()
        },
        "ratios": [entry for entry in entries if entry],
    }


def _ratio(
    path: str,
    a: str,
    b: str,
    runs: Mapping[str, dict[str, Any]],
    ends: Mapping[str, Mapping[float, dict[str, Any]]],
) -> dict[str, Any] | None:
    """How many times the figure of *a* that of *b* is; None where one of the runs has none."""
    alike = runs[a]["config"]["timing"] == runs[b]["config"]["timing"]
    of_a, of_b = ([at(run, path) for run in (runs[name], *ends[name].values())] for name in (a, b))
    pairs = zip(of_a, of_b, strict=True) if alike else itertools.product(of_a, of_b)
    ratios = [more / less for less, more in pairs if less and more is not None]
    if len(ratios) < (len(of_a) if alike else len(of_a) * len(of_b)):
        return None
    return {
        "metric": path,
        "a": a,
        "b": b,
        "ratio": ratios[0],
        "low": min(ratios),
        "high": max(ratios),
        "scaled_alike": alike,
    }


def _plain(arguments: dict[str, Any]) -> dict[str, Any]:
    """The same run by the quick path, which gives the same result and writes no decisions down."""
    return {**arguments, "step": False, "log": None}


def _name(result: Result) -> str:
    timing = result.config["timing"]
    return str(timing.get("name", "given")) if isinstance(timing, dict) else "given"
