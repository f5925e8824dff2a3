"""`simbatch size`: the highest rate within limits, and how many GPUs a rate takes."""

from __future__ import annotations

from typing import Any

import click

from simbatch.cli import options
from simbatch.cli.verb import Verb, command_line
from simbatch.errors import UsageError

FAILED = 1


@click.command(
    "size",
    cls=Verb,
    example="simbatch size sharegpt --ttft 1s --model llama-13b --requests 800",
    help="How many GPUs requests such as those of TRACE take, within limits on latency.",
    short_help="How many GPUs for a rate within limits, and the rate that one replica holds.",
)
@options.trace_argument
@options.sizing
@options.model
@options.system
@options.limits_to_show
@options.sizing_run
@click.pass_context
def size_verb(ctx: click.Context, /, **asked: Any) -> None:
    """The verb `size`. Exits with 1 where nothing tried keeps the limits."""
    from simbatch.answers.size import size
    from simbatch.cli import asked as ask
    from simbatch.cli import terminal
    from simbatch.show.size import size_text

    over: dict[str, Any] = {}
    for name, values in asked["over"]:
        if name in over:
            raise UsageError(f"--over {name} is given twice. Write all its values after one of them, with commas.")
        over[name] = values
    limits = ask.make_limits(asked)
    trace = ask.load_trace({**asked, "time_scale": None})
    with terminal.progress(asked["quiet"], " choices") as on_progress:
        found = size(
            trace,
            ask.make_deployment(asked),
            ttft_s=limits.ttft_s,
            tpot_s=limits.tpot_s,
            e2e_s=limits.e2e_s,
            percentile=limits.percentile,
            over=over,
            on_progress=on_progress,
            **ask.given(asked, ("rate_per_s", "seeds", "requests", "burstiness", "router", "n_jobs", "seed")),
            **ask.given(asked, ("system", "scheduler", "memory", "timing")),
            **({} if asked["prices"] is None else {"price_usd_per_hour": asked["prices"]}),
            **ask.engine_options(asked),
        )
    found.config["command"] = command_line(ctx)
    metrics = found.metrics()
    if asked["as_json"]:
        terminal.write_json(metrics)
    else:
        # Warnings have a place of their own.
        terminal.write(size_text({**metrics, "warnings": []}))
    if not asked["quiet"]:
        terminal.warn(metrics["warnings"])
    if metrics["replicas"] is None:
        ctx.exit(FAILED)
