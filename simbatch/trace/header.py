"""Which column of a file is which of ours: by name, never by place, and never by guess.

A column that is not ours is left out and listed, unless its name suggests that it was meant to be
one of ours: dropping a misspelt `arrival_s` would make everything arrive at once.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence

from simbatch.errors import UsageError, unknown
from simbatch.trace.columns import COLUMNS, REQUIRED
from simbatch.trace.formats import OURS, Format

_LIKE_TIMES = re.compile(r"(.*(arriv|time_?stamp))|time|ts$|date", re.IGNORECASE)


def match_columns(
    header: Sequence[str], where: str, mapping: Mapping[str, str] | None = None, format: Format = OURS
) -> tuple[dict[str, int], tuple[str, ...]]:
    """The place of each of our columns in *header*, and the names of those left out.

    *format* says what they are called; *mapping* gives the file's name for one of ours, such as
    ``{"arrival_s": "TIMESTAMP"}``, and wins over what the format says. *where* opens an error message.
    """
    names = list(header)
    twice = sorted({name for name in names if name and names.count(name) > 1})
    if twice:
        raise UsageError(f"{where}: there are two columns {_short(twice[0])!r}. Rename or remove one of them.")
    places = {ours: names.index(theirs) for ours, theirs in format.columns.items() if theirs in names}
    for ours, theirs in (mapping or {}).items():
        if ours not in COLUMNS:
            raise unknown("trace column", ours, COLUMNS)
        if theirs not in names:
            raise UsageError(
                f"{where}: there is no column {theirs!r} to take {ours} from (found: {_listed(names)}). "
                "Name one of the columns found."
            )
        places[ours] = names.index(theirs)
    taken = {names[place] for place in places.values()}
    left = tuple(name for name in names if name and name not in taken)
    missing = [name for name in REQUIRED if name not in places]
    if missing:
        _refuse_numbers(names, where)
        raise UsageError(
            f"{where}: no column {' and no column '.join(missing)} (found: {_listed(names)}; "
            f"needed: {', '.join(REQUIRED)}). Rename the columns, or map them with "
            f"--columns {','.join(f'{name}=NAME' for name in missing)}."
        )
    if format.ours:
        for name in left:
            _refuse_lookalike(name, places, where)
    order = {name: places[name] for name in COLUMNS if name in places}
    return order, left


def _refuse_numbers(names: Sequence[str], where: str) -> None:
    """A first line of numbers is a first row, and the names are missing."""
    if all(re.fullmatch(r"[0-9.:+eE -]*", name) for name in names):
        raise UsageError(
            f"{where}: numbers instead of names of columns ({_listed(names)}). "
            "Put a line of names above them, such as arrival_s,prompt_tokens,output_tokens."
        )


def _refuse_lookalike(name: str, places: Mapping[str, int], where: str) -> None:
    free = [ours for ours in COLUMNS if ours not in places]
    near = difflib.get_close_matches(name.lower().replace(" ", "_"), free, n=1, cutoff=0.8)
    if "arrival_s" in free and _LIKE_TIMES.match(name):
        near = ["arrival_s"]
    if near:
        raise UsageError(
            f"{where}: column {_short(name)!r} is not one of ours, but looks like {near[0]}. "
            f"Map it with --columns {near[0]}={_short(name)}, or remove it."
        )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(_short, names[:12])) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def _short(name: str) -> str:
    return name if len(name) <= 40 else name[:37] + "..."
