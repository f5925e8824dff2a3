"""A fit to what a client measured: time to first token and time per output token, and nothing from inside.

The engine is simulated with the coefficients, its latencies are compared with those measured, and the
coefficients move until they agree: a few of them, since a client sees little. Where two of them do the same
to everything that was measured, one keeps its start. The delay in front of the engine is one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from simbatch.answers.fit.identify import MOST_ALIKE, alike
from simbatch.answers.fit.solve import BOUNDS, SIZES
from simbatch.deployment import Deployment
from simbatch.errors import UsageError
from simbatch.simulate import simulate
from simbatch.timing.card import RANGES
from simbatch.timing.coefficients import Coefficients
from simbatch.timing.formula import FormulaTiming
from simbatch.timing.work import Floats
from simbatch.trace import Trace

FRONT_END = "front_end_ms"
FREE = ("step_us", "kv_efficiency", "sequence_us", "compute_efficiency", FRONT_END)
"""What a client's figures may tell: the constant, the slopes in context, batch and prompts, and the delay in front."""
_SOFT = 0.03
_STEP = 0.05
_ROUNDS = 5
_GOOD = 0.03
_FRONT_ENDS_MS = (2.0, 12.0, 25.0)
"""Where a fit that came out worse than `_GOOD` starts again: in a closed loop the delay decides which iteration a
request still reaches, so that latencies jump with it and a descent can be caught."""
_LEAST_EFFECT = 0.003
_KEPT_FIRST = ("sequence_us", "compute_efficiency", "kv_efficiency", FRONT_END, "step_us")
"""Who keeps its start first when two do the same."""


@dataclass(frozen=True)
class ClientRun:
    """One benchmark: requests, how they were sent, and what the client saw on average."""

    name: str
    trace: Trace
    ttft_s: float | None
    tpot_s: float | None
    concurrency: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """Engine options of that run."""

    def measured(self) -> list[tuple[str, float]]:
        """What there is to compare, by name."""
        pairs = (("ttft", self.ttft_s), ("tpot", self.tpot_s))
        return [(name, value) for name, value in pairs if value is not None and value > 0]


@dataclass(frozen=True)
class ClientFit:
    """What came of it."""

    coefficients: Coefficients
    front_end_ms: float
    free: tuple[str, ...]
    kept: dict[str, str]
    """Why others keep their start."""
    errors: dict[str, float]
    """Simulated ÷ measured - 1, by run and figure."""
    measured: dict[str, tuple[float, float]]
    """Range of the iterations that the runs came to, by input."""


def simulated(
    run: ClientRun,
    deployment: Deployment,
    coefficients: Coefficients,
    front_end_ms: float,
    ranges: dict[str, tuple[float, float]],
) -> dict[str, float]:
    """Mean TTFT and TPOT of *run*, in seconds; *ranges* is widened by the inputs of its iterations."""
    result = simulate(
        run.trace,
        deployment,
        timing=FormulaTiming(deployment, coefficients),
        concurrency=run.concurrency,
        frontend_delay_s=front_end_ms / 1e3,
        **run.options,
    )
    latency = result.metrics()["latency_s"]
    ttft, tpot = latency["ttft"]["mean"], latency["tpot"]["mean"]
    if ttft is None:
        raise UsageError(f"{run.name}: nothing was served. Check that its requests fit the deployment.")
    for name in RANGES:
        column = result.facts.rows[name]
        low, high = ranges.get(name, (float("inf"), 0.0))
        ranges[name] = (min(low, float(column.min())), max(high, float(column.max())))
    return {"ttft": ttft, "tpot": tpot if tpot is not None else float("nan")}


def fit_clients(
    runs: Sequence[ClientRun],
    deployment: Deployment,
    start: Coefficients,
    front_end_ms: float = 5.0,
    free: Sequence[str] = FREE,
    on_progress: Callable[[int, int], None] | None = None,
) -> ClientFit:
    """Coefficients from *start* on with which *runs* come out as measured.

    Raises UsageError where nothing was measured.
    """
    targets = [(run, name, value) for run in runs for name, value in run.measured()]
    if not targets:
        raise UsageError("no run has a TTFT or a TPOT. Give a benchmark result with mean latencies.")
    asked, most = 0, 1 + _ROUNDS * (len(free) + 2)
    ranges: dict[str, tuple[float, float]] = {}

    def errors(at: Mapping[str, float]) -> Floats:
        nonlocal asked
        coefficients = replace(start, **{name: value for name, value in at.items() if name != FRONT_END})
        front = at.get(FRONT_END, front_end_ms)
        seen = ranges if not asked else {}
        found = {run.name: simulated(run, deployment, coefficients, front, seen) for run in runs}
        asked += 1
        if on_progress is not None:
            on_progress(asked, max(asked + 1, most))
        return np.array([np.log(found[run.name][name] / value) for run, name, value in targets])

    bounds = {**BOUNDS, FRONT_END: (0.0, 1000.0)}
    at = {name: front_end_ms if name == FRONT_END else float(getattr(start, name)) for name in free}
    residual = errors(at)
    names: list[str] = list(free)
    kept: dict[str, str] = {}

    def descend(at: dict[str, float], residual: Floats, first: Mapping[str, Floats]) -> tuple[dict[str, float], Floats]:
        columns = first
        for round_ in range(_ROUNDS):
            if round_ or not columns:
                columns = _slopes(errors, at, names, residual, bounds)
            matrix = np.stack([columns[name] for name in names], axis=1)
            improved = False
            for damping in (1e-3, 1e-1, 1.0, 10.0):
                soft = 1 / np.sqrt(np.sqrt(1 + (residual / _SOFT) ** 2))
                square = (matrix * soft[:, None]).T @ (matrix * soft[:, None])
                square += damping * np.diag(np.diag(square) + 1e-12)
                step = np.linalg.solve(square, -(matrix * soft[:, None]).T @ (residual * soft))
                new = dict(at)
                for name, move in zip(names, step, strict=True):
                    new[name] = float(np.clip(at[name] + move * _size(name, at[name]), *bounds[name]))
                tried = errors(new)
                if _loss(tried) < _loss(residual):
                    gained, at, residual, improved = _loss(residual) - _loss(tried), new, tried, True
                    break
            if not improved or gained < 1e-3 * _loss(residual):
                break
        return at, residual

    columns = _slopes(errors, at, names, residual, bounds)
    names, kept = _tell_apart(columns, names, at, len(targets))
    if names:
        at, residual = descend(at, residual, {name: columns[name] for name in names})
    if FRONT_END in names:
        for other in _FRONT_ENDS_MS:
            if np.abs(residual).max() < _GOOD:
                break
            there = {**at, FRONT_END: other}
            there, left = descend(there, errors(there), {})
            if _loss(left) < _loss(residual):
                at, residual = there, left
    found = replace(start, **{name: value for name, value in at.items() if name != FRONT_END})
    return ClientFit(
        coefficients=found,
        front_end_ms=at.get(FRONT_END, front_end_ms),
        free=tuple(names),
        kept=kept,
        errors={f"{run.name} {name}": float(np.expm1(r)) for (run, name, _), r in zip(targets, residual, strict=True)},
        measured=ranges,
    )


def _size(name: str, value: float) -> float:
    """The unit in which a coefficient moves: itself, or a usual size where it is near 0."""
    return max(abs(value), SIZES.get(name, 0.1) * 0.5, 1.0 if name == FRONT_END else 0.0)


def _slopes(
    errors: Callable[[Mapping[str, float]], Floats],
    at: Mapping[str, float],
    names: Sequence[str],
    residual: Floats,
    bounds: Mapping[str, tuple[float, float]],
) -> dict[str, Floats]:
    """How the errors change when each coefficient moves by its own size."""
    found = {}
    for name in names:
        move = _STEP * _size(name, at[name])
        if at[name] + move > bounds[name][1]:
            move = -move
        found[name] = (errors({**at, name: at[name] + move}) - residual) / move * _size(name, at[name])
    return found


def _tell_apart(
    columns: Mapping[str, Floats], names: Sequence[str], at: Mapping[str, float], targets: int
) -> tuple[list[str], dict[str, str]]:
    """Who is fitted, and why the others are not."""
    kept: dict[str, str] = {}
    left = []
    for name in names:
        if np.sqrt(np.mean(columns[name] ** 2)) < _LEAST_EFFECT:
            kept[name] = f"{at[name]:g}: nothing that was measured depends on it"
        else:
            left.append(name)
    while len(left) > 1:
        matrix = np.stack([columns[name] for name in left], axis=1)
        hidden = {name for name, share in zip(left, alike(matrix), strict=True) if share > MOST_ALIKE}
        if len(left) <= targets and not hidden:
            break
        worst = next(name for name in _KEPT_FIRST + tuple(left) if name in (hidden or left))
        others = ", ".join(name for name in left if name != worst and name in (hidden or left))
        kept[worst] = f"{at[worst]:g}: what was measured cannot tell it from {others}"
        left.remove(worst)
    return left, kept


def _loss(residual: Floats) -> float:
    return float(np.sum(2 * _SOFT**2 * (np.sqrt(1 + (residual / _SOFT) ** 2) - 1)))
