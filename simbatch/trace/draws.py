"""Random numbers: one seed for all, and a stream of its own for each purpose.

So two policies meet the same customers, and drawing more lengths does not move an arrival.
"""

from __future__ import annotations

import numpy as np

from simbatch.checks import whole
from simbatch.errors import UsageError

_PURPOSES = {"arrivals": 0, "sample": 1, "lengths": 2, "prefix": 3, "turns": 4, "think": 5}


def generator(seed: int, purpose: str) -> np.random.Generator:
    """Random numbers of *seed* for one *purpose*, independent of those for another."""
    if whole("the seed", seed, least=None, most=2**128) < 0:
        raise UsageError(f"the seed is {seed}, but seeds count from 0. Give a whole number that is not negative.")
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_PURPOSES[purpose],)))
