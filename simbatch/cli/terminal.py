"""What is written where: results on standard output, everything else on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

Progress = Callable[[int, int], None]


def write(text: str) -> None:
    """A result, for people."""
    click.echo(text)


def write_json(value: Any) -> None:
    """A result, for programs: one JSON value and nothing else."""
    click.echo(json.dumps(value, indent=2, allow_nan=False))


def note(text: str) -> None:
    """Something beside the result."""
    click.echo(text, err=True)


def warn(warnings: Iterable[str]) -> None:
    """One line for each of *warnings*."""
    for warning in warnings:
        note(f"Warning: {warning}")


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they need to be; those that hold figures only end aligned."""
    columns = list(zip(heads, *rows, strict=True))
    lines = zip(*(_aligned(column) for column in columns), strict=True)
    return "\n".join("  ".join(line).rstrip() for line in lines)


def _aligned(column: Sequence[str]) -> list[str]:
    width = max(map(len, column))
    figures = not "".join(column[1:]).strip("0123456789.,-")
    return [cell.rjust(width) if figures else cell.ljust(width) for cell in column]


@contextmanager
def progress(quiet: bool) -> Iterator[Progress | None]:
    """A bar on standard error that counts requests; None where nobody would see it."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from tqdm import tqdm

    # A run that is over at once shows none.
    with tqdm(unit=" requests", leave=False, delay=0.5, dynamic_ncols=True, file=sys.stderr) as bar:

        def advance(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield advance
