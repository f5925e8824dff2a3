"""`simbatch trace`: describe, derive, convert and make up traces."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simbatch.cli import options
from simbatch.cli.params import count, duration, seed
from simbatch.cli.verb import Verb, option, section

if TYPE_CHECKING:
    from simbatch.trace import Trace

_save = option("-o", "--output", "target", metavar="FILE", required=True, help=".csv, .jsonl, or either with .gz")
_quiet = option("-q", "--quiet", is_flag=True, help="no progress, no warnings")
_json = option("--json", "as_json", is_flag=True, help="one JSON object instead of text")
_seed = option("--seed", type=seed, default="0", metavar="S", help="of all that is drawn (0)")


class TraceVerbs(click.Group):
    """A group whose help opens with an example, as that of a verb does."""

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write("Example: simbatch trace show sharegpt\n")
        super().format_help(ctx, formatter)


@click.group("trace", cls=TraceVerbs, short_help="Describe, derive, convert and make up traces.")
def trace_verbs() -> None:
    """Traces: what a service was asked."""


@trace_verbs.command(
    "show",
    cls=Verb,
    example="simbatch trace show sharegpt",
    help="Describe TRACE: arrivals, lengths, sessions, prefixes, what was left out.",
    short_help="Describe a trace.",
)
@options.trace_argument
@options.reading
@section("Output", option("--plot", metavar="FILE", help="draw it, as .png, .svg or .pdf"), _seed, _json, _quiet)
def show_verb(**asked: Any) -> None:
    """The verb `trace show`."""
    from simbatch.cli import terminal
    from simbatch.cli.asked import load_trace
    from simbatch.show.trace_text import trace_text
    from simbatch.trace.statistics import statistics

    trace = load_trace(asked)
    figures = statistics(trace)
    if asked["as_json"]:
        terminal.write_json(figures)
    else:
        terminal.write(trace_text(figures))
    if asked["plot"] is not None:
        from simbatch.show.trace_plot import save_plot

        save_plot(trace, Path(asked["plot"]))
    if not asked["quiet"]:
        terminal.warn(figures["warnings"])


@trace_verbs.command(
    "derive",
    cls=Verb,
    example="simbatch trace derive sharegpt.json --rule first -o lengths.csv.gz",
    help="Lengths of conversations in FILE: JSON, JSONL or parquet, or OWNER/NAME.",
    short_help="Conversations to lengths in tokens.",
)
@click.argument("file", metavar="FILE")
@section(
    "Derivation",
    option("--rule", default="first", metavar="NAME", help="first, vllm, turns, sessions (first)"),
    option(
        "--tokenizer",
        default="mistral-v1",
        metavar="NAME",
        help="mistral-v1 (default), -v2, -v3, tekken; a file or folder",
    ),
    option("--records", type=count, metavar="N", help="use the first N records only"),
    option("--split", default="train", metavar="NAME", help="of a data set on the hub (train)"),
)
@section("Output", _save, _quiet)
def derive_verb(**asked: Any) -> None:
    """The verb `trace derive`."""
    from simbatch.cli import terminal
    from simbatch.trace.derive import derive

    with terminal.progress(asked["quiet"], "B") as on_progress:
        found = derive(
            asked["file"],
            asked["rule"],
            asked["tokenizer"],
            records=asked["records"],
            split=asked["split"],
            on_progress=on_progress,
        )
    _save_to(found.trace, asked)
    if not asked["quiet"]:
        for text in found.account():
            terminal.note(text)


@trace_verbs.command(
    "convert",
    cls=Verb,
    example="simbatch trace convert AzureLLMInferenceTrace.csv -o azure.csv.gz",
    help="TRACE in simbatch's own columns, prefix identity and sessions included.",
    short_help="Other formats to ours.",
)
@options.trace_argument
@options.reading
@section(
    "Rows",
    option("--requests", type=count, metavar="N", help="the first N rows, repeated if fewer"),
    option("--time-scale", type=float, metavar="F", help="times recorded gaps: 2 halves the rate"),
)
@section("Output", _save, _seed, _quiet)
def convert_verb(**asked: Any) -> None:
    """The verb `trace convert`."""
    from simbatch.cli import terminal
    from simbatch.cli.asked import load_trace

    trace = load_trace(asked)
    if asked["requests"] is not None:
        trace = trace.head(asked["requests"])
    _save_to(trace.with_origin(), asked)
    if not asked["quiet"]:
        terminal.warn(trace.warnings)


@trace_verbs.command(
    "generate",
    cls=Verb,
    example="simbatch trace generate --requests 99 --lengths-of sharegpt -o t.csv",
    help="Make a trace up.\n"
    "LENGTHS: 512, uniform:100-500, lognormal:median=200,p99=4000 (or mean=, cv=,\n"
    "sigma=, max=), 0.8*fixed:200+0.2*uniform:900-2000. Arrivals: poisson, constant,\n"
    "gamma:burstiness=0.5, mmpp:rates=2/20,stays=60s/5s, curve:0h=2,8h=20,period=24h.",
    short_help="Made-up traffic.",
)
@section(
    "Lengths",
    option("--requests", type=count, required=True, metavar="N", help="how many"),
    option("--prompt-tokens", "prompt", metavar="LENGTHS", help="tokens of a prompt"),
    option("--output-tokens", "output", metavar="LENGTHS", help="tokens of an answer"),
    option("--lengths-of", metavar="TRACE", help="draw whole rows of a trace instead"),
)
@section(
    "Arrivals",
    option("--arrivals", metavar="WHAT", help="see above; its rates, or those of --rate on average"),
    option("--rate", "rate_per_s", type=float, metavar="R", help="requests/s; alone, Poisson"),
)
@section(
    "Sharing",
    option("--prefix-groups", type=count, metavar="K", help="so many beginnings are shared"),
    option("--prefix-tokens", "prefix", metavar="LENGTHS", help="their lengths, before the prompt"),
    option("--zipf", type=float, metavar="A", help="group k is drawn with weight 1/k^A (0)"),
    option("--turns", metavar="LENGTHS", help="of a session; prompts gather the history"),
    option("--think", "think_s", type=duration, metavar="TIME", help="mean of the time between turns"),
)
@section("Output", _save, _seed)
def generate_verb(**asked: Any) -> None:
    """The verb `trace generate`."""
    from simbatch.cli.asked import given
    from simbatch.trace import Trace
    from simbatch.trace.generate import generate

    names = ("prompt", "output", "arrivals", "rate_per_s", "prefix_groups", "prefix", "zipf", "turns", "think_s")
    source = asked["lengths_of"]
    trace = generate(
        asked["requests"],
        lengths_of=None if source is None else Trace.load(source),
        seed=asked["seed"],
        **given(asked, names),
    )
    _save_to(trace, asked)


def _save_to(trace: Trace, asked: dict[str, Any]) -> None:
    from simbatch.cli import terminal

    trace.save(asked["target"])
    if not asked.get("quiet"):
        terminal.note(f"{asked['target']}: {trace!r}")
