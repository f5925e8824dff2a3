"""Which kind of measurement a file is: told by its content, never by its name alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from simbatch.answers.fit.benchmarks import (
    is_client_table,
    is_request_table,
    read_bench,
    request_run,
    table_runs,
)
from simbatch.answers.fit.client import ClientRun
from simbatch.answers.fit.files import Columns, read_frame
from simbatch.answers.fit.rows import DURATIONS, Iterations, is_log, iterations_of, read_log
from simbatch.answers.fit.simulated import RUN, run_log
from simbatch.answers.fit.tables import KINDS, built, kind_of, parts_of, read_tables
from simbatch.deployment import Deployment
from simbatch.errors import UsageError, unknown

if TYPE_CHECKING:
    import pandas as pd

Source: TypeAlias = "str | Path | pd.DataFrame | Iterations | ClientRun"

FORMATS = ("iterations", "tables", "client", "measurements")
"""Logs with a row for each iteration; tables of kernels or layers; what clients measured; folders of the
project's own GPU measurements. Recognised by their content, or named."""


def read_sources(
    sources: Sequence[Source],
    deployment: Deployment | None,
    seed: int,
    *,
    kind: str | None = None,
    columns: Columns | None = None,
) -> tuple[list[Iterations], list[ClientRun], list[str]]:
    """(iterations, client-side runs, notes) of *sources*. Raises UsageError for a mix, and for what is none of them.

    *kind* is one of `FORMATS`, recognised where it is None; *columns* are our names and the files'.
    """
    if kind is not None and kind not in FORMATS:
        raise unknown("format", kind, FORMATS)
    measured: list[Iterations] = []
    clients: list[ClientRun] = []
    tables: list[Path] = []
    for source in sources:
        if isinstance(source, Iterations):
            measured.append(source)
        elif isinstance(source, ClientRun):
            clients.append(source)
        elif isinstance(source, str | Path):
            path = Path(source)
            format = kind or recognise(path, columns)
            if format == "tables":
                tables.append(path)
            elif format == "client":
                clients += _clients(path, columns, seed)
            elif path.is_dir() and (path / RUN).exists():
                measured.append(run_log(path, deployment))
            else:
                measured.append(read_log(path, deployment, columns))
        else:
            measured.append(_of_frame(source, deployment))
    if tables:
        if deployment is None:
            raise UsageError(
                "tables of kernels do not say which model to build. Give a deployment (--model and --gpu)."
            )
        measured.append(built(parts_of(read_tables(tables), deployment), deployment))
    if bool(measured) == bool(clients):
        raise UsageError(
            "nothing to fit: give logs of iterations, tables of kernels, or client-side results."
            if not measured
            else "iterations and client-side results together. Fit the iterations, then start the other from that card."
        )
    notes = list(dict.fromkeys(note for one in measured for note in one.notes))
    return measured, clients, notes


def _of_frame(frame: pd.DataFrame, deployment: Deployment | None) -> Iterations:
    if deployment is None:
        raise UsageError("whose iterations are these? Give a deployment.")
    return iterations_of(frame, deployment)


def recognise(path: Path, columns: Columns | None = None) -> str:
    """Which of `FORMATS` a file is, by what it holds. Raises UsageError where it is none."""
    if path.is_dir():
        return "measurements"
    if path.suffix == ".json" and path.exists():
        return "client"
    found = set(read_frame(path, columns, rows=1).columns)
    if kind_of(found):
        return "tables"
    if is_client_table(found) or is_request_table(found):
        return "client"
    if is_log(found):
        return "iterations"
    shown = ", ".join(sorted(map(str, found))[:12])
    raise UsageError(
        f"{path}: nothing that can be fitted (columns {shown}). A log of iterations "
        f"has tokens and {' or '.join(DURATIONS)}; a client-side table ttft_ms, tpot_ms and concurrency or rate_per_s; "
        f"tables are those of {', '.join(KINDS)}. Columns of other names can be mapped."
    )


def _clients(path: Path, columns: Columns | None, seed: int) -> list[ClientRun]:
    if path.suffix == ".json":
        return [read_bench(path, seed)]
    frame = read_frame(path, columns)
    if is_request_table(set(frame.columns)):
        return [request_run(frame, path.name)]
    return table_runs(frame, path.name, seed)
