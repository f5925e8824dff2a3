"""What the data can tell, and what they cannot: coefficients that look alike in them are never split silently.

On one model and one card reading the weights and the constant are the same in every iteration; below
saturation the batch and the context it reads grow together. A coefficient that the others can stand in
for is pinned to a value from elsewhere, in a fixed order, until the rest is told apart; one that nothing in the
data depends on keeps its usual value. Both are said in the card.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from simbatch.answers.fit.problem import Problem
from simbatch.answers.fit.solve import BOUNDS, SIZES
from simbatch.timing.coefficients import Coefficients
from simbatch.timing.many import formula_slopes
from simbatch.timing.work import Floats

USUAL = {
    "step_us": 1000.0,
    "layer_us": 33.0,
    "eager_layer_us": 0.0,
    "weight_efficiency": 0.85,
    "compute_efficiency": 0.73,
    "roof_power": 2.0,
    "kv_efficiency": 0.94,
    "kv_half_heads": 0.13,
    "kv_floor_tokens": 40.0,
    "kv_sequence_tokens": 0.0,
    "mixed_kv_share": 0.1,
    "prefill_efficiency": 0.46,
    "sequence_us": 3.0,
    "crowding_ns": 0.0,
    "prompt_us": 20.0,
    "waiting_ns": 0.0,
    "all_reduce_us": 5.0,
    "link_efficiency": 0.5,
}
"""Values for what the data cannot tell. Those of the GPU are what steps built from kernel timings of an H100
come to (vLLM 0.24; weights alone 0.83 to 0.89), the exchange as timed between two and four of them."""
ORDER = (
    "weight_efficiency", "layer_us", "crowding_ns", "kv_half_heads", "kv_sequence_tokens", "link_efficiency",
    "all_reduce_us", "roof_power", "kv_efficiency", "mixed_kv_share", "prefill_efficiency", "compute_efficiency",
    "eager_layer_us", "kv_floor_tokens", "waiting_ns", "prompt_us", "sequence_us", "step_us",
)  # fmt: skip
"""Who is pinned first when several stand in for each other."""
MOST_ALIKE = 0.99
"""Share of a coefficient's effect that the others may explain before it is pinned."""
LEAST_EFFECT = 0.0005
"""Relative effect on times, root mean square, below which the data do not depend on a coefficient."""


@dataclass(frozen=True)
class Told:
    """What is fitted, what is not, and why."""

    free: tuple[str, ...]
    start: Coefficients
    pinned: dict[str, str]
    """Reasons, in words."""
    absent: tuple[str, ...]


def tell_apart(problem: Problem, pins: Mapping[str, float], usual: Mapping[str, float] | None = None) -> Told:
    """Decide what *problem* can tell, at usual values. *pins* are the user's own: never fitted."""
    start = Coefficients.of({**USUAL, **(usual or {}), **pins})
    # Where a usual value is 0 its effect is judged at a usual size; so are those that others hide.
    probe = replace(start, **{name: SIZES[name] for name in SIZES if name not in pins and not getattr(start, name)})
    pinned = {name: f"{getattr(start, name):g}, as asked" for name in pins}
    names = [name for name in BOUNDS if name not in pins]
    slopes = dict(zip(names, _effects(problem, probe, names), strict=True))
    absent = tuple(name for name in names if np.sqrt(np.mean(slopes[name] ** 2)) < LEAST_EFFECT)
    names = [name for name in names if name not in absent]
    while len(names) > 1:
        shares = alike(np.stack([slopes[name] for name in names], axis=1))
        hidden = {name for name, share in zip(names, shares, strict=True) if share > MOST_ALIKE}
        if not hidden:
            break
        worst = next(name for name in ORDER if name in hidden)
        partner = _partner(slopes, worst, [name for name in names if name != worst])
        share = shares[names.index(worst)]
        pinned[worst] = f"{getattr(start, worst):g}: {share:.2%} of its effect looks like that of {partner}".replace(
            "%", " %"
        )
        names.remove(worst)
    return Told(tuple(names), start, pinned, absent)


def _effects(problem: Problem, at: Coefficients, names: list[str]) -> list[Floats]:
    """Relative change of each observation for a usual change of each coefficient."""
    predicted = problem.predicted_s(at)
    sizes = [max(abs(getattr(at, name)), 1e-9) if name not in SIZES else SIZES[name] for name in names]
    columns = formula_slopes(at, problem.work, names)
    weight = np.sqrt(problem.weight / problem.weight.mean())
    return [problem.total(column) * size / predicted * weight for column, size in zip(columns, sizes, strict=True)]


def alike(matrix: Floats) -> Floats:
    """Share of each column that the others explain."""
    unit = matrix / np.linalg.norm(matrix, axis=0)
    inverse = np.linalg.pinv(unit.T @ unit, rcond=1e-12)
    shares: Floats = 1 - 1 / np.maximum(np.diag(inverse), 1.0)
    # A singular direction: whoever takes part in it is explained completely.
    values, vectors = np.linalg.eigh(unit.T @ unit)
    for value, vector in zip(values, vectors.T, strict=True):
        if value < 1e-9:
            shares = np.where(np.abs(vector) > 1e-3, 1.0, shares)
    return shares


def _partner(slopes: Mapping[str, Floats], name: str, others: list[str]) -> str:
    """Whose effect is the most like that of *name*: alone, if one nearly does it, else the two that matter most."""
    own = slopes[name]
    alone = {other: abs(own @ slopes[other]) / np.linalg.norm(own) / np.linalg.norm(slopes[other]) for other in others}
    # Rounded, so that of those that are equal but for rounding it is the same one on every machine.
    best = sorted(alone, key=lambda other: -round(alone[other], 9))
    return best[0] if alone[best[0]] ** 2 > MOST_ALIKE or len(best) == 1 else f"{best[0]} and {best[1]}"
