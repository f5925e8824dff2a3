"""`simbatch report`: a saved run as one HTML page, or as a timeline."""

from __future__ import annotations

import json
from pathlib import Path

import click

from simbatch.cli.verb import Verb, option, section
from simbatch.errors import SimbatchError


@click.command(
    "report",
    cls=Verb,
    example="simbatch run sharegpt --rate 30 -o first && simbatch report first",
    help="One self-contained HTML page about a saved run (-o DIR of run).",
    short_help="A saved run as one HTML page.",
)
@click.argument("folder", metavar="DIR")
@section(
    "Output",
    option("-o", "--output", metavar="FILE", help="where to write it (DIR/report.html)"),
    option("--timeline", metavar="FILE", help="also a timeline for Perfetto (.json)"),
    option("--explain", "request", metavar="ID", help="instead, why request ID took as long as it did, in words"),
)
def report_verb(folder: str, output: str | None, timeline: str | None, request: str | None) -> None:
    """The verb `report`."""
    from simbatch.answers.explain import explain
    from simbatch.cli import terminal
    from simbatch.result import Result
    from simbatch.saved import load_metrics
    from simbatch.show.report import report_html
    from simbatch.show.timeline import trace_events

    result = Result.load(folder)
    if request is not None:
        terminal.write(repr(explain(result, request)))
        return
    page = Path(output) if output else Path(folder) / "report.html"
    _write(page, report_html(result, load_metrics(folder)))
    terminal.write(str(page))
    if timeline:
        _write(Path(timeline), json.dumps(trace_events(result), separators=(",", ":")))
        terminal.write(timeline)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SimbatchError(f"{path} cannot be written ({error.strerror}). Give another place with -o.") from error
