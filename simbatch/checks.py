"""Arguments as they come from Python: the right kind and within range, or an error that names them.

Whole numbers may be anybody's (numpy's too) and come out as Python's; a text that looks like a
number is none, and true is not 1.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from numbers import Integral, Real
from pathlib import Path

from simbatch.errors import UsageError

MOST = 2**53
"""Largest count: whole numbers up to here are exact wherever they go, floats included."""


def whole(name: str, value: object, least: int | None = 1, most: int = MOST) -> int:
    """*value* as an int from *least* (None: whatever) to *most*. Raises UsageError that calls it *name*."""
    if not isinstance(value, Integral) or isinstance(value, bool) or (least is not None and int(value) < least):
        raise UsageError(
            f"{name} is {shown(value)}. Give a whole number{'' if least is None else f' of at least {least}'}."
        )
    if int(value) > most:
        raise UsageError(f"{name} is {shown(value)}, but the most that can be simulated is {most:,}. Give less.")
    return int(value)


def real(name: str, value: object, unit: str = "") -> float:
    """*value* as a float, whatever its range. Raises UsageError that calls it *name* and asks for *unit*."""
    if not isinstance(value, Real) or isinstance(value, bool):
        raise UsageError(f"{name} is {shown(value)}. Give a number{f' of {unit}' if unit else ''}.")
    return float(value)


def flag(name: str, value: object) -> bool:
    """*value* if it is true or false. Raises UsageError that calls it *name*."""
    if type(value).__name__ not in ("bool", "bool_"):
        raise UsageError(f"{name} is {shown(value)}. Give True or False.")
    return bool(value)


def text(name: str, value: object) -> str:
    """*value* if it is text. Raises UsageError that calls it *name*."""
    if not isinstance(value, str):
        raise UsageError(f"{name} is {shown(value)}. Give a name.")
    return value


def path(name: str, value: object) -> Path:
    """*value* if it is a path, as text or as an object. Raises UsageError that calls it *name*."""
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise UsageError(f"{name} is {shown(value)}. Give a path, such as 'results/first'.")
    return Path(os.fsdecode(value))


def names(name: str, value: object) -> Mapping[str, str]:
    """*value* if it is a dict from names to names. Raises UsageError that calls it *name*."""
    if not isinstance(value, Mapping) or not all(isinstance(one, str) for pair in value.items() for one in pair):
        raise UsageError(f"{name} is {shown(value)}. Give a dict of names: ours, and the file's.")
    return value


def shown(value: object) -> str:
    """A value as an error message quotes it, not too long.

    >>> shown("x" * 100)
    "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx..."
    """
    try:
        written = repr(value)
    except ValueError:  # more digits than Python writes
        written = f"a {type(value).__name__} of very many digits"
    return written if len(written) <= 40 else f"{written[:37]}..."
