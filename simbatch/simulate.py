"""One run: a trace, a deployment and a system go in, a result comes out."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import simpy

from simbatch.async_engine import AsyncEngine
from simbatch.decisions import DecisionLog
from simbatch.deployment import Deployment
from simbatch.engine import Engine
from simbatch.facts import Facts
from simbatch.memory.base import Memory
from simbatch.options import Setup, set_up
from simbatch.parts import make_memory, make_scheduler, make_timing
from simbatch.record import Recorder
from simbatch.result import Result
from simbatch.scheduler import Scheduler
from simbatch.systems import DEFAULT_SYSTEM, find_system
from simbatch.timing import Timing
from simbatch.version import __version__
from simbatch.workload import replay

if TYPE_CHECKING:
    from simbatch.trace import Trace


def simulate(
    trace: Trace,
    deployment: Deployment | None = None,
    *,
    system: str = DEFAULT_SYSTEM,
    scheduler: Scheduler | str | None = None,
    memory: Memory | str | None = None,
    timing: Timing | str | None = None,
    step: bool = False,
    log: DecisionLog | None = None,
    seed: int = 0,
    on_progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> Result:
    """Serve the requests of *trace* on *deployment* and return what happened.

    Parameters
    ----------
    trace
        Requests with or without arrival times; without, everything arrives at time 0.
    deployment
        Model, GPU and KV memory. May be left out when *timing* and `kv_tokens` (or a *memory*) and
        `max_model_len` are given.
    system
        A named bundle of scheduler and memory: see `simbatch list systems`.
    scheduler, memory, timing
        Override a part: an object, a built-in's name, or ``module:Class``. Objects are copied, so
        one of them serves any number of runs. *timing* may also be ``linear:base_ms=5,…``.
    step
        Take every iteration alone (the plain path): same result, and `Result.decisions`, kept by
        *log* (a `DecisionLog` unless you give one of your own).
    on_progress
        Called now and then with (requests done, requests in all).
    options
        Engine options by vLLM's names: see `simbatch.options.Options`.

    Raises UsageError for what cannot be set up and PolicyError for a policy that breaks its contract.
    """
    bundle = find_system(system)
    setup = set_up(bundle, deployment, options, shares=bool(trace.prefix))
    policy = _scheduler(scheduler or bundle.scheduler, setup)
    policy.start(setup.limits)
    kv = _memory(memory or bundle.memory, setup)
    clock = make_timing(timing or "roofline", setup) if timing is None or isinstance(timing, str) else timing

    env = simpy.Environment()
    recorder = Recorder(len(trace), kv.capacity_tokens, on_progress)
    if step and log is None:
        log = DecisionLog()
    engine_class = AsyncEngine if setup.options.async_scheduling else Engine
    engine = engine_class(env, policy, kv, clock, recorder, step=step, log=log)
    env.process(replay(env, trace.requests(), engine.submit))
    started = time.perf_counter()
    env.run()
    wall_s = time.perf_counter() - started
    engine.check_served()

    config = {
        "simbatch": __version__,
        "trace": trace.describe(),
        "deployment": None if setup.deployment is None else setup.deployment.describe(),
        "system": system,
        "limits": asdict(setup.limits),
        "scheduler": policy.describe(),
        "memory": kv.describe(),
        "timing": clock.describe(),
        "options": options,
        "seed": seed,
        "step": step,
    }
    return Result(_facts(trace, recorder, env, wall_s, setup, config, log))


def _scheduler(given: Scheduler | str, setup: Setup) -> Scheduler:
    return make_scheduler(given, setup) if isinstance(given, str) else copy.deepcopy(given)


def _memory(given: Memory | str, setup: Setup) -> Memory:
    return make_memory(given, setup) if isinstance(given, str) else copy.deepcopy(given)


def _facts(
    trace: Trace,
    recorder: Recorder,
    env: simpy.Environment,
    wall_s: float,
    setup: Setup,
    config: dict[str, Any],
    log: DecisionLog | None,
) -> Facts:
    rows, requests, extra_gaps = recorder.frames()
    count = len(trace)
    requests["arrival_ps"] = np.zeros(count, np.int64) if trace.arrival_ps is None else trace.arrival_ps
    requests["prompt_tokens"] = trace.prompt_tokens
    deployment = setup.deployment
    return Facts(
        requests=requests,
        ids=[str(i) for i in range(count)] if trace.ids is None else trace.ids,
        rows=rows,
        extra_gaps=extra_gaps,
        capacity_tokens=recorder.capacity_tokens,
        peak_held_tokens=recorder.peak_held_tokens,
        iterations=recorder.iterations,
        events=next(env._eid),
        wall_s=wall_s,
        config=config,
        gpu_memory_share=None if deployment is None else deployment.kv_cache_bytes / deployment.gpu_memory_bytes,
        price_usd_per_hour=None if deployment is None else deployment.usd_per_hour,
        warnings=_warnings(trace, recorder, deployment),
        planned_ahead=bool(setup.options.async_scheduling),
        decisions=None if log is None else log.steps,
    )


def _warnings(trace: Trace, recorder: Recorder, deployment: Deployment | None) -> list[str]:
    """What limits the result without making it wrong."""
    warnings = [*trace.warnings, *(deployment.warnings if deployment is not None else ())]
    if trace.arrival_ps is None:
        warnings.append("the trace has no arrival times: everything arrives at time 0")
    for reason, count in recorder.refusals.items():
        warnings.append(f"{count} of {len(trace)} requests refused: {reason}")
    return warnings
