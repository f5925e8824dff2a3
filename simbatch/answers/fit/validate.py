"""How good a fit is on what it has not seen: runs left out one after the other, and resampled runs.

Errors are of every measured iteration, not of the cells that were fitted. With many runs they are left
out in groups. Intervals come from fits to runs drawn with replacement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from simbatch.answers.fit.correct import Knots, corrected_s, factors
from simbatch.answers.fit.problem import Problem
from simbatch.answers.fit.solve import Solution, solve
from simbatch.timing.work import Floats

MOST_FOLDS = 12
_FEW = 25
"""Evaluations of a fit that starts from a good one."""


@dataclass(frozen=True)
class RunError:
    """How far predictions of one run were off, by a fit that had not seen it."""

    run: str
    median: float
    """Of the relative errors of its observations, signs left in."""
    median_size: float
    """The same, signs left out."""
    total: float
    """Of all of its time together."""
    observations: int


@dataclass(frozen=True)
class Unseen:
    """Errors on runs left out of the fit."""

    errors: Floats
    """Of every observation, in the order of the problem they were asked of."""
    runs: list[RunError]


def cross_validate(
    cells: Problem,
    every: Problem,
    solution: Solution,
    knots: Knots,
    fold_of: Callable[[str], str] = str,
    on_fit: Callable[[], None] = lambda: None,
) -> Unseen:
    """Leave the runs of *cells* out in turn, fit the rest, and predict the same runs of *every*.

    *fold_of* maps a run's name to what is left out together with it; *on_fit* is called after each fit.
    """
    folds = list(dict.fromkeys(map(fold_of, cells.runs)))
    group = {fold: at % MOST_FOLDS if len(folds) > MOST_FOLDS else at for at, fold in enumerate(folds)}
    cell_group = np.array([group[fold_of(name)] for name in cells.runs])[cells.run]
    split = len(cells.runs) > len(every.runs)  # one run, cut into blocks
    predicted = np.zeros(len(every))
    for left_out in sorted(set(group.values())):
        training = cells.take(np.flatnonzero(cell_group != left_out))
        fit = solve(training, solution.coefficients, solution.free, reweights=3, most=_FEW)
        factor = factors(training, fit.coefficients, knots)
        on_fit()
        if split:
            chosen = np.array_split(np.arange(len(every)), len(cells.runs))[left_out]
        else:
            mine = [at for at, name in enumerate(every.runs) if group[fold_of(name)] == left_out]
            chosen = np.flatnonzero(np.isin(every.run, mine))
        if len(chosen):
            predicted[chosen] = corrected_s(every.take(chosen), fit.coefficients, knots, factor)
    return Unseen(predicted / every.measured_s - 1, by_run(every, predicted))


def seen(problem: Problem, solution: Solution, knots: Knots, factor: Floats) -> Unseen:
    """Errors on what was fitted, where nothing is to be left out."""
    predicted = corrected_s(problem, solution.coefficients, knots, factor)
    return Unseen(predicted / problem.measured_s - 1, by_run(problem, predicted))


def by_run(problem: Problem, predicted_s: Floats) -> list[RunError]:
    """Errors of *predicted_s*, run by run."""
    errors = predicted_s / problem.measured_s - 1
    found = []
    for at, name in enumerate(problem.runs):
        mine = problem.run == at
        if mine.any():
            total = float(predicted_s[mine].sum() / problem.measured_s[mine].sum() - 1)
            median, size = float(np.median(errors[mine])), float(np.median(np.abs(errors[mine])))
            found.append(RunError(name, median, size, total, int(mine.sum())))
    return found


def intervals(
    cells: Problem, solution: Solution, *, times: int, seed: int, on_fit: Callable[[], None] = lambda: None
) -> dict[str, tuple[float, float]]:
    """Where 90 % of the fits to resampled runs lie, for each fitted coefficient."""
    draw = np.random.default_rng(seed)
    runs = np.arange(len(cells.runs))
    found: list[list[float]] = []
    for _ in range(times):
        drawn = cells.of_runs(draw.choice(runs, len(runs)))
        fit = solve(drawn, solution.coefficients, solution.free, reweights=2, most=_FEW)
        found.append([getattr(fit.coefficients, name) for name in solution.free])
        on_fit()
    if not found:
        return {name: (getattr(solution.coefficients, name),) * 2 for name in solution.free}
    low, high = np.percentile(np.array(found), [5, 95], axis=0)
    return {name: (float(low[at]), float(high[at])) for at, name in enumerate(solution.free)}


def spread_of(runs: Sequence[RunError]) -> float:
    """Error of a whole run's time to reckon with: at most this in nine of ten unseen runs."""
    return float(np.percentile([abs(run.total) for run in runs], 90)) if runs else 0.0
