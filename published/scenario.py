"""A scenario: one published experiment, as its TOML file says it. Reads and checks, runs nothing.

A file has prose (title, source, setting, assumed, step_cost), tables that runs are made of (deployment, traffic, run
with their defaults; deployments, runs, steps, lengths, values by name), variants that change some of them, and
what was published: rows with a value to compute, inputs that were used, and rows that lack something.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from published.verdict import Published, Tolerance, parse_published, parse_tolerance
from simbatch import UsageError

FOLDER = Path(__file__).parent / "scenarios"
_PROSE = ("title", "source", "setting", "step_cost", "fast", "assumed", "why")
_TABLES = ("deployment", "traffic", "run", "step", "deployments", "runs", "steps", "lengths", "values", "variants")
_LISTS = ("rows", "inputs", "missing")


@dataclass(frozen=True)
class Row:
    """A published value and how it is computed here."""

    id: str
    what: str
    published: Published
    tolerance: Tolerance
    value: str | float
    unit: str = ""
    cert: str = ""
    """How sure the published value is: see the page."""
    band: bool = True
    """Is it worth computing under the variants too?"""
    why: str = ""
    """Where ours differs: the reason, added after the run. Tolerances are never changed then."""
    circular: bool = False
    """Does the value follow from the published one, as a fit does? Then agreeing counts for nothing."""
    after: bool = False
    """Was it set up when the others were known, to try a reason for a difference? It counts for nothing else."""


@dataclass(frozen=True)
class Untold:
    """A row that is not computed: because it is an input (*why* says of what), or because something is missing."""

    id: str
    what: str
    published: str
    why: str
    cert: str = ""


@dataclass(frozen=True)
class Scenario:
    """Everything in a file; *tables* are as they stand there, so that variants can change them."""

    name: str
    title: str
    source: str
    setting: str
    tables: Mapping[str, Any]
    step_cost: str = ""
    fast: bool = False
    """Does it take seconds, so that tests can run it?"""
    assumed: tuple[str, ...] = ()
    """What the source does not say, and what was taken."""
    why: tuple[str, ...] = ()
    """What was found out about differences."""
    rows: tuple[Row, ...] = ()
    inputs: tuple[Untold, ...] = ()
    missing: tuple[Untold, ...] = ()
    variants: tuple[str, ...] = field(default=())

    def ids(self) -> list[str]:
        return [*(row.id for row in self.rows), *(one.id for one in (*self.inputs, *self.missing))]

    def variant(self, name: str) -> Mapping[str, Any]:
        """The tables with what the variant changes, key by key."""
        return merged(self.tables, self.tables["variants"][name])


def read_scenarios(names: Iterable[str] = (), folder: Path = FOLDER) -> list[Scenario]:
    """The scenarios of those *names*, all of them without any; by file name. Raises UsageError."""
    paths = {path.stem: path for path in sorted(folder.glob("*.toml"))}
    wanted = list(names) or list(paths)
    for name in wanted:
        if name not in paths:
            raise UsageError(f"there is no scenario {name!r}. There are {', '.join(paths)}.")
    return [read_scenario(paths[name]) for name in wanted]


def read_scenario(path: Path) -> Scenario:
    """Raises UsageError, with the file's name, for what is no scenario."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
        return _scenario(path.stem, found)
    except (OSError, tomllib.TOMLDecodeError, TypeError, KeyError) as error:
        raise UsageError(
            f"{path}: no scenario ({type(error).__name__}: {error}). See the others for the form."
        ) from error
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def _scenario(name: str, found: dict[str, Any]) -> Scenario:
    known = (*_PROSE, *_TABLES, *_LISTS)
    for key in found:
        if key not in known:
            raise UsageError(f"{key!r} is no part of a scenario. Parts are {', '.join(known)}.")
    tables = {key: found.get(key, {}) for key in _TABLES}
    rows = []
    for entry in found.get("rows", []):
        _known_keys(entry, Row)
        published, tolerance = parse_published(entry.pop("published")), parse_tolerance(entry.pop("tolerance"))
        rows.append(Row(published=published, tolerance=tolerance, **entry))
    prose: dict[str, Any] = {
        key: tuple(found[key]) if key in ("assumed", "why") else found[key] for key in _PROSE if key in found
    }
    return Scenario(
        name=name,
        tables=tables,
        rows=tuple(rows),
        inputs=_untold(found.get("inputs", [])),
        missing=_untold(found.get("missing", [])),
        variants=tuple(tables["variants"]),
        **prose,
    )


def _untold(entries: list[dict[str, Any]]) -> tuple[Untold, ...]:
    for entry in entries:
        _known_keys(entry, Untold)
    return tuple(Untold(**entry) for entry in entries)


def _known_keys(entry: Mapping[str, Any], of: type) -> None:
    names = [item.name for item in fields(of)]
    for key in entry:
        if key not in names:
            raise UsageError(f"row {entry.get('id', '?')}: {key!r} is no field of it. Fields are {', '.join(names)}.")


def merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """*one* with what *other* says, tables inside of tables too."""
    both = dict(one)
    for key, value in other.items():
        inner = both.get(key)
        both[key] = merged(inner, value) if isinstance(value, Mapping) and isinstance(inner, Mapping) else value
    return both
