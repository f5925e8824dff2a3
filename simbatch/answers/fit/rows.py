"""Iterations from a log: one row each, by the names under which a timing sees them.

Needed are `tokens` and a duration (`duration_s`, `duration_ms` or `duration_us`). What a log does not say
is filled in as it would be for decodes alone, and noted. Rows that did not run a model step (no tokens)
are left out, so the project's own GPU measurements are read as they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simbatch.answers.fit.files import Columns, numbers, read_frame
from simbatch.deployment import Deployment, find_model
from simbatch.errors import UsageError
from simbatch.timing.work import FEATURES, Floats, loads

if TYPE_CHECKING:
    import pandas as pd

MEASURED = "measure.csv"
DURATIONS = {"duration_s": 1.0, "duration_ms": 1e-3, "duration_us": 1e-6}
MACHINE = "machine.json"
"""Beside a file of measurements: which card and model they are of."""
FAKE = "FAKE"
"""What a note says first where nothing was measured."""
FEWEST = 20
"""Iterations below which nothing is fitted."""
LEAST_OF_PEAK = 0.6
"""Measured time over the time at the GPU's peaks, below which a unit or a name must be wrong."""
MOST = {"tokens": 1 << 24, "context_tokens": 1 << 36}
"""Largest numbers of an iteration that are believed."""
MOST_OF_PEAK, LONG_S = 300.0, 1.0
"""The same for times that are too long: so many times the peaks', and longer than this."""


@dataclass(frozen=True)
class Iterations:
    """Measured iterations of one deployment."""

    deployment: Deployment
    rows: dict[str, Floats]
    """`FEATURES` of each row."""
    count: Floats
    """Iterations that a row stands for."""
    duration_s: Floats
    """Of all of them together."""
    run: list[str]
    notes: list[str] = field(default_factory=list)
    built: bool = False
    """Put together from parts, not measured whole."""

    def __len__(self) -> int:
        return len(self.duration_s)


def is_log(columns: set[str]) -> bool:
    """Could a file with these columns be a log of iterations?"""
    return "tokens" in columns and bool(columns & DURATIONS.keys())


def iterations_of(frame: pd.DataFrame, deployment: Deployment, run: str = "run") -> Iterations:
    """Rows of *frame* as iterations. A column `run` names runs; `iterations` says how many a row stands for.

    Raises UsageError for missing columns and for numbers that no iteration has.
    """
    if not is_log(set(frame.columns)):
        raise UsageError(
            f"{run}: a log of iterations needs tokens and one of {', '.join(DURATIONS)}; "
            f"found {', '.join(map(str, frame.columns[:12]))}. Name the columns so."
        )
    frame = frame[numbers(frame, "tokens", run) > 0].reset_index(drop=True)
    if not len(frame):
        raise UsageError(f"{run}: no row has tokens above 0. Give a log with one row for each iteration.")
    if len(frame) < FEWEST:
        raise UsageError(
            f"{run}: {len(frame)} iterations are too few to fit. Give {FEWEST} at least, of several batch sizes."
        )
    name, *others = (name for name in DURATIONS if name in frame.columns)
    if others:
        raise UsageError(f"{run}: it has {name} and {' and '.join(others)}. Leave the one that is not measured out.")
    duration_s = numbers(frame, name, run) * DURATIONS[name]
    bad = np.flatnonzero(~(duration_s > 0))
    if len(bad):
        raise UsageError(
            f"{run}: {name} of row {int(bad[0]) + 1} is {frame[name].iloc[bad[0]]}, but an iteration takes time "
            f"({len(bad)} rows like this). Leave such rows out."
        )
    given = {name: numbers(frame, name, run) for name in FEATURES if name in frame.columns}
    _check_counts(given, run)
    rows, notes = complete(given)
    count = numbers(frame, "iterations", run) if "iterations" in frame.columns else np.ones(len(frame))
    if not (count > 0).all():
        raise UsageError(f"{run}: iterations has rows that stand for none. Leave such rows out.")
    if (count % 1).any():
        at = int(np.flatnonzero(count % 1)[0])
        raise UsageError(f"{run}: row {at + 1} stands for {count[at]:g} iterations. Give whole numbers of them.")
    _check_unit(deployment, rows, duration_s / count, name, run)
    runs = [str(value) for value in frame["run"]] if "run" in frame.columns else [run] * len(frame)
    return Iterations(deployment, rows, count, duration_s, runs, notes)


def _check_counts(given: Mapping[str, Floats], run: str) -> None:
    """Raises UsageError where a part is more than the whole, or a number is one that no engine has."""
    for column, most in MOST.items():
        if column in given and (given[column] > most).any():
            at = int(np.argmax(given[column]))
            raise UsageError(
                f"{run}: row {at + 1} has {given[column][at]:,.0f} {column}, more than any engine schedules. "
                "Leave such rows out: the range that a profile knows would hold everything."
            )
    if "context_tokens" in given and (given["context_tokens"] < given["tokens"]).any():
        at = int(np.flatnonzero(given["context_tokens"] < given["tokens"])[0])
        raise UsageError(
            f"{run}: row {at + 1} has {given['context_tokens'][at]:,.0f} context_tokens for {given['tokens'][at]:,.0f} "
            "tokens. They are those in the cache when the iteration ends, its own included: add tokens to a count "
            "that was taken before it."
        )
    for part, whole in (("prefill_tokens", "tokens"), ("sequences", "tokens"), ("prefill_sequences", "sequences")):
        if part in given and whole in given and (given[part] > given[whole]).any():
            at = int(np.flatnonzero(given[part] > given[whole])[0])
            raise UsageError(
                f"{run}: row {at + 1} has {given[part][at]:,.0f} {part} of {given[whole][at]:,.0f} {whole}. "
                f"{part} is a part of {whole}; check which column is which."
            )


def _check_unit(deployment: Deployment, rows: dict[str, Floats], each_s: Floats, name: str, run: str) -> None:
    """Raises UsageError where times cannot be those of this deployment: a wrong unit, or another GPU or model."""
    work = loads(deployment, rows)
    # Reading the cache is left out: what a log does not say of it is assumed, and may be far too much.
    peak_s = np.maximum(work.read_s, work.math_s)
    share, typical_s = float(np.median(each_s / peak_s)), float(np.median(each_s))
    where = f"{deployment.shape.name} on {deployment.tensor_parallel_size} x {deployment.card.name}"
    if share < LEAST_OF_PEAK:
        raise UsageError(
            f"{run}: {name} says {typical_s:.3g} s for a typical iteration, {1 / share:.3g} times faster than {where} "
            "can read its weights or compute. Check the unit of the column, and which model and GPU these are of."
        )
    if share > MOST_OF_PEAK and typical_s > LONG_S:
        raise UsageError(
            f"{run}: {name} says {typical_s:.3g} s for a typical iteration, {share:,.0f} times what {where} takes at "
            "its peaks. Check the unit of the column: milliseconds go to duration_ms, microseconds to duration_us."
        )


def complete(given: dict[str, Floats]) -> tuple[dict[str, Floats], list[str]]:
    """All `FEATURES` from those given, and what was assumed."""
    tokens = given["tokens"]
    zero = np.zeros(len(tokens))
    rows, notes = dict(given), []
    if "prefill_tokens" not in given:
        rows["prefill_tokens"] = zero
        notes.append("no prefill_tokens: every token is taken for a decode")
    prefill = rows["prefill_tokens"]
    if "prefill_sequences" not in given:
        rows["prefill_sequences"] = (prefill > 0).astype(np.float64)
        if prefill.any():
            notes.append("no prefill_sequences: one prompt in each iteration that has prefill tokens")
    if "sequences" not in given:
        rows["sequences"] = tokens - prefill + rows["prefill_sequences"]
    if "prefill_context_tokens" not in given:
        rows["prefill_context_tokens"] = prefill
        if prefill.any():
            notes.append("no prefill_context_tokens: prompts are taken to have nothing cached before")
    if "context_tokens" not in given:
        rows["context_tokens"] = rows["prefill_context_tokens"] + (tokens - prefill)
        notes.append("no context_tokens: the cache that decodes read is not known, so its cost cannot be told")
    if "prefill_pairs" not in given:
        prompts = np.maximum(rows["prefill_sequences"], 1)
        each, past = prefill / prompts, (rows["prefill_context_tokens"] - prefill) / prompts
        rows["prefill_pairs"] = prompts * (each * past + each * (each + 1) / 2)
    if "waiting" not in given:
        rows["waiting"] = zero
    return {name: rows[name] for name in FEATURES}, notes


def read_log(path: Path, deployment: Deployment | None, columns: Columns | None = None) -> Iterations:
    """Iterations from a csv or jsonl file, or from a folder of the project's own measurements.

    Rows that such a folder holds back for its own judgement are not fitted.
    """
    file = path / MEASURED if path.is_dir() else path
    if path.is_dir() and not file.exists():
        raise UsageError(f"{path}: no {MEASURED} in this folder. Give one that `python -m validation measure` wrote.")
    frame, notes = read_frame(file, columns), list[str]()
    if "held_back" in frame.columns:
        frame = frame[numbers(frame, "held_back", str(path)) == 0]
    machine = file.parent / MACHINE
    if machine.exists() and (path.is_dir() or deployment is None):
        found = _machine(machine)
        if found.get("fake"):
            notes.append(f"{FAKE}: times of the stand-in, nothing was measured")
        deployment = deployment or _from_machine(machine, found)
    if deployment is None:
        raise UsageError(f"{path}: whose iterations are these? Give --model and --gpu (and -tp).")
    made = iterations_of(frame, deployment, file.parent.name if path.is_dir() else path.name.split(".")[0])
    return replace(made, notes=[*made.notes, *notes])


def _machine(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read ({error}). Give --model and --gpu.") from error
    if not isinstance(found, dict):
        raise UsageError(f"{path}: says neither model nor GPU. Give --model and --gpu.")
    return found


def _from_machine(path: Path, found: dict[str, Any]) -> Deployment:
    """What was measured; a model that was cut to fewer layers is a small model, not a slow large one."""
    missing = [name for name in ("model", "device") if not found.get(name)]
    if missing:
        raise UsageError(f"{path}: no {' and no '.join(missing)}. Give --model and --gpu.")
    gpu = str(found.get("gpu") or found["device"])
    shape = find_model(str(found["model"]))
    layers = found.get("layers") or shape.layers
    if not isinstance(layers, int) or not 0 < layers <= shape.layers:
        raise UsageError(f"{path}: {layers} layers of {shape.name}, which has {shape.layers}. Give --model and --gpu.")
    if layers == shape.layers:
        return Deployment(shape.name, gpu=gpu)
    each = (shape.params - shape.embedding_params) // shape.layers
    cut = replace(
        shape,
        name=f"{shape.name}, {layers} layers",
        layers=layers,
        kv_layers=layers,
        params=shape.params - (shape.layers - layers) * each,
    )
    return Deployment(cut, gpu=gpu, kv_tokens=found.get("kv_tokens"))
