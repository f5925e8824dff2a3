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
from simbatch.caveats import caveats
from simbatch.checks import real, shown, whole
from simbatch.decisions import DecisionLog
from simbatch.deployment import Deployment
from simbatch.engine import Engine
from simbatch.errors import UsageError
from simbatch.facts import Facts, Ints
from simbatch.memory.base import Memory
from simbatch.own_timing import looked_at
from simbatch.parts import (
    as_memory,
    as_scheduler,
    as_timing,
    default_timing,
    make_memory,
    make_scheduler,
    make_timing,
    scaled_timing,
)
from simbatch.record import Recorder
from simbatch.replicas import one_log, one_record, progress_of_each
from simbatch.result import Result
from simbatch.router import DEFAULT_ROUTER, Dispatch, Router, describe_router, make_router
from simbatch.scheduler import Scheduler
from simbatch.setup import Setup, set_up
from simbatch.systems import DEFAULT_SYSTEM, find_system
from simbatch.timing import Timing
from simbatch.timing.profile import ProfileTiming
from simbatch.trace.samples import one_row_per_sample
from simbatch.units import to_ps
from simbatch.version import __version__
from simbatch.workload import ClosedLoop, replay
from simbatch.world import World

if TYPE_CHECKING:
    from simbatch.trace import Trace

ROOFLINE = "iteration times are a roofline estimate that was not compared with it"
LONGEST_DELAY_S = 3600.0
MOST_REPLICAS = 4096
"""Each has a memory and a record of its own."""


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
    concurrency: int | None = None,
    replicas: int = 1,
    router: Router | str = DEFAULT_ROUTER,
    timing_scale: float = 1.0,
    frontend_delay_s: float = 0.0,
    on_progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> Result:
    """Serve the requests of *trace* on *deployment* and return what happened.

    Parameters
    ----------
    trace
        Requests with or without arrival times; without, everything arrives at time 0. A turn of a session
        waits for the one before, and then for its think time.
    deployment
        Model, GPU and KV memory. May be left out when *timing* and `kv_tokens` (or a *memory*) and
        `max_model_len` are given.
    system
        A named bundle of scheduler and memory: see `simbatch list systems`.
    scheduler, memory, timing
        Override a part: an object, a built-in's name, or ``module:Class``. Objects are copied, so
        one of them serves any number of runs. *timing* may also be ``linear:base_ms=5,…``, ``roofline``, the name
        or file of a profile; without it, the best profile of the GPU that comes with simbatch is used, and the
        roofline where there is none.
    step
        Take every iteration alone (the plain path): same result, and `Result.decisions`, kept by
        *log* (a `DecisionLog` unless you give one of your own).
    concurrency
        A closed loop of so many users: whoever has an answer sends the next request (or session) at once,
        and arrival times do not matter.
    replicas, router
        So many engines, each on a *deployment* of its own, and who gets a request: ``round-robin``,
        ``least-loaded``, ``prefix``, ``module:function``, or a function: see `simbatch.router`.
    timing_scale
        Every iteration takes so many times as long: what an error of the timing comes to. Only for timings
        that can be scaled, as profiles can.
    frontend_delay_s
        From a client's sending a request to the engine's seeing it (server, tokenizer, transport): part of TTFT and
        end to end, and of nothing that the engine does.
    on_progress
        Called now and then with (requests done, requests in all).
    options
        Engine options by vLLM's names: see `simbatch.options.Options`.

    Raises UsageError for what cannot be set up and PolicyError for a policy that breaks its contract.
    """
    check_world(trace, deployment)
    delay_ps = _delay_ps(frontend_delay_s)
    trace = one_row_per_sample(trace)
    bundle = find_system(system)
    parts = _name(scheduler, bundle.scheduler), _name(memory, bundle.memory)
    setup = set_up(
        bundle,
        deployment,
        options,
        parts=parts,
        shares=bool(trace.prefix),
        samples=trace.sample_of is not None,
    )
    policy = _scheduler(bundle.scheduler if scheduler is None else scheduler, setup)
    policy.start(setup.limits)
    kv = _memory(bundle.memory if memory is None else memory, setup)
    clock = scaled_timing(_timing(timing, setup), timing_scale)
    whole("the number of replicas", replicas, most=MOST_REPLICAS)
    if replicas > 1 and log is not None:
        raise UsageError(f"one log cannot tell {replicas} replicas apart. Leave it out: with step each has its own.")
    parts_of_each = [(policy, kv), *(copy.deepcopy((policy, kv)) for _ in range(replicas - 1))]

    env = World()
    recorders = [
        Recorder(len(trace), kv.capacity_tokens, progress)
        for progress in progress_of_each(on_progress, replicas, len(trace))
    ]
    logs = [DecisionLog() if step and log is None else log for _ in range(replicas)]
    engine_class = AsyncEngine if setup.options.async_scheduling else Engine
    loop = None if concurrency is None and trace.session is None else ClosedLoop(env, trace, concurrency, delay_ps)
    on_finish = None if loop is None else loop.ended
    engines = [
        engine_class(
            env,
            own_policy,
            own_kv,
            looked_at(clock),
            recorder,
            step=step,
            feedback=loop is not None,
            replica=index,
            log=own_log,
            on_finish=on_finish,
        )
        for index, ((own_policy, own_kv), recorder, own_log) in enumerate(
            zip(parts_of_each, recorders, logs, strict=True)
        )
    ]
    chooses = make_router(router)
    dispatch = Dispatch(engines, chooses, len(trace)) if replicas > 1 else None
    submit = engines[0].submit if dispatch is None else dispatch.submit
    if loop is None:
        env.process(replay(env, trace.requests(), submit))
    else:
        loop.start(submit)
    started = time.perf_counter()
    env.run()
    wall_s = time.perf_counter() - started
    for engine in engines:
        engine.check_served()

    config = {
        "simbatch": __version__,
        "trace": trace.describe(),
        "deployment": None if setup.deployment is None else setup.deployment.describe(),
        "system": system,
        "vllm_version": setup.vllm_version if bundle.null_block else None,
        "limits": asdict(setup.limits),
        "scheduler": policy.describe(),
        "memory": kv.describe(),
        "timing": clock.describe(),
        "options": options,
        "seed": seed,
        "concurrency": concurrency,
        "frontend_delay_s": float(frontend_delay_s),
        "replicas": replicas,
        "router": describe_router(router) if replicas > 1 else None,
        "step": step,
    }
    sent = None if dispatch is None else np.array(dispatch.sent, dtype=np.int64)
    facts = _facts(trace, recorders, sent, env, wall_s, setup, config)
    if logs[0] is not None:
        steps = [own_log.steps for own_log in logs if own_log is not None]
        facts.decisions = steps[0] if replicas == 1 else one_log(steps)
    if loop is not None:
        facts.requests["arrival_ps"] = np.array(loop.arrival_ps, dtype=np.int64)
    _delay(facts, delay_ps)
    if isinstance(clock, ProfileTiming):
        facts.warnings.extend(clock.remarks(facts.rows))
    elif timing is None and setup.deployment is not None:
        facts.warnings.append(f"no profile of {setup.deployment.card.name} is known: {ROOFLINE}")
    return Result(facts)


def _delay_ps(frontend_delay_s: float) -> int:
    if not 0 <= real("frontend_delay_s", frontend_delay_s, "seconds") <= LONGEST_DELAY_S:
        raise UsageError(
            f"frontend_delay_s is {frontend_delay_s:g}. Give seconds from 0 to {LONGEST_DELAY_S:g}, such as 0.005."
        )
    return to_ps(frontend_delay_s)


def _delay(facts: Facts, delay_ps: int) -> None:
    """Put what the engine did so much later than it was sent: a client's clock is ahead of the engine's."""
    if not delay_ps:
        return
    facts.frontend_delay_ps = delay_ps
    for columns, names in (
        (facts.requests, ("first_scheduled_ps", "first_token_ps", "finished_ps")),
        (facts.rows, ("start_ps",)),
        (facts.extra_gaps, ("end_ps",)),
        (facts.stays or {}, ("out_ps", "back_ps")),
    ):
        for name in names:
            if name in columns:
                column = columns[name]
                columns[name] = np.where(column < 0, column, column + delay_ps)


def check_world(trace: object, deployment: object) -> None:
    """Raises UsageError unless these are a trace and a deployment, or None for the latter."""
    from simbatch.trace import Trace

    if not isinstance(trace, Trace):
        raise UsageError(f"the trace is {shown(trace)}, not a Trace. Load one, such as Trace.load('sharegpt').")
    if deployment is not None and not isinstance(deployment, Deployment):
        raise UsageError(f"the deployment is {shown(deployment)}. Give a Deployment, such as Deployment(gpu='h100').")


def _name(given: object, default: str) -> str:
    """A built-in part by its name; any other is somebody's own."""
    name = default if given is None else given
    return name if isinstance(name, str) and ":" not in name else "custom"


def _scheduler(given: Scheduler | str, setup: Setup) -> Scheduler:
    return make_scheduler(given, setup) if isinstance(given, str) else copy.deepcopy(as_scheduler(given))


def _memory(given: Memory | str, setup: Setup) -> Memory:
    return make_memory(given, setup) if isinstance(given, str) else copy.deepcopy(as_memory(given))


def _timing(given: Timing | str | None, setup: Setup) -> Timing:
    if given is None:
        return default_timing(setup)
    return make_timing(given, setup) if isinstance(given, str) else as_timing(given)


def _facts(
    trace: Trace,
    recorders: list[Recorder],
    sent: Ints | None,
    env: simpy.Environment,
    wall_s: float,
    setup: Setup,
    config: dict[str, Any],
) -> Facts:
    rows, requests, extra_gaps, stays = one_record(recorders, sent)
    count = len(trace)
    requests["arrival_ps"] = np.zeros(count, np.int64) if trace.arrival_ps is None else trace.arrival_ps
    requests["prompt_tokens"] = trace.prompt_tokens
    deployment = setup.deployment
    return Facts(
        requests=requests,
        ids=[str(i) for i in range(count)] if trace.ids is None else trace.ids,
        rows=rows,
        extra_gaps=extra_gaps,
        stays=stays,
        capacity_tokens=recorders[0].capacity_tokens,
        peak_held_tokens=max(recorder.rows.peak_held_tokens for recorder in recorders),
        iterations=sum(recorder.rows.iterations for recorder in recorders),
        events=next(env._eid),
        wall_s=wall_s,
        config=config,
        gpu_memory_share=None if deployment is None else deployment.kv_cache_bytes / deployment.gpu_memory_bytes,
        price_usd_per_hour=None
        if deployment is None or deployment.usd_per_hour is None
        else deployment.usd_per_hour * len(recorders),
        replicas=len(recorders),
        warnings=caveats(trace, recorders, requests["status"], setup, config["concurrency"] is not None),
        planned_ahead=bool(setup.options.async_scheduling),
    )
