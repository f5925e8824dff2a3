"""When requests come: gaps drawn from a Gamma distribution.

Its shape is called burstiness, as in vllm bench: 1 is a Poisson process, less is burstier, more is
steadier (the coefficient of variation of a gap is 1/√burstiness). Unlike vllm bench, the gaps are
not rescaled so that the last request comes at the expected time: the rate of a sample varies
around the rate asked for, as that of real traffic does.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from simbatch.errors import UsageError
from simbatch.units import MAX_PS, PS_PER_S

_PURPOSES = {"arrivals": 0, "sample": 1}


def generator(seed: int, purpose: str) -> np.random.Generator:
    """Random numbers of *seed* for one *purpose* (arrivals or sample), independent of those for another."""
    if seed < 0:
        raise UsageError(f"the seed is {seed}, but seeds count from 0. Give a whole number that is not negative.")
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_PURPOSES[purpose],)))


def gamma_arrivals_ps(requests: int, rate_per_s: float, burstiness: float = 1.0, seed: int = 0) -> NDArray[np.int64]:
    """Arrival times in picoseconds, the first one after the first gap.

    Gaps have a mean of 1/*rate_per_s* seconds and the shape *burstiness*. Raises UsageError for a
    rate or a shape that is not positive, and where the clock ends before the last arrival.
    """
    for name, value in (("rate", rate_per_s), ("burstiness", burstiness)):
        if not (value > 0 and math.isfinite(value)):
            unit = " requests per second" if name == "rate" else ""
            raise UsageError(f"the {name} is {value:g}{unit}, but it has to be more than 0. Give a positive number.")
    gaps_s = generator(seed, "arrivals").gamma(burstiness, 1.0 / (rate_per_s * burstiness), requests)
    span_s = float(gaps_s.sum())
    if not span_s * PS_PER_S < MAX_PS:
        raise UsageError(
            f"{requests:,} requests at {rate_per_s:g} per second take {span_s / 86_400:,.0f} days, "
            f"but the clock ends after {MAX_PS // (86_400 * PS_PER_S)} days. Raise the rate or lower the requests."
        )
    return np.cumsum(np.rint(gaps_s * PS_PER_S).astype(np.int64))
