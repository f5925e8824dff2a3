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
from simbatch.checks import shown
from simbatch.decisions import DecisionLog
from simbatch.deployment import Deployment
from simbatch.engine import Engine
from simbatch.errors import UsageError
from simbatch.facts import FINISHED, Facts, Ints
from simbatch.memory.base import Memory
from simbatch.parts import as_memory, as_scheduler, as_timing, make_memory, make_scheduler, make_timing
from simbatch.record import Recorder
from simbatch.result import Result
from simbatch.scheduler import Scheduler
from simbatch.setup import Setup, set_up
from simbatch.systems import DEFAULT_SYSTEM, find_system
from simbatch.timing import Timing
from simbatch.trace.samples import one_row_per_sample
from simbatch.version import __version__
from simbatch.workload import ClosedLoop, replay

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
    concurrency: int | None = None,
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
        one of them serves any number of runs. *timing* may also be ``linear:base_ms=5,…``.
    step
        Take every iteration alone (the plain path): same result, and `Result.decisions`, kept by
        *log* (a `DecisionLog` unless you give one of your own).
    concurrency
        A closed loop of so many users: whoever has an answer sends the next request (or session) at once,
        and arrival times do not matter.
    on_progress
        Called now and then with (requests done, requests in all).
    options
        Engine options by vLLM's names: see `simbatch.options.Options`.

    Raises UsageError for what cannot be set up and PolicyError for a policy that breaks its contract.
    """
    check_world(trace, deployment)
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
    clock = _timing(timing, setup)

    env = simpy.Environment()
    recorder = Recorder(len(trace), kv.capacity_tokens, on_progress)
    if step and log is None:
        log = DecisionLog()
    engine_class = AsyncEngine if setup.options.async_scheduling else Engine
    loop = None if concurrency is None and trace.session is None else ClosedLoop(env, trace, concurrency)
    on_finish = None if loop is None else loop.ended
    engine = engine_class(
        env, policy, kv, clock, recorder, step=step, feedback=loop is not None, log=log, on_finish=on_finish
    )
    if loop is None:
        env.process(replay(env, trace.requests(), engine.submit))
    else:
        loop.start(engine.submit)
    started = time.perf_counter()
    env.run()
    wall_s = time.perf_counter() - started
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
        "step": step,
    }
    facts = _facts(trace, recorder, env, wall_s, setup, config, log)
    if loop is not None:
        facts.requests["arrival_ps"] = np.array(loop.arrival_ps, dtype=np.int64)
    return Result(facts)


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
    name = "roofline" if given is None else given
    return make_timing(name, setup) if isinstance(name, str) else as_timing(name)


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
        warnings=_warnings(trace, recorder, requests["status"], setup, config["concurrency"] is not None),
        planned_ahead=bool(setup.options.async_scheduling),
        decisions=None if log is None else log.steps,
    )


def _warnings(trace: Trace, recorder: Recorder, status: Ints, setup: Setup, closed: bool) -> list[str]:
    """What limits the result without making it wrong."""
    warnings = [*trace.warnings, *(setup.deployment.warnings if setup.deployment is not None else ())]
    if trace.arrival_ps is None and not closed:
        what = "everything arrives" if trace.session is None else "every session begins"
        warnings.append(f"the trace has no arrival times: {what} at time 0")
    if setup.ignored:
        warnings.append(f"{', '.join(setup.ignored)}: no effect on this system")
    for reason, count in recorder.refusals.items():
        warnings.append(f"{count} of {len(trace)} requests refused: {reason}")
    return [*warnings, *_cut_outputs(trace, status, setup.limits.max_model_len)]


def _cut_outputs(trace: Trace, status: Ints, max_model_len: int) -> list[str]:
    """How many outputs that finished are shorter than the trace says, by what ended them."""
    outputs, room = trace.output_tokens, max_model_len - trace.prompt_tokens
    allowed = outputs if trace.max_tokens is None else np.where(trace.max_tokens < 0, outputs, trace.max_tokens)
    cut = {
        f"max_model_len, {max_model_len:,} tokens": np.minimum(outputs, allowed) > room,
        "max_tokens": (outputs > allowed) & (allowed <= room),
    }
    counts = {what: int((rows & (status == FINISHED)).sum()) for what, rows in cut.items()}
    return [
        f"{count:,} {'output ends' if count == 1 else 'outputs end'} at {what}, before the length in the trace"
        for what, count in counts.items()
        if count
    ]
