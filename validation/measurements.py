"""The table of measurements: one csv, a row as soon as it is measured, read back to go on where a run ended.

Columns of steps are named as a timing of simbatch sees an iteration, so that `simbatch fit` reads them.
A line that a killed run left half written is cut off; anything else that cannot be read is an error.
"""

from __future__ import annotations

import csv
import json
import os
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from simbatch.errors import UsageError
from validation.work import Counts, parse_chunks, show_chunks

COLUMNS = (
    "stage", "key", "tokens", "sequences", "prefill_tokens", "prefill_sequences", "context_tokens",
    "prefill_context_tokens", "prefill_pairs", "rows", "bucket", "chunks", "duration_s", "q25_s", "q75_s", "n",
    "host_s", "bytes", "held_back", "raw_ms",
)  # fmt: skip
FILE = "measure.csv"
MACHINE = "machine.json"
_SAME = ("device", "model", "layers", "dtype", "page_tokens", "fake")
"""What must be equal for a run to go on in the same folder."""


@dataclass(frozen=True)
class Row:
    """One row as it is read back."""

    stage: str
    key: str
    counts: Counts
    duration_s: float
    host_s: float
    bytes: int
    held_back: bool
    raw_s: tuple[float, ...]


def row_of(stage: str, key: str, counts: Counts | None, times_s: list[float], **more: Any) -> dict[str, Any]:
    """What is written for *times_s*: median, quartiles, all of them, and the counts of a step."""
    low, _, high = quantiles(times_s, n=4, method="inclusive") if len(times_s) > 1 else times_s * 3
    row: dict[str, Any] = dict.fromkeys(COLUMNS, "")
    if counts is not None:
        cached = sum(c for _, c in counts.chunks)
        row |= {
            "tokens": counts.tokens,
            "sequences": counts.sequences,
            "prefill_tokens": counts.prefill_tokens,
            "prefill_sequences": len(counts.chunks),
            "context_tokens": counts.context_tokens + counts.prefill_tokens + cached,
            "prefill_context_tokens": counts.prefill_tokens + cached,
            "prefill_pairs": round(counts.pairs),
            "rows": counts.rows,
            "bucket": counts.bucket,
            "chunks": show_chunks(counts.chunks),
        }
    row |= {"stage": stage, "key": key, "n": len(times_s), "raw_ms": ";".join(f"{t * 1e3:.6g}" for t in times_s)}
    row |= {"duration_s": f"{median(times_s):.9g}", "q25_s": f"{low:.9g}", "q75_s": f"{high:.9g}"}
    return row | more


class Table:
    """The csv in *folder*; `done` has the keys that are in it. Raises UsageError where it is not one of ours."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        folder.mkdir(parents=True, exist_ok=True)
        if self.path.exists():
            _cut_half_line(self.path)
        if not self.path.exists() or not self.path.stat().st_size:
            self._append([",".join(COLUMNS)])
        self.rows = read(folder)

    @property
    def done(self) -> set[tuple[str, str]]:
        return {(row.stage, row.key) for row in self.rows}

    def add(self, row: dict[str, Any]) -> None:
        """Write *row*, and let it reach the disk before anything else is done."""
        self._append([",".join(str(row[name]) for name in COLUMNS)])
        self.rows.append(_read_row(row, self.path, 0))

    def _append(self, lines: list[str]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write("".join(line + "\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())


def _cut_half_line(path: Path) -> None:
    data = path.read_bytes()
    if data and not data.endswith(b"\n"):
        path.write_bytes(data[: data.rfind(b"\n") + 1])


def read(folder: Path) -> list[Row]:
    """The measurements in *folder*. Raises UsageError where there are none, with the line where one is bad."""
    path = folder / FILE
    if not path.exists():
        raise UsageError(f"{folder} has no {FILE}. Run python -m validation measure --out {folder} first.")
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise UsageError(f"{path} has other columns than a table of measurements. Give another --out folder.")
        return [_read_row(row, path, line) for line, row in enumerate(reader, 2)]


def _read_row(row: dict[str, Any], path: Path, line: int) -> Row:
    def whole(name: str) -> int:
        return int(row[name] or 0)

    try:
        counts = Counts(
            whole("tokens"),
            whole("rows"),
            whole("bucket"),
            whole("context_tokens") - whole("prefill_context_tokens"),
            parse_chunks(row["chunks"]),
        )
        raw = tuple(float(ms) / 1e3 for ms in row["raw_ms"].split(";"))
        return Row(row["stage"], row["key"], counts, float(row["duration_s"]), float(row["host_s"] or 0),
                   whole("bytes"), row["held_back"] in ("1", 1), raw)  # fmt: skip
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise UsageError(
            f"{path} line {line} is no measurement ({error}). Delete the line, and measure again."
        ) from error


def keep_machine(folder: Path, machine: dict[str, Any]) -> None:
    """Write *machine* beside the table; raises UsageError where the folder holds another machine's or model's rows."""
    path = folder / MACHINE
    folder.mkdir(parents=True, exist_ok=True)
    if path.exists():
        before = read_machine(folder)
        for name in _SAME:
            if before.get(name) != machine.get(name):
                raise UsageError(
                    f"{folder} holds measurements with {name} {before.get(name)!r}, and this run has "
                    f"{machine.get(name)!r}. Give another --out folder."
                )
        return
    path.write_text(json.dumps(machine, indent=1) + "\n", encoding="utf-8")


def read_machine(folder: Path) -> dict[str, Any]:
    """What the measurements in *folder* were made with."""
    path = folder / MACHINE
    if not path.exists():
        raise UsageError(f"{folder} has no {MACHINE}. Run python -m validation measure --out {folder} first.")
    machine: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return machine
