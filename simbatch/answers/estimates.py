"""Estimates and what lies around them: a value that is not measured is a range.

The errors are the largest of the estimates in `simbatch.deployment.memory_budget`, rounded up, against
23 start-up logs of vLLM 0.17 and 0.19 on one to four H100. `docs/capacity-logs.md` lists all logs, with
those of other releases and cards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

GIB = 2**30

ACTIVATION_ERROR_GIB = 0.3
NON_TORCH_ERROR_GIB = 0.25
GRAPH_ERROR_GIB = 0.3
GRAPH_ERROR_OF_EXPERTS_GIB = 0.65


@dataclass(frozen=True)
class Range:
    """An estimate, and between what it lies."""

    low: float
    value: float
    high: float

    def through(self, count: Callable[[float], float]) -> Range:
        """The range of a function that does not fall as its argument grows."""
        return Range(count(self.low), count(self.value), count(self.high))


def about(estimate_bytes: int, error_gib: float) -> Range:
    """An estimate in GiB with its error, never below nothing."""
    value = estimate_bytes / GIB
    return Range(max(0.0, value - error_gib), value, value + error_gib)


def exactly(value: float) -> Range:
    """What is known."""
    return Range(value, value, value)
