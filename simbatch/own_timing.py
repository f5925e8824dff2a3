"""A timing of somebody's own, whose every answer is looked at before the engine takes it for times."""

from __future__ import annotations

from numbers import Integral

from simbatch import faults
from simbatch.timing.base import Iteration, Timing


def looked_at(timing: Timing) -> Timing:
    """*timing* as the engine asks it: itself if it is one of ours."""
    return timing if type(timing).__module__.startswith("simbatch.") else OwnTiming(timing)


class OwnTiming:
    """Raises PolicyError where *timing* answers anything but a progression; numpy's whole numbers become Python's."""

    def __init__(self, timing: Timing) -> None:
        self.timing = timing

    def progression(self, iteration: Iteration) -> tuple[int, int, int]:
        told: object = self.timing.progression(iteration)
        if not isinstance(told, tuple) or len(told) != 3 or not all(isinstance(number, Integral) for number in told):
            raise faults.no_progression(self.timing, told)
        first, increment, holds = map(int, told)
        if holds < 1:
            raise faults.no_progression(self.timing, told)
        last = first if increment >= 0 else first + increment * (holds - 1)
        if last < 1:
            raise faults.takes_no_time(self.timing, iteration.tokens, holds if last < first else 1, last)
        return first, increment, holds

    def describe(self) -> dict[str, object]:
        return self.timing.describe()
