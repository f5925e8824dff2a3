"""From flags to what the library takes: a trace, a deployment, engine options, limits.

Flags that were not given are left out, so that every default is said once, in the library. Flags
that contradict each other, or mean nothing without another, are refused; engine options that a system
does not have are warned of by the library.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from simbatch.errors import UsageError

if TYPE_CHECKING:
    from simbatch.deployment import Deployment
    from simbatch.limits import LatencyLimits
    from simbatch.trace import Trace

Asked = Mapping[str, Any]
"""Parameters of a verb by name; None where a flag was not given."""


def given(asked: Asked, names: Iterable[str]) -> dict[str, Any]:
    """Those of *names* that were given a value."""
    return {name: asked[name] for name in names if asked.get(name) is not None}


def load_trace(asked: Asked) -> Trace:
    """The file or bundled trace, read as asked."""
    from simbatch.trace import Trace

    how = ("drop_bad", "sort", "time_scale", "columns", "time_unit", "wrap_s", "hash_block_tokens", "seed")
    return Trace.load(asked["trace"], **given(asked, how))


def make_trace(asked: Asked) -> Trace:
    """The trace with rows and times as asked. Raises UsageError for flags that contradict each other."""
    rate, requests, seed = asked["rate_per_s"], asked["requests"], asked["seed"]
    arrivals, concurrency = asked["arrivals"], asked["concurrency"]
    drawn = "--rate" if rate is not None else "--arrivals"
    if rate is None and arrivals is None and asked["burstiness"] is not None:
        raise UsageError("--burstiness shapes arrivals at a rate, and there is none. Add --rate, such as --rate 5.")
    if (rate is not None or arrivals is not None) and asked["time_scale"] is not None:
        raise UsageError(
            f"{drawn} replaces recorded times, so --time-scale has nothing to multiply. Leave one of the two out."
        )
    if concurrency is not None and (rate is not None or arrivals is not None):
        raise UsageError(
            f"--concurrency is a closed loop, in which the answers set the pace, and {drawn} an open one. "
            "Leave one of the two out."
        )
    trace = load_trace(asked)
    if asked["open_loop"]:
        trace = trace.without_sessions()
    if asked["sample"]:
        trace = trace.sample(len(trace) if requests is None else requests, seed)
    elif requests is not None:
        trace = trace.head(requests)
    if arrivals is not None:
        from simbatch.trace.specs import parse_arrivals

        trace = trace.arriving(parse_arrivals(arrivals, rate, asked["burstiness"]), seed)
    elif rate is not None:
        trace = trace.at_rate(rate, seed=seed, **given(asked, ("burstiness",)))
    return trace if asked["n"] is None else trace.with_samples(asked["n"])


def deployment_arguments(asked: Asked) -> dict[str, Any]:
    """Every flag that a deployment knows."""
    from simbatch.options import DEPLOYMENT_OPTIONS

    return given(asked, DEPLOYMENT_OPTIONS)


def make_deployment(asked: Asked) -> Deployment:
    """The model on its GPUs."""
    from simbatch.deployment import Deployment

    return Deployment(**deployment_arguments(asked))


def engine_options(asked: Asked) -> dict[str, Any]:
    """Options of the engine. Those that a deployment knows too are said again: a system's default gives way to them."""
    from simbatch.options import Options

    return given(asked, [field.name for field in fields(Options)])


def make_limits(asked: Asked) -> LatencyLimits:
    """Limits on latency. Raises UsageError where they are required, or a percentile of them, and there are none."""
    from simbatch.limits import LatencyLimits

    limits = LatencyLimits(**given(asked, ("ttft_s", "tpot_s", "e2e_s", "percentile")))
    if asked.get("require") and not limits.given():
        raise UsageError("--require needs a limit. Add --ttft, --tpot or --e2e, such as --ttft 2s.")
    if asked.get("percentile") is not None and not limits.given():
        raise UsageError("--percentile needs a limit to be kept. Add --ttft, --tpot or --e2e, such as --ttft 2s.")
    return limits


def wanted(asked: Asked, limits: LatencyLimits) -> dict[str, Any]:
    """What `Result.metrics` is asked for: limits, and a warm-up that is left out."""
    return {
        "ttft_s": limits.ttft_s,
        "tpot_s": limits.tpot_s,
        "e2e_s": limits.e2e_s,
        "percentile": limits.percentile,
        **given(asked, ("warmup_s",)),
    }
