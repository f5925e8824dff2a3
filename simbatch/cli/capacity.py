"""`simbatch capacity`: what fits, without a trace."""

from __future__ import annotations

from typing import Any

import click

from simbatch.cli import options
from simbatch.cli.params import count
from simbatch.cli.verb import Verb, option, section


@click.command(
    "capacity",
    cls=Verb,
    example="simbatch capacity --model llama-13b --gpu h100",
    help="What fits on a GPU: memory by part, KV tokens, sequences at a length.",
    short_help="What fits: weights, KV tokens, sequences at a length.",
)
@section("Sequences", option("--length", "length_tokens", type=count, metavar="TOKENS", help="each (max-model-len)"))
@options.capacity
@options.output
def capacity_verb(**asked: Any) -> None:
    """The verb `capacity`."""
    from simbatch.answers.capacity import capacity
    from simbatch.cli import asked as ask
    from simbatch.cli import terminal
    from simbatch.show.capacity import capacity_text

    found = capacity(ask.make_deployment(asked), length_tokens=asked["length_tokens"])
    if asked["as_json"]:
        terminal.write_json(found.metrics())
    else:
        terminal.write(capacity_text(found, warnings=False))
    if not asked["quiet"]:
        terminal.warn(found.warnings)
