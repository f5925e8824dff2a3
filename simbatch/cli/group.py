"""The command `simbatch` and its verbs, and the one place where an error becomes an exit code.

Library code raises; here it becomes a line on standard error. Flags may be written with
underscores, as vLLM allows. A new verb is a file beside this one and a name in the list below.
"""

from __future__ import annotations

from typing import Any

import click

from simbatch.cli.capacity import capacity_verb
from simbatch.cli.compare import compare_verb
from simbatch.cli.listing import list_verb
from simbatch.cli.run import run_verb
from simbatch.errors import SimbatchError
from simbatch.version import __version__

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells expect it."""


class Verbs(click.Group):
    """A group that reports the library's errors, and an interruption, without a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except SimbatchError as error:
            click.echo(f"Error: {error}", err=True)
            ctx.exit(error.exit_code)
        except KeyboardInterrupt:
            click.echo("\nInterrupted before the end.", err=True)
            ctx.exit(INTERRUPTED)


@click.group(
    "simbatch",
    cls=Verbs,
    commands=[run_verb, compare_verb, capacity_verb, list_verb],
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "token_normalize_func": lambda token: token.replace("_", "-"),
    },
    subcommand_metavar="VERB ...",
    epilog="simbatch VERB --help shows what a verb takes.",
)
@click.version_option(__version__, prog_name="simbatch")
def main() -> None:
    """What batching and KV-cache memory management are worth on your LLM traffic.

    Example: simbatch run sharegpt --rate 20
    """
