"""`fit`: from measurements of any of the known kinds to a profile card."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date as today
from pathlib import Path
from typing import Any

import numpy as np

from simbatch.answers.fit.cells import problem_of, whole
from simbatch.answers.fit.client import FREE, ClientRun, fit_clients
from simbatch.answers.fit.correct import Knots, factors, knots_of, no_knots
from simbatch.answers.fit.files import Columns
from simbatch.answers.fit.identify import USUAL, Told, tell_apart
from simbatch.answers.fit.outcome import Fit
from simbatch.answers.fit.problem import Problem
from simbatch.answers.fit.rows import FAKE, Iterations
from simbatch.answers.fit.solve import BOUNDS, Solution, solve
from simbatch.answers.fit.sources import Source, read_sources
from simbatch.answers.fit.validate import MOST_FOLDS, cross_validate, intervals, seen, spread_of
from simbatch.deployment import Deployment
from simbatch.errors import UsageError
from simbatch.timing.bundled import best_card, find_card
from simbatch.timing.card import RANGES, CardError, Estimate, ProfileCard, read_card
from simbatch.timing.coefficients import Coefficients
from simbatch.timing.work import Floats

STEP_AT_LEAST = 0.01
"""What is reckoned with for a whole run: repeats of the same run on the same machine differ by as much."""
BUILT_AT_LEAST = 0.08
"""The same for steps put together from parts: whole runs came out 2 to 8 % off, as no host is in them."""
CLIENT_FAR_OFF = 0.2
"""Error of a client's figure from which a fit says that something was not as it was simulated."""
MOVED_AT_LEAST = 0.10
"""What is reckoned with for another model of the same size class where no other model was left out: 8 to 15 %
was seen between models of 7B to 70B, their exchange between GPUs included."""
MOVED_GPU_AT_LEAST = 0.20
_CONSTANTS = (("step_us", "layer_us"), ("layer_us", "weight_efficiency"))
"""What is the same in all iterations of one model on one GPU, and which of it gives way when the former comes to 0."""


def fit(
    source: Source | Sequence[Source],
    deployment: Deployment | None = None,
    *,
    kind: str | None = None,
    columns: Columns | None = None,
    name: str | None = None,
    pins: Mapping[str, float] | None = None,
    start: str | Path | ProfileCard | None = None,
    about: Mapping[str, Any] | None = None,
    resamples: int = 40,
    validate: bool = True,
    seed: int = 0,
    on_progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> Fit:
    """Fit a timing profile to what was measured.

    Parameters
    ----------
    source
        Files or objects, one or several of a kind: logs of iterations (a csv with `tokens`, a duration and what
        else is known; a folder of the project's GPU measurements), tables of kernels or layers, client-side
        results (a vllm bench result file, or a table with one row a load).
    deployment
        What was measured. Engine *options* as for `simulate`, for client-side results.
    kind, columns
        What the files are, where it is not to be told from what they hold: ``iterations``, ``tables``, ``client`` or
        ``measurements``. Our names of columns and the files', such as ``{"duration_ms": "latency"}``.
    pins
        Coefficients that are known: they are not fitted.
    start
        A card, its name or its file, whose values stand in for what the data cannot tell. Client-side
        results start from the best bundled one.
    about
        Fields of the card: engine, source, licence, date, about, front_end_ms.
    resamples
        Resampled fits for the intervals.
    validate
        Leave runs out in turn; without it errors are those on the data that were fitted.
    on_progress
        Called with (fits or simulations done, about how many in all).

    Raises UsageError for sources that cannot be read or do not say what they are of.
    """
    items: list[Any] = list(source) if isinstance(source, list | tuple) else [source]
    measured, clients, notes = read_sources(items, deployment, seed, kind=kind, columns=columns)
    base = _start_card(start)
    if clients:
        if deployment is None:
            raise UsageError("client-side results do not say what served them. Give a deployment (--model and --gpu).")
        runs = [replace(run, options={**options, **run.options}) for run in clients]
        return _fit_clients(runs, deployment, base, dict(pins or {}), name, dict(about or {}), notes, on_progress)
    if options:
        raise UsageError(f"{', '.join(options)}: engine options matter to client-side results alone. Leave them out.")
    return _fit_iterations(
        measured,
        base,
        dict(pins or {}),
        name,
        dict(about or {}),
        notes,
        resamples if validate else 0,
        validate,
        seed,
        on_progress,
    )


def _start_card(start: str | Path | ProfileCard | None) -> ProfileCard | None:
    if start is None or isinstance(start, ProfileCard):
        return start
    return read_card(start) if str(start).endswith(".toml") else find_card(str(start))


def _fit_iterations(
    measured: list[Iterations],
    base: ProfileCard | None,
    pins: dict[str, float],
    name: str | None,
    about: dict[str, Any],
    notes: list[str],
    resamples: int,
    validate: bool,
    seed: int,
    on_progress: Callable[[int, int], None] | None,
) -> Fit:
    cells, every = problem_of(measured), whole(measured)
    usual = {} if base is None else {key: value for key, value in base.values().as_dict().items() if key in USUAL}
    done, total = 0, 1 + validate * min(len(cells.runs), MOST_FOLDS) + resamples

    def on_fit() -> None:
        nonlocal done
        done += 1
        if on_progress is not None:
            on_progress(done, max(done, total))

    told, solution = _solved(cells, pins, usual)
    on_fit()
    deployments = {id(one.deployment): one.deployment for one in measured}.values()
    alone = len({(d.shape.name, d.card.name, d.tensor_parallel_size) for d in deployments}) == 1
    knots = knots_of(cells) if alone and not _are_built(measured) else no_knots(cells)
    factor = factors(cells, solution.coefficients, knots)
    unseen = (
        cross_validate(cells, every, solution, knots, on_fit=on_fit)
        if validate
        else seen(every, solution, knots, factor)
    )
    found = intervals(cells, solution, times=resamples, seed=seed, on_fit=on_fit)
    coefficients = {}
    for key, value in solution.coefficients.as_dict().items():
        low, high = found.get(key, (value, value))
        origin = "fitted" if key in found else "absent" if key in told.absent else "pinned"
        coefficients[key] = Estimate(value, min(low, value), max(high, value), origin)
    gpus = {d.card.name for d in deployments}
    if len(gpus) > 1:
        raise UsageError(f"iterations of several GPUs: {', '.join(sorted(gpus))}. A profile is of one; fit each alone.")
    first = measured[0].deployment
    moved = _moved(cells, every, solution, knots) if validate and not alone else MOVED_AT_LEAST
    step = max(BUILT_AT_LEAST if _are_built(measured) else STEP_AT_LEAST, spread_of(unseen.runs))
    sizes = np.abs(unseen.errors)
    worst = max(unseen.runs, key=lambda run: run.median_size)
    error = CardError(
        median=float(np.median([run.median_size for run in unseen.runs])),
        p95=float(np.percentile(sizes, 95)),
        worst=worst.median_size,
        worst_at=worst.run,
        how=_how(len(unseen.runs), len(cells.runs)) if validate else "of the data that were fitted",
        step=step,
        moved=max(moved, step),
        moved_gpu=max(MOVED_GPU_AT_LEAST, 1.5 * moved),
    )
    said = [f"{key}: {why}" for key, why in told.pinned.items()]
    said += [f"{', '.join(told.absent)}: nothing in the data depends on it"] if told.absent else []
    card = ProfileCard(
        **{
            "name": name or f"{first.card.name.lower()}-{first.shape.name.lower()}",
            "about": f"Fitted to {len(every):,} measured iterations of {len(unseen.runs)} runs",
            "gpu": first.card.name,
            "engine": "not said",
            "date": today.today().isoformat(),
            "source": "not said",
            "kind": "estimated" if any(FAKE in note for note in notes) else "measured",
            "model": first.shape.name if alone else "",
            "tensor_parallel_size": first.tensor_parallel_size if alone else 0,
            "dtype": first.dtype,
            "iterations": int(every.count.sum()),
            "runs": len(unseen.runs),
            "measured": ranges(measured),
            "table": _table(knots.tokens, factor),
            "notes": tuple(said + notes),
            "coefficients": coefficients,
            "error": error,
            **about,
        }
    )
    return Fit(card, told, every, unseen.errors, tuple(unseen.runs), None, tuple(said + notes))


def _solved(cells: Problem, pins: dict[str, float], usual: dict[str, float]) -> tuple[Told, Solution]:
    """What the data tell, fitted. A coefficient that runs to the end of where it may be is not told either."""
    told = tell_apart(cells, pins, usual)
    while True:
        solution = solve(cells, told.start, told.free)
        at = solution.coefficients
        ends = [
            key for key in told.free if getattr(at, key) >= BOUNDS[key][1] * 0.999 or _is_low_end(key, getattr(at, key))
        ]
        if ends:
            reasons = {key: f"{getattr(told.start, key):g}: the fit runs to its bound" for key in ends}
            free = tuple(key for key in told.free if key not in ends)
            told = replace(told, free=free, pinned={**told.pinned, **reasons})
            continue
        if (exchanged := _instead(told, at, pins)) is None:
            return told, solution
        told = exchanged


def _instead(told: Told, at: Coefficients, pins: dict[str, float]) -> Told | None:
    """Iterations shorter than what was pinned makes them: the constant is 0, and what was pinned is fitted."""
    for zero, pinned in _CONSTANTS:
        if zero in told.free and not getattr(at, zero) and pinned in told.pinned and pinned not in pins:
            reasons = {key: why for key, why in told.pinned.items() if key != pinned}
            reasons[zero] = f"0: iterations are shorter than the usual {pinned} makes them, which is fitted instead"
            free = tuple(pinned if key == zero else key for key in told.free)
            return replace(told, free=free, start=replace(told.start, **{zero: 0.0}), pinned=reasons)
    return None


def _is_low_end(key: str, value: float) -> bool:
    """At a lower end other than 0, which means "no such cost"."""
    low = BOUNDS[key][0]
    return low > 0 and key != "roof_power" and value <= low * 1.001


def _moved(cells: Problem, every: Problem, solution: Solution, knots: Knots) -> float:
    """Error of a model that the fit has not seen: each left out in turn."""
    models = {name.split(":")[0] for name in cells.runs}
    if len(models) < 3:
        return MOVED_AT_LEAST
    left_out = cross_validate(cells, every, solution, knots, fold_of=lambda name: name.split(":")[0])
    return spread_of(left_out.runs)


def _are_built(measured: Sequence[Iterations]) -> bool:
    return all(one.built for one in measured)


def _how(runs: int, parts: int) -> str:
    if runs == 1:
        return f"one run, cut into {parts} parts that were left out in turn"
    return f"{runs} runs, left out in turn"


def ranges(measured: Sequence[Iterations]) -> dict[str, tuple[float, float]]:
    """Lowest and highest of each input."""
    found = {}
    for name in RANGES:
        columns = [one.rows[name] for one in measured]
        found[name] = (float(min(c.min() for c in columns)), float(max(c.max() for c in columns)))
    return found


def _table(knots: Floats, factor: Floats) -> dict[str, tuple[float, ...]]:
    if len(knots) < 2:
        return {}
    return {"tokens": tuple(np.round(knots, 1).tolist()), "factor": tuple(np.round(factor, 4).tolist())}


def _fit_clients(
    runs: list[ClientRun],
    deployment: Deployment,
    base: ProfileCard | None,
    pins: dict[str, float],
    name: str | None,
    about: dict[str, Any],
    notes: list[str],
    on_progress: Callable[[int, int], None] | None,
) -> Fit:
    base = base or best_card(deployment)
    start = Coefficients.of({**(tell_nothing() if base is None else base.values()).as_dict(), **pins})
    front_end_ms = (base.front_end_ms if base is not None else None) or 5.0
    free = [key for key in FREE if key not in pins]
    found = fit_clients(runs, deployment, start, front_end_ms, free, on_progress=on_progress)
    sizes = np.abs(np.array(list(found.errors.values())))
    worst = max(found.errors, key=lambda key: abs(found.errors[key]))
    said = [f"{key}: {value:g}, as asked" for key, value in pins.items()]
    said += [f"{key}: {why}" for key, why in found.kept.items()]
    values = found.coefficients.as_dict()
    ends = [key for key in found.free if key in values and values[key] in BOUNDS[key]]
    said += [f"{key}: {values[key]:g}, the end of where it is looked for" for key in ends if values[key]]
    if sizes.max() > CLIENT_FAR_OFF:
        said.append(
            f"{worst}: {found.errors[worst] * 100:+.0f} % off. The load or the engine was not as it is simulated "
            "(a burst at the start, prefix hits, limits of the engine); the coefficients are bent by it"
        )
    coefficients = {
        key: Estimate(value, value, value, "fitted" if key in found.free else "pinned")
        for key, value in found.coefficients.as_dict().items()
    }
    fitted = [key for key in found.errors if key.endswith(" tpot")]
    step = max((abs(found.errors[key]) for key in fitted), default=float(sizes.max()))
    card = ProfileCard(
        **{
            "name": name or f"{deployment.card.name.lower()}-{deployment.shape.name.lower()}",
            "about": f"Fitted by simulating {len(runs)} benchmark runs, to what their clients saw",
            "gpu": deployment.card.name,
            "engine": "not said",
            "date": today.today().isoformat(),
            "source": "not said",
            "model": deployment.shape.name,
            "tensor_parallel_size": deployment.tensor_parallel_size,
            "dtype": deployment.dtype,
            "runs": len(runs),
            "front_end_ms": found.front_end_ms,
            "measured": found.measured,
            "notes": tuple(said + notes + ([f"started from {base.name}"] if base is not None else [])),
            "coefficients": coefficients,
            "error": CardError(
                median=float(np.median(sizes)),
                p95=float(np.percentile(sizes, 95)),
                worst=float(sizes.max()),
                worst_at=worst,
                how="mean TTFT and TPOT of the runs it was fitted to",
                step=max(0.03, step),
                moved=MOVED_AT_LEAST,
                moved_gpu=MOVED_GPU_AT_LEAST,
            ),
            **about,
        }
    )
    return Fit(card, None, None, np.array(list(found.errors.values())), (), found, tuple(said + notes))


def tell_nothing() -> Any:
    """Usual values alone."""
    return Coefficients.of(USUAL)
