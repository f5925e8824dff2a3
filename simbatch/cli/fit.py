"""`simbatch fit`: from measurements to a timing profile, with its error and its range."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simbatch.cli import options
from simbatch.cli.params import column_map, count, pins, seed
from simbatch.cli.verb import Verb, option, section
from simbatch.errors import SimbatchError, UsageError

if TYPE_CHECKING:
    from simbatch.answers.fit import Fit

_ABOUT = ("engine", "source", "licence", "about")


@click.command(
    "fit",
    cls=Verb,
    example="simbatch run sharegpt --rate 9 --requests 300 -o a && simbatch fit a",
    help=(
        "A timing profile from measurements: logs of iterations (csv, jsonl), tables\n"
        "of kernels or layers, client-side results (vllm bench, or a table), or folders\n"
        "of the project's GPU measurements. What FILE is, is told by what it holds."
    ),
    short_help="A timing profile fitted to measurements, with its error.",
)
@click.argument("files", metavar="FILE..", nargs=-1, required=True)
@section(
    "Reading",
    option("--format", "kind", metavar="NAME", help="iterations, tables, client, measurements"),
    option("--columns", type=column_map, metavar="OURS=FILE,..", help="such as duration_ms=latency"),
)
@options.fitted
@section(
    "Fit",
    option("--pin", "pins", type=pins, metavar="NAME=VALUE,..", help="coefficients that are known: not fitted"),
    option("--start", metavar="PROFILE", help="name or file, for what data cannot tell"),
    option(
        "--resamples",
        type=count,
        row="--resamples N, --no-validate",
        help="of fits (40); leave no run out",
    ),
    option("--no-validate", is_flag=True, hidden=True),
    option("--seed", type=seed, default="0", metavar="S", help="of draws (0)"),
)
@section(
    "Profile",
    option("-o", "--output", metavar="FILE.toml", help="the profile; --timing takes it"),
    option("--report", metavar="WHERE", help="its test: FILE.html, FILE.txt, or text"),
    option("--name", metavar="NAME", row="--name, --about TEXT", help="what the profile is called and is"),
    option("--about", hidden=True),
    option("--engine", metavar="TEXT", row="--engine, --source, --licence TEXT", help="of what was measured"),
    option("--source", hidden=True),
    option("--licence", hidden=True),
)
@options.output
def fit_verb(**asked: Any) -> None:
    """The verb `fit`."""
    from simbatch.answers.fit import fit
    from simbatch.cli import asked as ask
    from simbatch.cli import terminal
    from simbatch.show.fit import fit_text, report_text

    profile, report = _profile_place(asked["output"]), _report_place(asked["report"])
    named = [name for name in ("model", "gpu") if asked[name] is not None]
    if len(named) == 1:
        raise UsageError(f"--{named[0]} alone does not say what was measured. Give both --model and --gpu.")
    if not named and ask.deployment_arguments(asked):
        raise UsageError("options of a deployment without one. Give --model and --gpu too.")
    with terminal.progress(asked["quiet"], " fits") as on_progress:
        found = fit(
            list(asked["files"]),
            ask.make_deployment(asked) if named else None,
            validate=not asked["no_validate"],
            about=ask.given(asked, _ABOUT),
            on_progress=on_progress,
            **ask.given(asked, ("kind", "columns", "name", "pins", "start", "resamples", "seed")),
            **ask.given(ask.engine_options(asked), _of_engine(asked)),
        )
    if asked["as_json"]:
        terminal.write_json(found.metrics())
    else:
        terminal.write(report_text(found) if report == "text" else fit_text(found))
    if report is not None and report != "text":
        _write(Path(report), _page(found, report))
    if profile is not None:
        _write(profile, found.card_text())


def _of_engine(asked: dict[str, Any]) -> list[str]:
    """Options that are the engine's alone: those that a deployment knows are said there."""
    from simbatch.options import DEPLOYMENT_OPTIONS

    return [name for name in asked if name not in DEPLOYMENT_OPTIONS]


def _page(found: Fit, place: str) -> str:
    from simbatch.show.fit import report_text
    from simbatch.show.fit_page import fit_html

    return fit_html(found) if place.endswith((".html", ".htm")) else report_text(found) + "\n"


def _profile_place(name: str | None) -> Path | None:
    """Where the profile goes. Raises UsageError unless it can be written and nothing else is overwritten."""
    if name is None:
        return None
    if not name.endswith(".toml"):
        raise UsageError(f"-o {name}: --timing takes profiles that end in .toml. Give a name such as mine.toml.")
    import tomllib

    path = _place("-o", name)
    if path.exists():
        try:
            known = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            known = {}
        if "coefficients" not in known:
            raise UsageError(f"-o {name} is a file that is no profile, and would be overwritten. Give a new name.")
    return path


def _report_place(name: str | None) -> str | None:
    """Where the report goes; "text": among the results."""
    if name is None or name == "text":
        return name
    if not name.endswith((".html", ".htm", ".txt")):
        raise UsageError(f"--report {name}: give a name that ends in .html or .txt, or the word text.")
    return str(_place("--report", name))


def _place(flag: str, name: str) -> Path:
    path = Path(name)
    try:
        wrong = "is a folder" if path.is_dir() else "" if path.parent.is_dir() else f"lies in no folder ({path.parent})"
    except (OSError, ValueError) as error:
        wrong = f"cannot be a file ({error})"
    if wrong:
        raise UsageError(f"{flag} {name} {wrong}. Give the name of a file in a folder that exists.")
    return path


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SimbatchError(f"{path} cannot be written ({error.strerror}). Give another place.") from error
