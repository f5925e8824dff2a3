"""Factors between the batch sizes that were measured: what the formula misses on this card with this model.

Kernels step where the formula is smooth. A factor at each of a few numbers of tokens corrects the part of
an iteration that depends on tokens; it is held near 1 by a prior, so that one odd run moves it less than several
that agree.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from simbatch.answers.fit.problem import Problem
from simbatch.timing.coefficients import Coefficients
from simbatch.timing.many import formula_s
from simbatch.timing.work import Floats, Loads

RUN_NOISE = 0.02
"""By how much runs of the same thing differ: measured repeats, 0.5 to 3 %."""
ODD_RUN = 0.03
"""Median error from which a run loses weight."""
PRIOR = 0.04
"""By how much kernels are off a smooth formula."""
MOST_KNOTS = 14
_WIDTH = 0.15
_APART = 1.1
"""Knots are at least so far from each other."""


@dataclass(frozen=True)
class Knots:
    """Numbers of tokens at which a factor is found, in order, and what an iteration of so many has to do."""

    tokens: Floats
    work: Loads

    def __len__(self) -> int:
        return len(self.tokens)


def no_knots(problem: Problem) -> Knots:
    """Nothing is corrected."""
    return Knots(np.zeros(0), problem.work.take(np.zeros(0, dtype=np.intp)))


def knots_of(problem: Problem) -> Knots:
    """Where there is enough to correct: the middles of the most crowded sizes. For problems of one deployment."""
    logs = np.log(problem.work.tokens)
    rows = problem.weight[problem.observation] * problem.count
    bins = np.round(logs / _WIDTH).astype(int)
    weight = {int(b): float(rows[bins == b].sum()) for b in np.unique(bins)}
    least = 0.003 * sum(weight.values())
    chosen: list[float] = []
    for crowded in sorted(weight, key=lambda b: -weight[b]):
        middle = float(np.exp(np.average(logs[bins == crowded], weights=rows[bins == crowded])))
        if weight[crowded] > least and all(max(middle, other) >= _APART * min(middle, other) for other in chosen):
            chosen.append(middle)
    tokens = np.array(sorted(chosen[:MOST_KNOTS]))
    rows_at = np.abs(logs[None, :] - np.log(tokens)[:, None]).argmin(axis=1)
    near = problem.work.take(rows_at)
    ratio = tokens / near.tokens
    work = replace(near, tokens=tokens, math_s=near.math_s * ratio, reduce_s=near.reduce_s * ratio)
    return Knots(tokens, work)


def factors(problem: Problem, coefficients: Coefficients, knots: Knots) -> Floats:
    """One factor for each of *knots*."""
    if len(knots) < 2:
        return np.ones(len(knots))
    matrix = _columns(problem, coefficients, knots)
    predicted = problem.predicted_s(coefficients)
    sums = np.bincount(problem.run, problem.weight, minlength=len(problem.runs))
    own = np.sqrt(problem.weight / sums[problem.run]) / RUN_NOISE
    weight = own
    change: Floats = np.zeros(len(knots))
    for _ in range(10):
        scale = weight / problem.measured_s
        system = np.vstack([matrix * scale[:, None], np.eye(len(knots)) / PRIOR])
        target = np.append((problem.measured_s - predicted) * scale, np.zeros(len(knots)))
        change = np.asarray(np.linalg.lstsq(system, target, rcond=None)[0])
        errors = (predicted + matrix @ change) / problem.measured_s - 1
        medians = np.zeros(len(problem.runs))
        for run in np.unique(problem.run):
            medians[run] = np.median(errors[problem.run == run])
        runs = (1 / (1 + (medians / ODD_RUN) ** 2))[problem.run]
        weight = own * np.sqrt(runs / np.sqrt(1 + (errors / RUN_NOISE) ** 2))
    found: Floats = 1 + change
    return found


def corrected_s(problem: Problem, coefficients: Coefficients, knots: Knots, factor: Floats) -> Floats:
    """Predicted times with the factors."""
    predicted = problem.predicted_s(coefficients)
    if len(knots) < 2:
        return predicted
    corrected: Floats = predicted + _columns(problem, coefficients, knots) @ (factor - 1)
    return corrected


def _columns(problem: Problem, coefficients: Coefficients, knots: Knots) -> Floats:
    """Seconds that each knot's factor multiplies: the part that depends on tokens, as a line between knots.

    Beyond the first and the last knot their factors go on.
    """
    part, at_knots = (_part_s(coefficients, work) for work in (problem.work, knots.work))
    rising = np.maximum.accumulate(at_knots) + 1e-12 * np.arange(len(knots))
    columns = [np.interp(part, rising, row) * value for row, value in zip(np.eye(len(knots)), rising, strict=True)]
    columns[0] = np.where(part < rising[0], part, columns[0])
    columns[-1] = np.where(part > rising[-1], part, columns[-1])
    return np.stack([problem.total(column) for column in columns], axis=1)


def _part_s(coefficients: Coefficients, work: Loads) -> Floats:
    """Seconds of what depends on tokens alone."""
    nothing = np.zeros(len(work))
    alone = replace(work, kv_s=nothing, kv_sequence_s=nothing, prefill_kv_s=nothing, pairs_s=nothing,
                    head_read_s=nothing, head_math_s=nothing)  # fmt: skip
    return formula_s(replace(coefficients, sequence_us=0.0, crowding_ns=0.0, prompt_us=0.0, waiting_ns=0.0), alone)
