"""Sums and percentiles that do not lose digits, and the six figures that describe a latency.

Integers in picoseconds times counts leave 64 bits, and floats lose the last digits; `exact_dot`
does neither. Percentiles interpolate linearly between the two nearest values, as
``numpy.percentile`` does, to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simbatch.facts import Ints
from simbatch.units import PS_PER_S

PERCENTILES = (50, 90, 95, 99)
FIGURES = ("mean", *(f"p{p}" for p in PERCENTILES), "max")
"""What each latency is described by."""

_LIMB_BITS = 21
_CHUNK = 1 << 20


def exact_dot(counts: Ints, values: Ints) -> int:
    """The sum of *counts* times *values*, exactly, however large."""
    if counts.size == 0:
        return 0
    mask = (1 << _LIMB_BITS) - 1
    if max(-int(counts.min()), int(counts.max())) > mask:
        return exact_dot(counts & mask, values) + (exact_dot(counts >> _LIMB_BITS, values) << _LIMB_BITS)
    # Three limbs of a value, each times a count below 2**21: 2**20 such products fit in 64 bits.
    total = 0
    for start in range(0, counts.size, _CHUNK):
        part, value = counts[start : start + _CHUNK], values[start : start + _CHUNK]
        total += int(part @ (value & mask))
        total += int(part @ ((value >> _LIMB_BITS) & mask)) << _LIMB_BITS
        total += int(part @ (value >> (2 * _LIMB_BITS))) << (2 * _LIMB_BITS)
    return total


def exact_sum(values: Ints) -> int:
    """The sum of *values*, exactly, however large."""
    return exact_dot(np.ones_like(values), values)


def figures_s(values_ps: NDArray[Any]) -> dict[str, float | None]:
    """Mean, percentiles and maximum of times, in seconds; all None where there is none."""
    if values_ps.size == 0:
        return dict.fromkeys(FIGURES)
    percentiles = np.percentile(values_ps, PERCENTILES)
    figures = [values_ps.mean(), *percentiles, values_ps.max()]
    return {name: float(figure) / PS_PER_S for name, figure in zip(FIGURES, figures, strict=True)}


def ranks_of(percentile: float, count: int) -> tuple[int, int, float]:
    """The two neighbours (from 0) between which a percentile of *count* values lies, and how far along."""
    position = (count - 1) * (percentile / 100)
    lower = math.floor(position)
    return lower, min(lower + 1, count - 1), position - lower


def percentiles_from(
    select: Callable[[Sequence[int]], dict[int, int]], count: int, percentiles: Sequence[float] = PERCENTILES
) -> list[float]:
    """Percentiles of *count* values of which only those at given ranks can be had, through *select*."""
    places = [ranks_of(percentile, count) for percentile in percentiles]
    value_at = select(sorted({rank for lower, upper, _ in places for rank in (lower, upper)}))
    return [_between(value_at[lower], value_at[upper], weight) for lower, upper, weight in places]


def _between(lower: int, upper: int, weight: float) -> float:
    """Linear interpolation, from the nearer end: as numpy does it, so that the last bit agrees."""
    step = upper - lower
    return upper - step * (1 - weight) if weight >= 0.5 else lower + step * weight
