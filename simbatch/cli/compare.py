"""`simbatch compare`: several systems on the same requests, side by side."""

from __future__ import annotations

from typing import Any

import click

from simbatch.cli import options
from simbatch.cli.verb import Verb, command_line

FAILED = 1
INTERRUPTED = 130


@click.command(
    "compare",
    cls=Verb,
    example="simbatch compare sharegpt --rate 14 --requests 500 --model llama-13b -q",
    help="Simulate several systems on the requests of TRACE (simbatch list systems).",
    short_help="Several systems on the same requests, side by side.",
)
@options.trace_argument
@options.systems
@options.traffic
@options.deployment
@options.limits_to_show
@options.running
@click.pass_context
def compare_verb(ctx: click.Context, /, **asked: Any) -> None:
    """The verb `compare`. Exits with 1 when a system failed, after showing those that did not."""
    from simbatch.answers.compare import compare
    from simbatch.cli import asked as ask
    from simbatch.cli import folder, terminal
    from simbatch.show.comparison import comparison_text

    limits = ask.make_limits(asked)
    place = folder.check_folder(asked["folder"], folder.COMPARISON)
    names = asked["systems"]
    trace = ask.make_trace(asked)
    unit = " requests" if asked["seeds"] is None else " runs"
    with terminal.progress(asked["quiet"], unit) as on_progress:
        comparison = compare(
            trace,
            ask.make_deployment(asked),
            systems=None if names is None else [name.strip() for name in names.split(",") if name.strip()],
            on_progress=on_progress,
            **ask.given(
                asked, ("timing", "seed", "seeds", "step", "concurrency", "replicas", "router", "frontend_delay_s")
            ),
            uncertainty=asked["uncertainty"],
            **ask.engine_options(asked),
        )
    comparison.config["command"] = command_line(ctx)
    metrics = comparison.metrics(**ask.wanted(asked, limits))
    if asked["as_json"]:
        terminal.write_json(metrics)
    else:
        # Warnings have a place of their own.
        terminal.write(comparison_text({**metrics, "warnings": []}))
    if not asked["quiet"]:
        terminal.warn(metrics["warnings"])
        # The text has said so in its place.
        terminal.warn(f"{name} failed: {why}" for name, why in comparison.failed.items() if asked["as_json"])
    # Last: a disk that fails must not take what is known with it.
    if place is not None:
        folder.save_comparison(comparison, place, metrics)
    if comparison.interrupted:
        terminal.note("Interrupted before the end.")
        ctx.exit(INTERRUPTED)
    if comparison.failed:
        ctx.exit(FAILED)
