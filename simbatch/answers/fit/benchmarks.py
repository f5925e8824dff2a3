"""Benchmark results as clients write them: a vllm bench result file, or a table with one row a load.

A result with the lengths of its requests is replayed with them; one with averages alone is replayed with
every request as long as the average.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simbatch.answers.fit.client import ClientRun
from simbatch.errors import UsageError
from simbatch.trace import Trace

if TYPE_CHECKING:
    import pandas as pd

MOST_REQUESTS = 1000
"""Of one run that are simulated."""
LOADS = {"concurrency", "max_concurrency", "rate_per_s", "request_rate"}
_DEFAULT_REQUESTS = 200


def is_client_table(columns: set[str]) -> bool:
    """Could a table with these columns be client-side results, one row a load?"""
    return bool(columns & {"ttft_ms", "ttft_ms_mean", "mean_ttft_ms"}) and bool(columns & LOADS)


def read_bench(path: Path, seed: int = 0) -> ClientRun:
    """A vllm bench result (`--save-result`, better with `--save-detailed`). Raises UsageError where it is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{path}: not a benchmark result ({error}). Give the file of vllm bench --save-result."
        ) from error
    if not isinstance(found, dict) or "mean_ttft_ms" not in found:
        raise UsageError(f"{path}: no mean_ttft_ms. Give the file of vllm bench serve --save-result.")
    return bench_run(found, path.name.removesuffix(".json"), seed)


def bench_run(found: dict[str, Any], name: str, seed: int = 0) -> ClientRun:
    """The run that a vllm bench result describes."""
    prompts, outputs = found.get("input_lens"), found.get("output_lens")
    if not prompts or not outputs:
        completed = int(found.get("completed") or found.get("num_prompts") or 0)
        if not completed:
            raise UsageError(f"{name}: neither input_lens nor completed. Save the result with --save-detailed.")
        prompts = [round(found["total_input_tokens"] / completed)] * completed
        outputs = [max(1, round(found["total_output_tokens"] / completed))] * completed
    rate = found.get("request_rate")
    infinite = rate in (None, "inf", "Infinity") or float(rate) == float("inf")
    concurrency = found.get("max_concurrency")
    return _run(
        name,
        prompts,
        outputs,
        ttft_ms=found.get("mean_ttft_ms"),
        tpot_ms=found.get("mean_tpot_ms"),
        rate=None if infinite else float(str(rate)),
        burstiness=float(found.get("burstiness") or 1.0),
        concurrency=int(concurrency) if concurrency else None,
        seed=seed,
    )


def table_runs(frame: pd.DataFrame, place: str, seed: int = 0) -> list[ClientRun]:
    """One run a row: load, lengths and mean latencies. Raises UsageError for what a row lacks."""
    runs = []
    for at, row in enumerate(frame.to_dict("records")):
        cells = {str(key): value for key, value in row.items() if value == value}  # NaN is not equal to itself
        prompt = _first(cells, "prompt_tokens", "isl", "input_tokens")
        output = _first(cells, "output_tokens", "osl")
        if prompt is None or output is None:
            raise UsageError(f"{place} row {at + 1}: no prompt_tokens or no output_tokens. Give both, in tokens.")
        rate = _first(cells, "rate_per_s", "request_rate")
        concurrency = _first(cells, "concurrency", "max_concurrency")
        if rate is None and concurrency is None:
            raise UsageError(f"{place} row {at + 1}: no load. Give concurrency or rate_per_s.")
        count = int(_first(cells, "requests", "n_requests", "num_prompts") or 0)
        count = count or max(_DEFAULT_REQUESTS, 4 * int(concurrency or 0))
        runs.append(
            _run(
                f"{place} row {at + 1}",
                [int(prompt)] * count,
                [int(output)] * count,
                ttft_ms=_first(cells, "ttft_ms", "ttft_ms_mean", "mean_ttft_ms"),
                tpot_ms=_first(cells, "tpot_ms", "tpot_ms_mean", "mean_tpot_ms"),
                rate=rate,
                concurrency=None if concurrency is None else int(concurrency),
                seed=seed,
            )
        )
    return runs


def _run(
    name: str,
    prompts: list[int],
    outputs: list[int],
    *,
    ttft_ms: float | None,
    tpot_ms: float | None,
    rate: float | None,
    concurrency: int | None,
    seed: int,
    burstiness: float = 1.0,
) -> ClientRun:
    lengths = np.array([prompts, outputs])[:, : max(MOST_REQUESTS, 4 * (concurrency or 0))]
    lengths = lengths[:, lengths[1] > 0]
    trace = Trace.from_lengths(lengths[0], lengths[1], name=name)
    if rate is not None:
        trace = trace.at_rate(rate, burstiness=burstiness, seed=seed)
        concurrency = None
    return ClientRun(
        name=name,
        trace=trace,
        ttft_s=None if ttft_ms is None else float(ttft_ms) / 1e3,
        tpot_s=None if tpot_ms is None else float(tpot_ms) / 1e3,
        concurrency=concurrency,
    )


def _first(cells: dict[str, Any], *names: str) -> float | None:
    """The first of these columns that has a value."""
    return next((float(cells[name]) for name in names if cells.get(name) not in (None, "")), None)
