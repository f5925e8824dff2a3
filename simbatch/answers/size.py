"""How many GPUs for a rate within limits, and the highest rate that one replica holds.

The latter is an interval over seeds, since a capacity is a distribution: each seed has requests and
arrivals of its own. For a rate, the number of replicas that follows from the lower end of the interval, or from
the lowest of its seeds, is simulated behind a router, and corrected by what comes out. Several deployments or engine
options make a table, cheapest first among those that keep the limits.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from simbatch.answers.highest_rate import (
    FEWEST_OF_SATURATION,
    MOST_OF_SATURATION,
    Found,
    Probe,
    Traffic,
    probe,
    saturated_per_s,
    search,
)
from simbatch.answers.parallel import run_all
from simbatch.answers.replications import chosen_seeds
from simbatch.answers.sized import Choice, Size
from simbatch.checks import real
from simbatch.deployment import Deployment
from simbatch.errors import SimbatchError, UsageError, unknown
from simbatch.limits import DEFAULT_PERCENTILE, LatencyLimits
from simbatch.options import DEPLOYMENT_OPTIONS, Options
from simbatch.router import DEFAULT_ROUTER, Router, describe_router, make_router
from simbatch.simulate import MOST_REPLICAS, check_world
from simbatch.stats import interval
from simbatch.version import __version__

if TYPE_CHECKING:
    from simbatch.trace import Trace

_KNEE_AT = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1)
"""Shares of the highest rate at which the curve of latency over rate is drawn."""
_CORRECTIONS = 3
"""Replicas by which a simulated number may differ from the one that the interval gives."""
_OTHERS = ("system", "scheduler", "memory", "timing")


def size(
    trace: Trace | Callable[[float, int], Trace],
    deployment: Deployment | None = None,
    *,
    rate_per_s: float | None = None,
    ttft_s: float | None = None,
    tpot_s: float | None = None,
    e2e_s: float | None = None,
    percentile: float = DEFAULT_PERCENTILE,
    seeds: int | Iterable[int] = 5,
    requests: int | None = None,
    burstiness: float = 1.0,
    router: Router | str = DEFAULT_ROUTER,
    over: Mapping[str, Iterable[Any]] | None = None,
    n_jobs: int = 1,
    on_progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> Size:
    """The highest rate at which *percentile* per cent of requests keep all limits, and what a rate takes.

    Parameters
    ----------
    trace
        What requests look like; its times are replaced. Or a function from (requests per second, seed) to a trace.
    rate_per_s
        How many requests per second there are to be served by all replicas; None: only one replica is measured.
    seeds
        How many, or which. Each draws requests (with replacement, where there are no sessions and no shared
        prompts) and arrivals.
    requests
        In each run of one replica; by default as many as the trace has, at most 10,000.
    over
        Names of deployment arguments and engine options (``gpu``, ``tensor_parallel_size``, ``max_num_seqs``, …) and
        the values to try, in all combinations.
    n_jobs
        Processes: see `simbatch.answers.parallel`.
    options
        What `simulate` takes; a price per GPU may be a dict by GPU where `over` has several.

    Raises UsageError without any limit, and what failed when every combination did.
    """
    limits = LatencyLimits(ttft_s, tpot_s, e2e_s, percentile)
    if not limits.given():
        raise UsageError("size needs a limit that is to be kept. Give ttft_s, tpot_s or e2e_s (--ttft 500ms).")
    if rate_per_s is not None and not 0 < real("the rate", rate_per_s, "requests per second") < math.inf:
        raise UsageError(f"the rate is {rate_per_s:g}. Give requests per second, above 0.")
    if not callable(trace):
        check_world(trace, deployment)
    make_router(router)
    traffic = Traffic(trace, requests, burstiness)
    chosen = chosen_seeds(seeds, options.pop("seed", 0))
    combinations = _combinations(over or {})
    found: list[Choice] = []
    errors: list[SimbatchError] = []
    for number, varied in enumerate(combinations):
        try:
            here, arguments = _arguments(deployment, options, varied)
            found.append(_choice(varied, traffic, here, arguments, limits, chosen, n_jobs, rate_per_s, router))
        except SimbatchError as error:
            errors.append(error)
            found.append(Choice(varied, None, failed=str(error)))
        if on_progress is not None:
            on_progress(number + 1, len(combinations))
    if len(errors) == len(combinations):
        raise errors[0]
    config = {
        "simbatch": __version__,
        "trace": traffic.at(1.0, chosen[0]).describe(),
        "seeds": chosen,
        "limits_s": limits.given(),
        "percentile": percentile,
        "rate_per_s": rate_per_s,
        "burstiness": burstiness,
        "router": describe_router(router),
        "requests": traffic.count,
        "over": {name: list(values) for name, values in (over or {}).items()},
        "options": dict(options),
    }
    return Size(config, found)


def _combinations(over: Mapping[str, Iterable[Any]]) -> list[dict[str, Any]]:
    known = {*DEPLOYMENT_OPTIONS, *Options.__dataclass_fields__, *_OTHERS} - {"price_usd_per_hour"}
    for name, values in over.items():
        if name not in known:
            raise unknown("option to try several of", name, known)
        if isinstance(values, str) or not list(values):
            raise UsageError(f"{name} is {values!r}, which is no list of values to try. Give for example [1, 2].")
    return [dict(zip(over, values, strict=True)) for values in itertools.product(*over.values())]


def _arguments(
    deployment: Deployment | None, options: dict[str, Any], varied: dict[str, Any]
) -> tuple[Deployment | None, dict[str, Any]]:
    """The deployment and the arguments of `simulate` for one combination."""
    options = dict(options)
    prices = options.pop("price_usd_per_hour", None)
    own = {name: value for name, value in varied.items() if name in DEPLOYMENT_OPTIONS}
    rest = {name: value for name, value in varied.items() if name not in DEPLOYMENT_OPTIONS}
    if own and deployment is None:
        raise UsageError(f"{', '.join(own)} belong to a deployment, and there is none. Give one, such as Deployment().")
    here = deployment
    if here is not None:
        if prices is not None:
            own["price_usd_per_hour"] = _price(prices, own.get("gpu", here.gpu), here)
        here = here.replace(**own)
        # Said again, since a system's default gives way to them.
        rest |= {name: value for name, value in own.items() if name in Options.__dataclass_fields__}
    return here, {**options, **rest, "deployment": here}


def _price(prices: Any, gpu: Any, here: Deployment) -> float | None:
    if not isinstance(prices, Mapping):
        return real("the price", prices, "dollars per hour")
    for name, price in prices.items():
        if here.replace(gpu=name).card.name == here.replace(gpu=gpu).card.name:
            return real(f"the price of {name}", price, "dollars per hour")
    raise UsageError(f"there is no price for {gpu}. Give one for each GPU, or none at all.")


def _choice(
    varied: dict[str, Any],
    traffic: Traffic,
    here: Deployment | None,
    arguments: dict[str, Any],
    limits: LatencyLimits,
    seeds: list[int],
    n_jobs: int,
    rate_per_s: float | None,
    router: Router | str,
) -> Choice:
    """Everything about one combination."""
    saturated = saturated_per_s(traffic, seeds[0], arguments)
    bounds = saturated * FEWEST_OF_SATURATION, saturated * MOST_OF_SATURATION
    if not saturated:
        return Choice(varied, here, failed="none of the requests can be served")
    first = search(traffic, seeds[0], limits, arguments, (saturated / 2, saturated * 1.05), bounds)
    if first.held is None:
        return Choice(varied, here, found=[first], failed="no rate keeps the limits")
    if first.broken is None:
        return Choice(varied, here, failed=_too_short(first.held))
    near = first.rate_per_s / 1.04, first.rate_per_s * 1.04
    jobs = [(traffic, seed, limits, arguments, near, bounds) for seed in seeds[1:]]
    others = dict(run_all(search, jobs, n_jobs))
    found = [first, *(others[number] for number in range(len(jobs)))]
    endless = next((one.held for one in found if one.held is not None and one.broken is None), None)
    if endless is not None:
        return Choice(varied, here, failed=_too_short(endless))
    error = first.held.timing_error
    scaled: list[Found] = []
    if error:
        jobs = [
            (traffic, seeds[0], limits, {**arguments, "timing_scale": 1 + sign * error}, near, bounds)
            for sign in (1, -1)
        ]
        scaled = [outcome for _, outcome in sorted(run_all(search, jobs, n_jobs), key=lambda pair: pair[0])]
    curve = [(traffic, first.rate_per_s * share, seeds[0], limits, arguments) for share in _KNEE_AT]
    drawn = [one for _, one in sorted(run_all(probe, curve, n_jobs), key=lambda pair: pair[0])]
    choice = Choice(varied, here, found=found, scaled=scaled, curve=drawn)
    if rate_per_s is not None:
        rates = [one.rate_per_s for one in found]
        # With few seeds the interval reaches far below all of them; what follows is simulated with each in any case.
        least = max(interval(rates).low or 0.0, min(rates))
        if least <= 0:
            return Choice(varied, here, found=found, failed="with some seeds no rate keeps the limits")
        replicas = math.ceil(rate_per_s / least)
        if replicas > MOST_REPLICAS - _CORRECTIONS:
            raise UsageError(
                f"{rate_per_s:,.0f} requests per second are {replicas:,} replicas of {least:,.3g} each, "
                f"more than the {MOST_REPLICAS:,} that can be simulated together. Give a lower rate and multiply."
            )
        choice.checks = _checked(replicas, traffic, rate_per_s, seeds, limits,
                                 {**arguments, "router": router}, n_jobs)  # fmt: skip
    return choice


def _too_short(held: Probe) -> str:
    """Why a rate that nothing broke is no answer."""
    return (
        f"the trace is too short to tell: {held.rate_per_s:.3g} requests/s, many times what is served in the long run, "
        "still keep the limits; give more requests, or stricter limits"
    )


def _checked(
    replicas: int,
    traffic: Traffic,
    rate_per_s: float,
    seeds: list[int],
    limits: LatencyLimits,
    arguments: dict[str, Any],
    n_jobs: int,
) -> dict[int, list[Probe]]:
    """Simulations of so many replicas at the rate: from *replicas* on up until it is held, or down while it is."""
    checks: dict[int, list[Probe]] = {}

    def holds(count: int) -> bool:
        jobs = [(traffic, rate_per_s, seed, limits, {**arguments, "replicas": count}) for seed in seeds]
        checks[count] = [one for _, one in sorted(run_all(probe, jobs, n_jobs), key=lambda pair: pair[0])]
        return all(one.held for one in checks[count])

    count = replicas
    if holds(count):
        while count > max(1, replicas - _CORRECTIONS) and holds(count - 1):
            count -= 1
    else:
        while count < replicas + _CORRECTIONS and not holds(count + 1):
            count += 1
    return checks
