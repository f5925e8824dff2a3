"""Many iterations as few cells: those of one run that do nearly the same are one observation.

A cell's time is the median of its iterations, so that pauses of the host do not bend it, and it counts
with the square root of their number, so that the rare iterations (prompts beside decodes) still speak.
A fit of hundreds of thousands of rows so takes seconds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simbatch.answers.fit.problem import Problem
from simbatch.answers.fit.rows import Iterations
from simbatch.timing.work import FEATURES, Floats, Loads, loads

_WIDTHS = {
    "tokens": 0.02,
    "sequences": 0.02,
    "prefill_tokens": 0.1,
    "prefill_sequences": 0.15,
    "context_tokens": 0.05,
    "prefill_context_tokens": 0.2,
    "prefill_pairs": 0.3,
    "waiting": 0.5,
}
"""Width of a cell in each input, in logarithms of 1 + the input."""
_WIDEST = 12.0
MOST_CELLS = 8000
"""Of all runs together: where a run has more than its share, its cells are made wider."""
BLOCKS = 10
"""A single run is cut into so many pieces in a row, which then stand for runs."""


def problem_of(measured: Sequence[Iterations]) -> Problem:
    """Cells of everything that was measured, run by run."""
    parts: list[tuple[Iterations, NDArray[np.intp], int]] = []
    names: list[str] = []
    for source in measured:
        for name, rows in _runs(source):
            parts.append((source, rows, len(names)))
            names.append(name)
    if len(names) == 1:
        source, rows, _ = parts[0]
        blocks = [piece for piece in np.array_split(rows, BLOCKS) if len(piece)]
        parts = [(source, piece, at) for at, piece in enumerate(blocks)]
        names = [f"{names[0]}, part {at + 1} of {len(blocks)}" for at in range(len(blocks))]
    works, counts, times, weights, runs = [], [], [], [], []
    for source, rows, run in parts:
        features, count, time_s, weight = _cells(source, rows, max(200, MOST_CELLS // len(parts)))
        works.append(loads(source.deployment, features))
        counts.append(count)
        times.append(time_s)
        weights.append(weight)
        runs.append(np.full(len(time_s), run))
    measured_s = np.concatenate(times)
    return Problem(
        work=together(works),
        count=np.concatenate(counts),
        observation=np.arange(len(measured_s)),
        measured_s=measured_s,
        run=np.concatenate(runs),
        weight=np.concatenate(weights),
        runs=tuple(names),
    )


def whole(measured: Sequence[Iterations]) -> Problem:
    """Every row an observation of its own: what errors are stated of."""
    works = [loads(source.deployment, source.rows) for source in measured]
    names: dict[str, int] = {}
    run = [names.setdefault(_label(source, name), len(names)) for source in measured for name in source.run]
    order = np.argsort(run, kind="stable")
    total = sum(map(len, measured))
    return Problem(
        work=together(works).take(order),
        count=np.concatenate([source.count for source in measured])[order],
        observation=np.arange(total),
        measured_s=np.concatenate([source.duration_s for source in measured])[order],
        run=np.array(run)[order],
        weight=np.ones(total),
        runs=tuple(names),
    )


def together(works: Sequence[Loads]) -> Loads:
    """Loads of several deployments one after the other."""
    return Loads(**{name: np.concatenate([getattr(work, name) for work in works]) for name in vars(works[0])})


def _label(source: Iterations, run: str) -> str:
    return f"{source.deployment.shape.name}: {run}"


def _runs(source: Iterations) -> list[tuple[str, NDArray[np.intp]]]:
    names = np.array(source.run)
    return [(_label(source, str(name)), np.flatnonzero(names == name)) for name in dict.fromkeys(source.run)]


def _cells(source: Iterations, rows: NDArray[np.intp], most: int) -> tuple[dict[str, Floats], Floats, Floats, Floats]:
    """(features, iterations, seconds, weight) of the cells of some rows: about *most* of them."""
    logs = np.stack([np.log1p(source.rows[name][rows]) / width for name, width in _WIDTHS.items()])
    single = source.count[rows] == 1
    alone = np.where(single, 0, np.arange(len(rows)) + 1)  # rows of several iterations stay as they are
    wider = 1.0
    while True:
        keys = np.vstack([np.round(logs / wider), alone])
        _, cell, size = np.unique(keys, axis=1, return_inverse=True, return_counts=True)
        if len(size) <= most or not single.all() or wider > _WIDEST:
            break
        wider *= 1.6
    cell = np.ravel(cell)
    features = {name: np.bincount(cell, source.rows[name][rows]) / size for name in FEATURES}
    order = np.argsort(source.duration_s[rows], kind="stable")
    order = order[np.argsort(cell[order], kind="stable")]
    starts = np.concatenate([[0], np.cumsum(size)[:-1]])
    sorted_s = source.duration_s[rows][order]
    time_s = (sorted_s[starts + (size - 1) // 2] + sorted_s[starts + size // 2]) / 2
    count = np.bincount(cell, source.count[rows]) / size
    return features, count, time_s, np.sqrt(size * count)
