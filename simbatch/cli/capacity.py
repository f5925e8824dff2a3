"""`simbatch capacity`: what fits, without a trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from simbatch.cli import options
from simbatch.cli.params import count, memory
from simbatch.cli.verb import Verb, option, section

if TYPE_CHECKING:
    from simbatch.answers.capacity import Capacity

FAILED = 1
_TERMS = ("weights_gib", "activation_gib", "non_torch_gib")


@click.command(
    "capacity",
    cls=Verb,
    example="simbatch capacity --model llama-13b --gpu h100",
    help="What fits on a GPU: memory by part, KV tokens, sequences at a length.",
    short_help="What fits: weights, KV tokens, sequences at a length.",
)
@section(
    "Question",
    option("--length", "length_tokens", type=count, metavar="TOKENS", help="of each sequence (max-model-len)"),
    option("--compare", metavar="WHAT=A,B,..", help="gpu, model, tp, dtype, length, .. side by side"),
)
@section(
    "What the engine printed, in place of estimates",
    option("--weights-gib", type=float, row="--weights-gib, --activation-gib GIB", help="of one GPU"),
    option("--activation-gib", type=float, hidden=True),
    option("--non-torch-gib", type=float, row="--non-torch-gib GIB", help="of one GPU"),
    option("--kv-cache-memory-bytes", type=memory, metavar="SIZE", help="KV memory of a GPU, such as 24GiB"),
)
@options.capacity
@section("Release", option("--vllm-version", metavar="V", help="whose accounting holds, 0.2 to 0.33 (0.33)"))
@options.output
@click.pass_context
def capacity_verb(ctx: click.Context, /, **asked: Any) -> None:
    """The verb `capacity`. Exits with 1 when a value to compare cannot be deployed, after showing those that can."""
    from functools import partial

    from simbatch.answers.capacity import capacity
    from simbatch.answers.capacity_table import capacities, parse_comparison
    from simbatch.cli import asked as ask
    from simbatch.cli import terminal
    from simbatch.deployment import Deployment
    from simbatch.show.capacity import capacity_text
    from simbatch.show.capacity_table import capacity_table_text

    arguments = {**ask.deployment_arguments(asked), **ask.given(asked, ("vllm_version", "kv_cache_memory_bytes"))}
    question: Callable[..., Capacity] = partial(capacity, **ask.given(asked, _TERMS))
    if asked["compare"] is not None:
        varied, values = parse_comparison(asked["compare"])
        table = capacities(varied, values, length_tokens=asked["length_tokens"], ask=question, **arguments)
        if asked["as_json"]:
            terminal.write_json(table.metrics())
        else:
            terminal.write(capacity_table_text(table))
        if not asked["quiet"]:
            terminal.warn(f"{value}: {warning}" for value, row in table.rows.items() for warning in row.warnings)
        if table.failed:
            ctx.exit(FAILED)
        return
    found = question(Deployment(**arguments), length_tokens=asked["length_tokens"])
    if asked["as_json"]:
        terminal.write_json(found.metrics())
    else:
        terminal.write(capacity_text(found, warnings=False))
    if not asked["quiet"]:
        terminal.warn(found.warnings)
