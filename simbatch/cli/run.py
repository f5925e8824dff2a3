"""`simbatch run`: one simulation, from flags to figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from simbatch.cli import options
from simbatch.cli.verb import Verb, command_line

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
    place = None if asked["folder"] is None else Path(asked["folder"])
    if place is not None:
        folder.check_folder(place)
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
    if place is not None:
        folder.save(result, place, metrics)
    if asked["as_json"]:
        terminal.write_json(metrics)
    else:
        # Warnings have a place of their own.
        terminal.write(summary_text({**metrics, "warnings": []}))
    if not asked["quiet"]:
        terminal.warn(metrics["warnings"])
    if asked["require"] and not limits_met(metrics):
        ctx.exit(LIMITS_NOT_MET)
