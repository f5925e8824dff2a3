"""What a fit is given: iterations, and what was measured of them.

An observation is a measured time; it may be that of one iteration, of several in a row, or of a
whole run, and each is the sum over its rows of *count* times the formula. Runs are what errors are
validated by: iterations of one run share its weather, so they are never split between fitting and
testing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from simbatch.timing.coefficients import Coefficients
from simbatch.timing.many import formula_s
from simbatch.timing.work import Floats, Loads

Indices = NDArray[np.intp]


@dataclass(frozen=True)
class Problem:
    """Rows of work, and observations that are sums over them."""

    work: Loads
    count: Floats
    """Iterations that each row stands for."""
    observation: Indices
    """Which observation each row belongs to: sorted, from 0, none left out."""
    measured_s: Floats
    run: Indices
    """Run of each observation, from 0."""
    weight: Floats
    """How much each observation counts within its run."""
    runs: tuple[str, ...]
    """Names of the runs."""

    def __len__(self) -> int:
        return len(self.measured_s)

    @cached_property
    def starts(self) -> Indices:
        """First row of each observation."""
        return np.searchsorted(self.observation, np.arange(len(self)))

    def predicted_s(self, coefficients: Coefficients) -> Floats:
        """The formula's time of each observation."""
        return self.total(formula_s(coefficients, self.work))

    def total(self, per_iteration: Floats) -> Floats:
        """Sums over the rows of each observation."""
        sums: Floats = np.add.reduceat(per_iteration * self.count, self.starts)
        return sums

    def errors(self, coefficients: Coefficients) -> Floats:
        """Predicted ÷ measured - 1."""
        return self.predicted_s(coefficients) / self.measured_s - 1

    def take(self, observations: Indices) -> Problem:
        """Some observations, in the order given; an observation may be taken more than once."""
        starts = self.starts
        lengths = np.diff(np.append(starts, len(self.observation)))
        taken = lengths[observations]
        if taken.max(initial=1) == 1 and lengths.max(initial=1) == 1:
            rows: Indices = starts[observations]
        else:
            ends = np.cumsum(taken)
            rows = np.repeat(starts[observations] - (ends - taken), taken) + np.arange(int(taken.sum()))
        return replace(
            self,
            work=self.work.take(rows),
            count=self.count[rows],
            observation=np.repeat(np.arange(len(observations)), taken),
            measured_s=self.measured_s[observations],
            run=self.run[observations],
            weight=self.weight[observations],
        )

    def of_runs(self, runs: Indices) -> Problem:
        """The observations of some runs; one that is named twice counts twice."""
        return self.take(np.concatenate([np.flatnonzero(self.run == run) for run in runs]))
