"""`simbatch run`: one simulation, from flags to figures."""

from __future__ import annotations

from typing import Any

import click

from simbatch.cli import options
from simbatch.cli.verb import Verb, command_line
from simbatch.errors import SimbatchError

LIMITS_NOT_MET = 3


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
@options.running
@click.pass_context
def run_verb(ctx: click.Context, /, **asked: Any) -> None:
    """The verb `run`."""
    from simbatch.cli import asked as ask
    from simbatch.cli import folder, terminal
    from simbatch.limits import limits_met
    from simbatch.show.summary import summary_text
    from simbatch.simulate import simulate

    limits = ask.make_limits(asked)
    place = folder.check_folder(asked["folder"], folder.RUN)
    trace = ask.make_trace(asked)
    with terminal.progress(asked["quiet"]) as on_progress:
        result = simulate(
            trace,
            ask.make_deployment(asked),
            on_progress=on_progress,
            **ask.given(asked, ("system", "scheduler", "memory", "timing", "seed", "step", "concurrency")),
            **ask.engine_options(asked),
        )
    result.config["command"] = command_line(ctx)
    metrics = result.metrics(
        ttft_s=limits.ttft_s, tpot_s=limits.tpot_s, e2e_s=limits.e2e_s, percentile=limits.percentile
    )
    if asked["as_json"]:
        terminal.write_json(metrics)
    else:
        # Warnings have a place of their own.
        terminal.write(summary_text({**metrics, "warnings": []}))
    served = metrics["requests"]["finished"] > 0
    if not asked["quiet"] or not served:
        terminal.warn(metrics["warnings"])
    # Last: a disk that fails must not take what is known with it.
    if place is not None:
        folder.save(result, place, metrics)
    if not served:
        raise SimbatchError(
            f"none of the {metrics['requests']['arrived']:,} requests could be served. "
            "The warnings say why; give more KV memory, a longer max_model_len or other requests."
        )
    if asked["require"] and not limits_met(metrics):
        ctx.exit(LIMITS_NOT_MET)
