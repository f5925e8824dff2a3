"""The command `simbatch` and its verbs, and the one place where an error becomes an exit code.

Library code raises; here it becomes a line on standard error. Flags may be written with
underscores, as vLLM allows. A new verb is a file beside this one and a name in the list below.
"""

from __future__ import annotations

import sys
from typing import Any

import click

from simbatch.cli import terminal
from simbatch.cli.capacity import capacity_verb
from simbatch.cli.compare import compare_verb
from simbatch.cli.cost import cost_verb
from simbatch.cli.diagnose import diagnose_verb
from simbatch.cli.fit import fit_verb
from simbatch.cli.listing import list_verb
from simbatch.cli.report import report_verb
from simbatch.cli.run import run_verb
from simbatch.cli.size import size_verb
from simbatch.cli.trace import trace_verbs
from simbatch.errors import SimbatchError
from simbatch.version import __version__

FAILED = 1
INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells expect it."""


class Verbs(click.Group):
    """A group that reports the library's errors, an interruption and what the machine lacks without a traceback."""

    def main(self, *args: Any, **kw: Any) -> Any:
        try:
            return super().main(*args, **kw)
        except OSError as error:
            # Files are reported where they are opened; click has closed the matter of a reader that has gone.
            terminal.give_up(sys.stdout)
            what = f"{error.filename}: {error.strerror}." if error.filename else terminal.cannot_be_written(error)
            terminal.note(f"Error: {what}")
            sys.exit(FAILED)

    def make_context(self, *args: Any, **kw: Any) -> click.Context:
        try:
            return super().make_context(*args, **kw)
        except KeyboardInterrupt:  # click would exit with 1
            sys.exit(INTERRUPTED)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except SimbatchError as error:
            terminal.note(f"Error: {error}")
            ctx.exit(error.exit_code)
        except MemoryError:
            terminal.note(
                "Error: there is not enough memory for that. Ask for fewer requests, such as --requests 1000."
            )
            ctx.exit(FAILED)
        except KeyboardInterrupt:
            terminal.note("\nInterrupted before the end.")
            ctx.exit(INTERRUPTED)


@click.group(
    "simbatch",
    cls=Verbs,
    commands=[
        run_verb,
        compare_verb,
        size_verb,
        capacity_verb,
        cost_verb,
        diagnose_verb,
        trace_verbs,
        fit_verb,
        report_verb,
        list_verb,
    ],
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
