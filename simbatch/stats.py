"""Sums and percentiles that do not lose digits, the six figures that describe a latency, intervals.

Integers in picoseconds times counts leave 64 bits, and floats lose the last digits; `exact_dot`
does neither. Percentiles interpolate linearly between the two nearest values, as
``numpy.percentile`` does, to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simbatch.facts import Ints
from simbatch.units import PS_PER_S

PERCENTILES = (50, 90, 95, 99)
FIGURES = ("mean", *(f"p{p}" for p in PERCENTILES), "max")
"""What each latency is described by."""

CONFIDENCE = 0.95
"""Of every interval that is shown."""

_LIMB_BITS = 21
_CHUNK = 1 << 20


class Interval(NamedTuple):
    """A mean and between what it lies; None where one value alone cannot say."""

    mean: float
    low: float | None
    high: float | None

    @property
    def is_apart(self) -> bool:
        """Does it leave 0 out? Of a difference: is one shown?"""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


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


def interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """The mean of independent *values* and Student's interval around it; without one below two values.

    >>> found = interval([1.0, 2.0, 3.0])
    >>> found.mean, round(found.low, 3), round(found.high, 3)
    (2.0, -0.484, 4.484)
    """
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return Interval(mean, None, None)
    from scipy.special import stdtrit

    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    half = float(stdtrit(len(values) - 1, (1 + confidence) / 2)) * deviation / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half)


def settled_from(values: NDArray[Any], batch: int = 5) -> int | None:
    """How many of *values*, in order of time, to leave out as warm-up, by MSER-5; None where they never settle.

    The cut is where the standard error of the mean of what is left is least. It looks at means of *batch*
    values, and is no answer when it falls into the second half.
    """
    count = len(values) // batch
    if count < 4:
        return None
    means = np.asarray(values[: count * batch], dtype=np.float64).reshape(count, batch).mean(axis=1)
    means = means - means.mean()  # so that the difference below keeps its digits
    left = np.arange(count, 0, -1)
    sums, squares = np.cumsum(means[::-1])[::-1], np.cumsum(means[::-1] ** 2)[::-1]
    error = (squares - sums**2 / left)[:-1] / left[:-1] ** 2
    # The last few always look settled: there is next to nothing left of them.
    cut = int(np.argmin(error[: max(1, count - 5)]))
    return cut * batch if cut <= count // 2 else None
