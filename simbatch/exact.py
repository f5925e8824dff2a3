"""Whole numbers in columns, however large: 64 bits where they are enough, Python's integers where not."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
FITS = float(1 << 62)
"""What is below this as a float is below 2**63 exactly."""

_FLOATS = 1 << 53
"""Up to this a float is any whole number."""


def product(one: Any, other: Any) -> Any:
    """Exact, whatever its size."""
    if one.size and np.abs(one.astype(np.float64) * other.astype(np.float64)).max() >= FITS:
        one = one.astype(object)
    return one * other


def summable(column: Any, terms: int) -> Any:
    """*column*, such that sums of *terms* of its numbers are exact."""
    if column.dtype != object and column.size and float(np.abs(column).max()) * terms >= FITS:
        column = column.astype(object)
    return column


def over(numerators: Any, denominators: Ints) -> Floats:
    """Quotients of what is not negative, rounded once, whichever kind of integer it is of."""
    if numerators.dtype != object:
        quotients: Floats = numerators / denominators
        inexact = np.flatnonzero((numerators > _FLOATS) | (denominators > _FLOATS))
    else:
        quotients, inexact = np.empty(len(numerators)), np.arange(len(numerators))
    pairs = zip(numerators[inexact].tolist(), denominators[inexact].tolist(), strict=True)
    quotients[inexact] = [one / other for one, other in pairs]
    return quotients
