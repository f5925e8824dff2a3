"""The tables of docs/fidelity-timing.md: written by the command, read by its test; the prose between them is by hand.

A table follows the line ``<!-- table: NAME -->``. The table of targets has rows from every set of runs: a row is
known by its quantity, so that one set alone can be written anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fidelity.data import ROOT, Section

PATH = ROOT / "docs" / "fidelity-timing.md"
TARGETS = "targets"


def mark(name: str) -> str:
    return f"<!-- table: {name} -->"


def text_of(section: Section) -> list[str]:
    """The table's lines."""
    rows = [section.heads, ["---"] * len(section.heads), *section.rows]
    return [f"| {' | '.join(row)} |" for row in rows]


def rows_of(name: str, path: Path = PATH) -> list[list[str]]:
    """The rows of a table as they stand in the document. Raises ValueError where it has none of that name."""
    lines = path.read_text(encoding="utf-8").split("\n")
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in _table(lines, name)[2:]]


def write(sections: Iterable[Section], path: Path = PATH) -> None:
    """Put tables in their places. Raises ValueError for one without a place."""
    lines = path.read_text(encoding="utf-8").split("\n")
    for section in sections:
        old = _table(lines, section.name)
        at = lines.index(mark(section.name)) + 1
        lines[at : at + len(old)] = text_of(section)
    path.write_text("\n".join(lines), encoding="utf-8")


def with_others(section: Section, path: Path = PATH) -> Section:
    """*section* with the rows of the document that it says nothing of, where they stand; new ones at the end."""
    new = {row[0]: row for row in section.rows}
    kept = [new.pop(row[0], row) for row in rows_of(section.name, path)]
    return Section(section.name, section.heads, [*kept, *new.values()])


def _table(lines: list[str], name: str) -> list[str]:
    if mark(name) not in lines:
        raise ValueError(f"{PATH.name} has no line {mark(name)}. Write one where the table is to stand.")
    start = end = lines.index(mark(name)) + 1
    while end < len(lines) and lines[end].startswith("|"):
        end += 1
    return lines[start:end]
