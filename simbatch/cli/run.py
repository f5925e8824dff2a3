"""`simbatch run`: one simulation, from flags to figures."""

from __future__ import annotations

from typing import Any

import click

from simbatch.cli import options
from simbatch.cli.verb import Verb, command_line
from simbatch.errors import SimbatchError, UsageError

LIMITS_NOT_MET = 3
MOST_ITERATIONS = 50_000
"""Of a run that is simulated twice more, for what the error of its timing comes to, without being asked."""
_OF_SIMULATE = (
    "system",
    "scheduler",
    "memory",
    "timing",
    "seed",
    "step",
    "concurrency",
    "replicas",
    "router",
    "frontend_delay_s",
)


@click.command(
    "run",
    cls=Verb,
    example="simbatch run sharegpt --rate 20",
    help="Simulate serving TRACE: a csv or jsonl file, or a name (simbatch list traces).",
    short_help="Simulate serving a trace: latency, throughput, cost, KV memory.",
)
@options.trace_argument
@options.traffic
@options.deployment
@options.system
@options.limits
@options.running_one
@click.pass_context
def run_verb(ctx: click.Context, /, **asked: Any) -> None:
    """The verb `run`. With --seeds, limits are met when every seed meets them."""
    from simbatch.answers.replications import replicate, timing_error
    from simbatch.answers.uncertainty import around
    from simbatch.cli import asked as ask
    from simbatch.cli import folder, terminal
    from simbatch.limits import limits_met
    from simbatch.show.replications import replications_text
    from simbatch.show.summary import summary_text
    from simbatch.simulate import simulate

    if asked["seeds"] is not None and asked["uncertainty"] is not None:
        raise UsageError(
            "with --seeds the error of the timing goes through to the intervals anyway. "
            "Leave --uncertainty and --no-uncertainty out."
        )
    limits = ask.make_limits(asked)
    place = folder.check_folder(asked["folder"], folder.RUN)
    trace = ask.make_trace(asked)
    arguments = {**ask.given(asked, _OF_SIMULATE), **ask.engine_options(asked)}
    wanted = ask.wanted(asked, limits)
    if asked["seeds"] is None:
        deployment = ask.make_deployment(asked)
        with terminal.progress(asked["quiet"]) as on_progress:
            result = simulate(trace, deployment, on_progress=on_progress, **arguments)
        results, text = [result], summary_text
        answer = result.metrics
        stated = timing_error(result) > 0 and asked["uncertainty"] is not False
        left_out = stated and asked["uncertainty"] is None and result.facts.iterations > MOST_ITERATIONS
        if stated and not left_out:
            plain = {**arguments, "step": False}  # the same result, sooner
            answer = around(result, lambda factor: simulate(trace, deployment, **plain, timing_scale=factor)).metrics
    else:
        with terminal.progress(asked["quiet"], " runs") as on_progress:
            replications = replicate(
                trace, ask.make_deployment(asked), seeds=asked["seeds"], on_progress=on_progress, **arguments
            )
        results, text = replications.results, replications_text
        result, answer, left_out = results[0], replications.metrics, False
    result.config["command"] = command_line(ctx)
    metrics = answer(**wanted)
    if asked["as_json"]:
        terminal.write_json(metrics)
    else:
        # Warnings have a place of their own.
        terminal.write(text({**metrics, "warnings": [], "timing_error_left_out": left_out}))
    served = metrics["requests"]["finished"] > 0
    if not asked["quiet"] or not served:
        terminal.warn(metrics["warnings"])
    # Last: a disk that fails must not take what is known with it.
    if place is not None:
        folder.save(result, place, metrics)
        if asked["seeds"] is not None and not asked["quiet"]:
            whose = f"{place} holds the run of seed {result.config['seed']}"
            terminal.warn([f"{whose}; its metrics.json is of all {len(results)}"])
    if not served:
        raise SimbatchError(
            f"none of the {metrics['requests']['arrived']:,} requests could be served. "
            "The warnings say why; give more KV memory, a longer max_model_len or other requests."
        )
    if asked["require"] and not all(limits_met(one.metrics(**wanted)) for one in results):
        ctx.exit(LIMITS_NOT_MET)
