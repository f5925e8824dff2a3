"""`simbatch cost`: dollars per million tokens at three loads, and what a system wastes."""

from __future__ import annotations

from typing import Any

import click

from simbatch.cli import options
from simbatch.cli.params import seed
from simbatch.cli.verb import Verb, command_line, option, section


@click.command(
    "cost",
    cls=Verb,
    example="simbatch cost sharegpt --rate 5 --requests 300 --price 2.5",
    help="Dollars per million tokens: as served, at full load, at the limits; the waste.",
    short_help="What a million tokens cost, and what is wasted.",
)
@options.trace_argument
@options.traffic
@options.deployment
@options.system
@options.limits_to_show
@section(
    "Run",
    option("--timing", metavar="NAME", help="or roofline, linear:.. (best profile)"),
    option("--seed", type=seed, default="0", metavar="S", help="of draws (0)"),
)
@options.output
@click.pass_context
def cost_verb(ctx: click.Context, /, **asked: Any) -> None:
    """The verb `cost`."""
    from simbatch.answers.cost import cost
    from simbatch.cli import asked as ask
    from simbatch.cli import terminal
    from simbatch.show.cost import cost_text

    limits = ask.make_limits(asked)
    found = cost(
        ask.make_trace(asked),
        ask.make_deployment(asked),
        ttft_s=limits.ttft_s,
        tpot_s=limits.tpot_s,
        e2e_s=limits.e2e_s,
        percentile=limits.percentile,
        **ask.given(asked, ("system", "scheduler", "memory", "timing", "seed", "concurrency")),
        **ask.engine_options(asked),
    )
    found.config["command"] = command_line(ctx)
    metrics = found.metrics()
    if asked["as_json"]:
        terminal.write_json(metrics)
    else:
        terminal.write(cost_text({**metrics, "warnings": []}))
    if not asked["quiet"]:
        terminal.warn(metrics["warnings"])
