"""Reading and showing quantities: the one place where a unit is a matter of code.

Time inside the simulator is an integer number of picoseconds, so sums do not depend on how they
are grouped and ties never flip; seconds stand at every public edge.
"""

from __future__ import annotations

import re

from simbatch.errors import UsageError

PS_PER_S = 10**12
PS_PER_MS = 10**9
PS_PER_US = 10**6
PS_PER_NS = 10**3
MAX_PS = 2**63 - 1
"""Last instant that a 64-bit column can hold: about 106 days."""

_DURATION_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_MEMORY_BYTES = {
    "B": 1,
    "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
}  # fmt: skip
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-zµ]*)\s*")


def to_ps(seconds: float) -> int:
    """Whole picoseconds nearest to *seconds*.

    >>> to_ps(0.0256)
    25600000000
    """
    return round(seconds * PS_PER_S)


def to_s(picoseconds: int) -> float:
    """Seconds, for the public edge."""
    return picoseconds / PS_PER_S


def parse_duration_s(text: str) -> float:
    """Seconds in a duration such as ``500ms``, ``2s`` or ``1.5min``.

    Raises UsageError without a unit: a bare number may be seconds or milliseconds, and a guess
    would be off a thousandfold.

    >>> parse_duration_s("500ms")
    0.5
    """
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is not a duration. Write a number and a unit, such as 500ms or 2s.")
    number, unit = match.groups()
    if not unit:
        raise UsageError(f"the duration {text!r} has no unit. Write {number}ms or {number}s.")
    if unit not in _DURATION_S:
        raise UsageError(f"{unit!r} in {text!r} is not a unit of time. Known: {', '.join(_DURATION_S)}.")
    return float(number) * _DURATION_S[unit]


def parse_memory_bytes(text: str) -> int:
    """Bytes in an amount of memory such as ``80GB`` (10⁹) or ``24GiB`` (2³⁰).

    Raises UsageError without a unit.

    >>> parse_memory_bytes("24GiB")
    25769803776
    """
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is not an amount of memory. Write a number and a unit, such as 80GB or 24GiB.")
    number, unit = match.groups()
    if not unit:
        raise UsageError(f"the amount of memory {text!r} has no unit. Write {number}GB or {number}GiB.")
    if unit not in _MEMORY_BYTES:
        raise UsageError(f"{unit!r} in {text!r} is not a unit of memory. Known: {', '.join(_MEMORY_BYTES)}.")
    return round(float(number) * _MEMORY_BYTES[unit])


def show_s(seconds: float) -> str:
    """A duration as people write it, with three significant digits.

    >>> [show_s(x) for x in (0.0000123, 0.01234, 1.5, 754.0, 7300.0)]
    ['12.3 µs', '12.3 ms', '1.50 s', '754 s', '2.03 h']
    """
    for unit, size in (("ns", 1e-9), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)):
        scaled = seconds / size
        if abs(scaled) < 999.5:
            return f"{show_number(scaled)} {unit}"
    return f"{show_number(seconds)} s" if seconds < 7200 else f"{show_number(seconds / 3600)} h"


def show_number(value: float) -> str:
    """Three significant digits without an exponent; thousands separated.

    >>> [show_number(x) for x in (0.0, 0.04567, 1.5, 37.25, 754.4, 12345.6)]
    ['0', '0.0457', '1.50', '37.2', '754', '12,346']
    """
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    if size >= 1:
        return f"{value:.2f}"
    return f"{value:.3g}"
