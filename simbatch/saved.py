"""A run on disk: tables that people and spreadsheets read, from which the facts come back exactly.

Times are written as seconds with all twelve digits after the point, that is to the picosecond, and
read as integers again, so the metrics of a loaded run equal those of the run to the last bit.
`requests.csv.gz`, `steps.csv.gz`, `extra_gaps.csv.gz` and `stays.csv.gz` are the columns of `simbatch.facts`;
`facts.json` holds its single values, `config.json` what repeats the run, `metrics.json` its answers,
`decisions.jsonl.gz` the log of a run taken step by step. A folder of somebody else's files is left alone:
see `simbatch.places`.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from simbatch.errors import SimbatchError, UsageError
from simbatch.facts import (
    CAUSES,
    GAP_COLUMNS,
    REQUEST_COLUMNS,
    REQUEST_TIMES,
    ROW_COLUMNS,
    STATUSES,
    STAY_COLUMNS,
    Facts,
)
from simbatch.metrics import plain
from simbatch.places import check_place, make_place
from simbatch.units import PS_PER_S

if TYPE_CHECKING:
    import pandas as pd

FORMAT = 1
FACTS = "facts.json"
DECISIONS = "decisions.jsonl.gz"
STAYS = "stays"
_TABLES = {"requests": REQUEST_COLUMNS, "steps": ROW_COLUMNS, "extra_gaps": GAP_COLUMNS, STAYS: STAY_COLUMNS}
_LATER = {"head"}
"""Columns that runs saved by earlier versions lack."""
_WORDS = {"status": STATUSES, "cause": CAUSES}
_OF_REPLICAS = ("replica",)
"""Columns that only runs of several replicas have."""
_SCALARS = ("capacity_tokens", "peak_held_tokens", "iterations", "events", "wall_s")
_COUNTS = ("capacity_tokens", "peak_held_tokens", "iterations", "events", "replicas")
_OPTIONAL = ("gpu_memory_share", "price_usd_per_hour", "warnings")
_DIGITS = 12


def save(facts: Facts, folder: Path, metrics: dict[str, Any]) -> None:
    """Write *facts* and *metrics* to *folder*, which is made if need be.

    Raises UsageError, before anything is written, where *folder* cannot be made or holds other things than a
    saved run, and SimbatchError when the disk does not take it.
    """
    check_place(folder, FACTS)
    make_place(folder)
    try:
        _save(facts, folder, metrics)
    except OSError as error:
        raise SimbatchError(
            f"{folder}: the run cannot be written ({error.strerror or error}). "
            "What is in the folder is not whole; make room, or give another folder."
        ) from error


def _save(facts: Facts, folder: Path, metrics: dict[str, Any]) -> None:
    single = {
        name: getattr(facts, name) for name in (*_SCALARS, *_OPTIONAL, "planned_ahead", "replicas", "frontend_delay_ps")
    }
    # First, so that a folder which was not finished is known as ours and may be written to again.
    _write_json(folder / FACTS, {"format": FORMAT, **single})
    tables = {"requests": facts.requests, "steps": facts.rows, "extra_gaps": facts.extra_gaps}
    if facts.stays is not None:
        tables[STAYS] = facts.stays
    else:  # not those of a run that was here before
        (folder / f"{STAYS}.csv.gz").unlink(missing_ok=True)
    for name, columns in tables.items():
        _write_table(folder / f"{name}.csv.gz", columns, list(facts.ids) if name == "requests" else None)
    if facts.decisions is not None:
        lines = "".join(json.dumps(plain(decision)) + "\n" for decision in facts.decisions)
        (folder / DECISIONS).write_bytes(gzip.compress(lines.encode(), mtime=0))
    _write_json(folder / "config.json", facts.config)
    _write_json(folder / "metrics.json", metrics)


def load(folder: Path) -> Facts:
    """The facts in *folder*, exactly as they were.

    Raises UsageError where a file is missing or is not one that `save` wrote.
    """
    single = _read_json(folder, FACTS)
    if single.get("format") != FORMAT:
        raise UsageError(
            f"{folder / FACTS} has format {single.get('format')!r}, this version reads {FORMAT}. "
            "Run it again with this version: config.json says what to repeat."
        )
    for name in (*_SCALARS, *_OPTIONAL, "planned_ahead", "replicas"):
        if name not in single or (name in _COUNTS and type(single[name]) is not int):
            raise UsageError(
                f"{folder / FACTS} is not as it was saved: {name!r} is missing or is not a value. "
                "Load a folder that Result.save or -o wrote and nobody changed."
            )
    ids: list[str] = []
    tables = {}
    for name, columns in _TABLES.items():
        if name == STAYS and not (folder / f"{name}.csv.gz").exists():
            continue
        frame = _read_table(folder, name)
        try:
            present = [column for column in columns if column not in _LATER or column in frame]
            more = [column for column in _OF_REPLICAS if column in frame]
            tables[name] = {column: _decode(column, frame[_public(column)]) for column in (*present, *more)}
            ids = frame["id"].tolist() if name == "requests" else ids
        except (KeyError, ValueError) as error:
            raise UsageError(
                f"{folder / name}.csv.gz is not as it was saved: {error} is missing or is not a value. "
                "Load a folder that Result.save or -o wrote and nobody changed."
            ) from error
    return Facts(
        requests=tables["requests"],
        ids=ids,
        rows=tables["steps"],
        extra_gaps=tables["extra_gaps"],
        stays=tables.get(STAYS),
        config=_read_json(folder, "config.json"),
        decisions=_read_decisions(folder),
        planned_ahead=single["planned_ahead"],
        replicas=single["replicas"],
        frontend_delay_ps=single.get("frontend_delay_ps", 0),
        **{name: single[name] for name in (*_SCALARS, *_OPTIONAL)},
    )


def load_metrics(folder: str | Path) -> dict[str, Any]:
    """The metrics as they were saved, with the limits that they were asked with."""
    return _read_json(Path(folder), "metrics.json")


def exact_seconds(times_ps: NDArray[Any], missing: bool) -> list[str]:
    """Decimal seconds to the picosecond; an empty string for a time that is *missing* (-1)."""
    texts = []
    for time in times_ps.tolist():
        if missing and time < 0:
            texts.append("")
            continue
        whole, rest = divmod(abs(time), PS_PER_S)
        texts.append(f"{'-' if time < 0 else ''}{whole}.{rest:0{_DIGITS}d}")
    return texts


def _write_table(path: Path, columns: dict[str, NDArray[Any]], ids: list[str] | None) -> None:
    import pandas as pd

    shown: dict[str, Any] = {} if ids is None else {"id": ids}
    for name, column in columns.items():
        if name.endswith("_ps"):
            shown[_public(name)] = exact_seconds(column, name in (*REQUEST_TIMES, "back_ps"))
        else:
            shown[name] = np.array(_WORDS[name], dtype=object)[column] if name in _WORDS else column
    # No time stamp in the file: the same run gives the same bytes.
    pd.DataFrame(shown).to_csv(path, index=False, compression={"method": "gzip", "compresslevel": 5, "mtime": 0})


def _read_table(folder: Path, name: str) -> pd.DataFrame:
    import pandas as pd

    path = folder / f"{name}.csv.gz"
    try:
        kinds: dict[str, Any] = {"id": str, **{_public(column): _kind(column) for column in _TABLES[name]}}
        return pd.read_csv(path, dtype=kinds, na_filter=False)
    except (OSError, EOFError, ValueError) as error:
        raise _not_a_run(folder, path.name) from error


def _kind(name: str) -> type:
    """What a column is read as: what needs care to the last digit stays text until it is decoded."""
    return str if name.endswith(("_ps", "_mean")) or name in _WORDS else np.int64


def _decode(name: str, column: pd.Series[Any]) -> NDArray[Any]:
    """The column as it was before it became text."""
    if name.endswith("_ps"):
        # Twelve digits after the point: without the point they are picoseconds.
        whole = [int(text.replace(".", "")) if text else -1 for text in column.tolist()]
        return np.array(whole, dtype=np.int64)
    if name in _WORDS:
        code = {word: number for number, word in enumerate(_WORDS[name])}
        return np.array([code[word] for word in column.tolist()], dtype=np.int8 if name == "status" else np.int64)
    if name.endswith("_mean"):
        return np.array([float(text) for text in column.tolist()], dtype=np.float64)
    return column.to_numpy()


def _public(name: str) -> str:
    """The name of a column in the files: times are in seconds there."""
    return f"{name[:-3]}_s" if name.endswith("_ps") else name


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(plain(content), indent=2, allow_nan=False) + "\n", encoding="utf-8")


def _read_json(folder: Path, name: str) -> dict[str, Any]:
    try:
        content = json.loads((folder / name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _not_a_run(folder, name) from error
    if not isinstance(content, dict):
        raise _not_a_run(folder, name)
    return content


def _read_decisions(folder: Path) -> list[dict[str, Any]] | None:
    if not (folder / DECISIONS).exists():
        return None
    try:
        return [json.loads(line) for line in gzip.decompress((folder / DECISIONS).read_bytes()).splitlines()]
    except (OSError, EOFError, ValueError) as error:
        raise _not_a_run(folder, DECISIONS) from error


def _not_a_run(folder: Path, name: str) -> UsageError:
    state = "cannot be read" if (folder / name).exists() else "is missing"
    return UsageError(
        f"{folder} is not a saved run: {name} {state} in it. Give a folder that Result.save or simbatch run -o wrote."
    )
