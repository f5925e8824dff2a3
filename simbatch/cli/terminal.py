"""What is written where: results on standard output, everything else on standard error.

A result that cannot be written is an error; a note that cannot be written is lost.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

import click

from simbatch.errors import SimbatchError

Progress = Callable[[int, int], None]


def write(text: str) -> None:
    """A result, for people. Raises SimbatchError when it cannot be written; a reader that has gone is none."""
    try:
        click.echo(text)
    except BrokenPipeError:
        raise
    except OSError as error:
        give_up(sys.stdout)
        raise SimbatchError(cannot_be_written(error)) from error


def cannot_be_written(error: OSError) -> str:
    """What to say when standard output takes nothing more."""
    return f"standard output cannot be written to ({error.strerror or error}). Make room, or send it elsewhere."


def give_up(stream: TextIO) -> None:
    """What *stream* still holds is thrown away, lest the interpreter tries to write it again as it ends."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        pass  # no file behind it


def write_json(value: Any) -> None:
    """A result, for programs: one JSON value and nothing else."""
    write(json.dumps(value, indent=2, allow_nan=False))


def note(text: str) -> None:
    """Something beside the result."""
    try:
        click.echo(text, err=True)
    except OSError:
        give_up(sys.stderr)


def warn(warnings: Iterable[str]) -> None:
    """One line for each of *warnings*."""
    for warning in warnings:
        note(f"Warning: {warning}")


@contextmanager
def progress(quiet: bool, unit: str = " requests") -> Iterator[Progress | None]:
    """A bar on standard error that counts *unit*; None where nobody would see it."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from tqdm import tqdm

    # A run that is over at once shows none.
    with tqdm(unit=unit, unit_scale=unit == "B", leave=False, delay=0.5, dynamic_ncols=True, file=sys.stderr) as bar:

        def advance(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield advance
