"""Which kind of measurement a file is: told by its content, never by its name alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from simbatch.answers.fit.benchmarks import is_client_table, read_bench, table_runs
from simbatch.answers.fit.client import ClientRun
from simbatch.answers.fit.rows import DURATIONS, Iterations, is_log, iterations_of, read_log
from simbatch.answers.fit.tables import KINDS, built, kind_of, parts_of, read_tables
from simbatch.deployment import Deployment
from simbatch.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

Source: TypeAlias = "str | Path | pd.DataFrame | Iterations | ClientRun"


def read_sources(
    sources: Sequence[Source], deployment: Deployment | None, seed: int
) -> tuple[list[Iterations], list[ClientRun], list[str]]:
    """(iterations, client-side runs, notes) of *sources*. Raises UsageError for a mix, and for what is none of them."""
    measured: list[Iterations] = []
    clients: list[ClientRun] = []
    tables: list[Path] = []
    for source in sources:
        if isinstance(source, Iterations):
            measured.append(source)
        elif isinstance(source, ClientRun):
            clients.append(source)
        elif isinstance(source, str | Path):
            kind = _kind(Path(source))
            if kind == "bench":
                clients.append(read_bench(Path(source), seed))
            elif kind == "client":
                clients += table_runs(_frame(Path(source)), Path(source).name, seed)
            elif kind == "table":
                tables.append(Path(source))
            else:
                measured.append(read_log(Path(source), deployment))
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


def _kind(path: Path) -> str:
    if path.is_dir():
        return "log"
    if not path.exists():
        raise UsageError(f"{path}: no such file. Give a log of iterations, a table of kernels or a benchmark result.")
    if path.suffix == ".json":
        return "bench"
    columns = set(_frame(path, rows=1).columns)
    if kind_of(columns):
        return "table"
    if is_client_table(columns):
        return "client"
    if is_log(columns):
        return "log"
    shown = ", ".join(sorted(map(str, columns))[:12])
    raise UsageError(
        f"{path}: nothing that can be fitted (columns {shown}). A log of iterations "
        f"has tokens and {' or '.join(DURATIONS)}; a client-side table ttft_ms, tpot_ms and concurrency or rate_per_s; "
        f"tables are those of {', '.join(KINDS)}."
    )


def _frame(path: Path, rows: int | None = None) -> pd.DataFrame:
    import pandas as pd

    try:
        return pd.read_csv(path, nrows=rows)
    except (ValueError, OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path}: cannot be read as csv ({error}). Give a csv file, or a .json benchmark result."
        ) from error
