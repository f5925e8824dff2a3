"""What is written where: results on standard output, everything else on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
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
