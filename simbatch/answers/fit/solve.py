"""The least relative error: robust against odd iterations, and against odd runs.

Residuals are relative, so that a millisecond matters where an iteration takes ten. A soft loss
takes the weight from iterations that fit nothing (pauses of the host), and runs whose median stays off
lose weight as a whole, since one slow machine would otherwise bend every coefficient. All runs
start equal, however long they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from simbatch.answers.fit.problem import Problem
from simbatch.timing.coefficients import Coefficients
from simbatch.timing.many import formula_slopes
from simbatch.timing.work import Floats

SOFT = 0.02
"""Relative error from which an iteration loses weight."""
RUN_SOFT = 0.02
"""The same for the median of a run."""
_REWEIGHTS = 4
BOUNDS = {
    "step_us": (0.0, 1e5),
    "layer_us": (0.0, 2e3),
    "eager_layer_us": (0.0, 2e3),
    "weight_efficiency": (0.3, 1.0),
    "compute_efficiency": (0.1, 1.0),
    "roof_power": (1.0, 8.0),
    "kv_efficiency": (0.1, 1.2),
    "kv_half_heads": (0.0, 16.0),
    "kv_floor_tokens": (0.0, 400.0),
    "kv_sequence_tokens": (0.0, 400.0),
    "mixed_kv_share": (0.0, 4.0),
    "prefill_efficiency": (0.05, 1.0),
    "sequence_us": (0.0, 1e3),
    "crowding_ns": (0.0, 1e4),
    "prompt_us": (0.0, 5e3),
    "waiting_ns": (0.0, 1e5),
    "all_reduce_us": (0.0, 500.0),
    "link_efficiency": (0.02, 1.0),
}
"""Where a coefficient is looked for."""
SIZES = {
    "step_us": 1e3, "layer_us": 20.0, "eager_layer_us": 20.0, "kv_floor_tokens": 30.0, "kv_sequence_tokens": 30.0,
    "sequence_us": 5.0, "crowding_ns": 5.0, "prompt_us": 100.0, "waiting_ns": 500.0, "all_reduce_us": 10.0,
    "kv_half_heads": 2.0, "roof_power": 2.0,
}  # fmt: skip
"""What a usual value is, where it is not near 1: steps of the solver are measured by it."""


@dataclass(frozen=True)
class Solution:
    """Coefficients, and which of them were fitted."""

    coefficients: Coefficients
    free: tuple[str, ...]


def solve(
    problem: Problem, start: Coefficients, free: Sequence[str], *, reweights: int = _REWEIGHTS, most: int = 40
) -> Solution:
    """The coefficients named in *free*, from *start*; the others stay. At most *most* steps between reweightings."""
    if not free:
        return Solution(start, ())
    low, high = (np.array([BOUNDS[name][side] for name in free]) for side in (0, 1))
    at = np.clip([getattr(start, name) for name in free], low, high)

    def named(x: Floats) -> Coefficients:
        return replace(start, **dict(zip(free, np.clip(x, low, high).tolist(), strict=True)))

    def slopes(x: Floats) -> Floats:
        columns = formula_slopes(named(x), problem.work, free)
        return np.stack([problem.total(column) / problem.measured_s for column in columns], axis=1)

    sizes = np.array([SIZES.get(name, 1.0) for name in free])
    base = _equal_runs(problem)
    weight = base
    for _ in range(reweights):
        at = _descend(lambda x: problem.errors(named(x)), slopes, at, (low, high), sizes, weight, most)
        weight = base * _trust(problem, problem.errors(named(at)))
    at = np.where(at < 1e-4 * sizes, np.maximum(low, 0.0), at)  # what is next to nothing is nothing
    return Solution(named(at), tuple(free))


def _descend(
    errors: Callable[[Floats], Floats],
    slopes: Callable[[Floats], Floats],
    at: Floats,
    bounds: tuple[Floats, Floats],
    sizes: Floats,
    weight: Floats,
    most: int,
) -> Floats:
    """Damped Gauss-Newton steps inside of *bounds*, on the normal equations: thousands of rows, a dozen unknowns."""
    from scipy.optimize import lsq_linear

    residual = errors(at)
    cost, damping = _cost(residual, weight), 1e-3
    for _ in range(most):
        soft = weight / np.sqrt(np.sqrt(1 + (residual / SOFT) ** 2))
        matrix = slopes(at) * (soft[:, None] * sizes)
        square, slope = matrix.T @ matrix, matrix.T @ (residual * soft)
        scale = np.diag(square) + 1e-9 * np.trace(square) + 1e-30
        for _ in range(8):
            factor = np.linalg.cholesky(square + damping * np.diag(scale)).T
            target = np.linalg.solve(factor.T, -slope)
            step = lsq_linear(factor, target, ((bounds[0] - at) / sizes - 1e-12, (bounds[1] - at) / sizes + 1e-12)).x
            new = np.clip(at + step * sizes, *bounds)
            tried = errors(new)
            lower = _cost(tried, weight)
            if lower < cost:
                break
            damping = min(damping * 8, 1e6)
        else:
            return at
        gained, at, residual, cost = cost - lower, new, tried, lower
        damping = max(damping / 5, 1e-7)
        if gained < 1e-6 * cost:
            break
    return at


def _cost(residual: Floats, weight: Floats) -> float:
    """The soft loss: squares of small errors, sizes of large ones."""
    return float(np.sum(weight**2 * 2 * SOFT**2 * (np.sqrt(1 + (residual / SOFT) ** 2) - 1)))


def _equal_runs(problem: Problem) -> Floats:
    """Square roots of weights that give every run the same sum."""
    sums = np.bincount(problem.run, problem.weight, minlength=len(problem.runs))
    present = max(1, int((sums > 0).sum()))
    scaled: Floats = np.sqrt(problem.weight / sums[problem.run] * len(problem) / present)
    return scaled


def _trust(problem: Problem, errors: Floats) -> Floats:
    """Square root of the weight of each observation's run, from the run's median error."""
    medians = np.zeros(len(problem.runs))
    for run in np.unique(problem.run):
        medians[run] = np.median(errors[problem.run == run])
    trust: Floats = np.sqrt(1 / (1 + (medians / RUN_SOFT) ** 2))[problem.run]
    return trust
