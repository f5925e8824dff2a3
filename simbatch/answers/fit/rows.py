"""Iterations from a log: one row each, by the names under which a timing sees them.

Needed are `tokens` and a duration (`duration_s`, `duration_ms` or `duration_us`). What a log does not say
is filled in as it would be for decodes alone, and noted. Rows that did not run a model step (no tokens)
are left out, so the project's own GPU measurements are read as they are.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simbatch.deployment import Deployment
from simbatch.errors import UsageError
from simbatch.timing.work import FEATURES, Floats

if TYPE_CHECKING:
    import pandas as pd

DURATIONS = {"duration_s": 1.0, "duration_ms": 1e-3, "duration_us": 1e-6}
MACHINE = "machine.json"
"""Beside a file of measurements: which card and model they are of."""


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
    frame = frame[frame["tokens"].notna() & (frame["tokens"] > 0)].reset_index(drop=True)
    if not len(frame):
        raise UsageError(f"{run}: no row has tokens above 0. Give a log with one row for each iteration.")
    name = next(name for name in DURATIONS if name in frame.columns)
    duration_s = _numbers(frame, name, run) * DURATIONS[name]
    bad = np.flatnonzero(~(duration_s > 0))
    if len(bad):
        raise UsageError(
            f"{run}: {name} of row {int(bad[0]) + 1} is {frame[name].iloc[bad[0]]}, but an iteration takes time "
            f"({len(bad)} rows like this). Leave such rows out."
        )
    given = {name: _numbers(frame, name, run) for name in FEATURES if name in frame.columns}
    rows, notes = complete(given)
    count = _numbers(frame, "iterations", run) if "iterations" in frame.columns else np.ones(len(frame))
    runs = [str(value) for value in frame["run"]] if "run" in frame.columns else [run] * len(frame)
    return Iterations(deployment, rows, count, duration_s, runs, notes)


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


def read_log(path: Path, deployment: Deployment | None) -> Iterations:
    """Iterations from a csv file, or from a folder of the project's own measurements."""
    import pandas as pd

    file = path / "measure.csv" if path.is_dir() else path
    frame = pd.read_csv(file)
    machine = file.parent / MACHINE
    if deployment is None:
        deployment = _from_machine(machine) if machine.exists() else None
    if deployment is None:
        raise UsageError(f"{path}: whose iterations are these? Give --model and --gpu (and -tp).")
    return iterations_of(frame, deployment, file.parent.name if path.is_dir() else path.name.split(".")[0])


def _from_machine(path: Path) -> Deployment:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    try:
        return Deployment(found["model"], gpu=found["device"])
    except KeyError as error:
        raise UsageError(f"{path}: no {error}. Give --model and --gpu.") from error


def _numbers(frame: pd.DataFrame, name: str, run: str) -> Floats:
    try:
        found = frame[name].to_numpy(dtype=np.float64, na_value=0.0)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{run}: {name} has values that are no numbers ({error}). Give numbers alone.") from error
    if (found < 0).any() or not np.isfinite(found).all():
        raise UsageError(f"{run}: {name} has values below 0 or beyond all bounds. Give counts from 0.")
    return np.asarray(found, dtype=np.float64)
