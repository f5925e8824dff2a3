"""How values are written on the command line: durations with a unit, counts as vLLM takes them, maps of columns.

Each function takes the text after an option and raises click's error for it, which names the option.
"""

from __future__ import annotations

import re
from fractions import Fraction

import click

from simbatch.errors import SimbatchError
from simbatch.units import parse_duration_s, parse_memory_bytes

_SCALES = {"": 1, "k": 10**3, "K": 2**10, "m": 10**6, "M": 2**20}
_COUNT = re.compile(r"([+-]?[0-9]+(?:\.[0-9]+)?)([kKmM]?)")


def duration(text: str) -> float:
    """Seconds from ``500ms`` or ``2s``; a bare number is an error, not a guess."""
    try:
        return parse_duration_s(text)
    except SimbatchError as error:
        raise click.BadParameter(str(error)) from error


def memory(text: str) -> int:
    """Bytes from ``24GiB`` or ``80GB``; a bare number is bytes, as vLLM takes it."""
    if text.strip().isdecimal():
        return int(text)
    try:
        return parse_memory_bytes(text)
    except SimbatchError as error:
        raise click.BadParameter(str(error)) from error


def count(text: str) -> int:
    """A whole number, also as vLLM's flags take it.

    >>> count("4096"), count("4k"), count("4K")
    (4096, 4000, 4096)
    """
    match = _COUNT.fullmatch(text.strip())
    number = Fraction(match[1]) * _SCALES[match[2]] if match else None
    if number is None or number.denominator != 1:
        raise click.BadParameter(f"{text!r} is not a whole number. Write one such as 4096, 4k (4,000) or 4K (4,096).")
    return int(number)


def warmup(text: str) -> float | str:
    """Seconds from ``30s``, or ``auto``."""
    return text.strip() if text.strip() == "auto" else duration(text)


def seed(text: str) -> int:
    """A whole number from 0, for the generators of random numbers."""
    if not (text.strip().isdecimal() and text.isascii() and len(text) <= 30):
        raise click.BadParameter(f"{text!r} is not a seed. Give a whole number from 0.")
    return int(text)


def column_map(text: str) -> dict[str, str]:
    """Our columns and the file's names for them.

    >>> column_map("output_tokens=completion_tokens,arrival_s=ts")
    {'output_tokens': 'completion_tokens', 'arrival_s': 'ts'}
    """
    found: dict[str, str] = {}
    for part in text.split(","):
        ours, _, theirs = (piece.strip() for piece in part.partition("="))
        if not ours or not theirs:
            raise click.BadParameter(f"{part!r} is not OURS=FILE. Write for example output_tokens=completion_tokens.")
        if ours in found:
            raise click.BadParameter(f"{ours} is mapped twice. Leave one of the two out.")
        found[ours] = theirs
    return found


def pins(text: str) -> dict[str, float]:
    """Coefficients of a timing and their values.

    >>> pins("weight_efficiency=0.85,step_us=1000")
    {'weight_efficiency': 0.85, 'step_us': 1000.0}
    """
    found = {}
    for name, value in column_map(text).items():
        try:
            found[name] = float(value)
        except ValueError:
            raise click.BadParameter(f"{name} is {value!r}. Give a number, such as weight_efficiency=0.85.") from None
    return found


def prices(text: str) -> float | dict[str, float]:
    """Dollars per hour, of every GPU or by its name.

    >>> prices("2.5"), prices("h100=2.5,l40s=0.9")
    (2.5, {'h100': 2.5, 'l40s': 0.9})
    """
    if "=" not in text:
        return _dollars(text)
    return {name: _dollars(price) for name, price in column_map(text).items()}


def _dollars(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a price. Give dollars per hour, such as 2.5.") from None


def choices(text: str) -> tuple[str, list[str | int | float]]:
    """An option and the values to try: numbers where they are numbers.

    >>> choices("tp=1,2"), choices("gpu=h100,l40s")
    (('tensor_parallel_size', [1, 2]), ('gpu', ['h100', 'l40s']))
    """
    name, _, values = (part.strip() for part in text.partition("="))
    found = [_number_or_name(value.strip()) for value in values.split(",") if value.strip()]
    if not name or not found:
        raise click.BadParameter(f"{text!r} is not NAME=A,B,... Write for example gpu=h100,l40s or tp=1,2.")
    name = name.lstrip("-").replace("-", "_")
    return {"tp": "tensor_parallel_size", "num_gpu_blocks_override": "num_gpu_blocks"}.get(name, name), found


def _number_or_name(text: str) -> str | int | float:
    for kind in (count, float):
        try:
            return kind(text)
        except (click.BadParameter, ValueError):
            continue
    return text
