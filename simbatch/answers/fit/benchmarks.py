"""Benchmark results as clients write them: a vllm bench result file, a table with a row for each load or request.

A result with the lengths of its requests is replayed with them; one with averages alone is replayed with
every request as long as the average.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simbatch.answers.fit.client import ClientRun
from simbatch.answers.fit.files import figure, numbers
from simbatch.errors import UsageError
from simbatch.trace import Trace

if TYPE_CHECKING:
    import pandas as pd

MOST_REQUESTS = 1000
"""Of one run that are simulated."""
LOADS = {"concurrency", "max_concurrency", "rate_per_s", "request_rate"}
_DEFAULT_REQUESTS = 200
_LONGEST_S = 3600.0
"""Mean latency from which a unit must be wrong."""


def is_client_table(columns: set[str]) -> bool:
    """Could a table with these columns be client-side results, one row a load?"""
    return bool(columns & {"ttft_ms", "ttft_ms_mean", "mean_ttft_ms"}) and bool(columns & LOADS)


def is_request_table(columns: set[str]) -> bool:
    """Could a table with these columns be client-side results, one row a request?"""
    return {"arrival_s", "prompt_tokens", "output_tokens"} <= columns and bool(columns & {"ttft_ms", "tpot_ms"})


def request_run(frame: pd.DataFrame, place: str) -> ClientRun:
    """The run of a table with one row a request. Requests without an answer (no output tokens) are left out."""
    if not len(frame):
        raise UsageError(f"{place}: no requests. Give a row for each, with its times.")
    columns = {name: numbers(frame, name, place) for name in ("arrival_s", "prompt_tokens", "output_tokens")}
    served = columns["output_tokens"] > 0
    if not served.any():
        raise UsageError(f"{place}: no request has output_tokens. Give those that were answered.")
    order = np.argsort(columns["arrival_s"][served], kind="stable")
    ours = {name: column[served][order] for name, column in columns.items()}
    means = {}
    for name in ("ttft_ms", "tpot_ms"):
        known = numbers(frame, name, place)[served] if name in frame.columns else np.zeros(0)
        known = known[known > 0]  # a request of one token has no TPOT
        means[name] = float(known.mean()) if len(known) else None
    trace = Trace.from_columns(
        arrival_s=ours["arrival_s"] - ours["arrival_s"].min(),
        prompt_tokens=ours["prompt_tokens"].astype(np.int64),
        output_tokens=ours["output_tokens"].astype(np.int64),
        name=place,
    ).head(min(MOST_REQUESTS, int(served.sum())))
    return ClientRun(place, trace, _seconds(means["ttft_ms"], place), _seconds(means["tpot_ms"], place))


def _seconds(ms: float | None, place: str) -> float | None:
    """Seconds of a mean latency. Raises UsageError for one that no client waited for."""
    if ms is not None and ms / 1e3 > _LONGEST_S:
        raise UsageError(f"{place}: a mean latency of {ms:,.0f} ms, more than an hour. Check its unit: milliseconds.")
    return None if ms is None else ms / 1e3


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

    def number(key: str) -> float | None:
        return figure(found.get(key), key, name)

    prompts, outputs = found.get("input_lens"), found.get("output_lens")
    if not prompts or not outputs:
        completed = int(number("completed") or number("num_prompts") or 0)
        totals = number("total_input_tokens"), number("total_output_tokens")
        if not completed or None in totals:
            raise UsageError(
                f"{name}: neither input_lens and output_lens nor completed and token totals. "
                "Save the result with --save-detailed."
            )
        prompts, outputs = ([max(1, round((total or 0.0) / completed))] * completed for total in totals)
    if not isinstance(prompts, list) or not isinstance(outputs, list) or len(prompts) != len(outputs):
        raise UsageError(
            f"{name}: input_lens and output_lens are not lists of the same length. Give the file as saved."
        )
    pairs = [
        (figure(a, "input_lens", name), figure(b, "output_lens", name)) for a, b in zip(prompts, outputs, strict=True)
    ]
    rate = found.get("request_rate")
    infinite = rate is None or str(rate).lower() in ("inf", "infinity")
    concurrency = number("max_concurrency")
    return _run(
        name,
        [int(prompt or 0) for prompt, _ in pairs],
        [int(output or 0) for _, output in pairs],
        ttft_ms=number("mean_ttft_ms"),
        tpot_ms=number("mean_tpot_ms"),
        rate=None if infinite else number("request_rate"),
        burstiness=number("burstiness") or 1.0,
        concurrency=int(concurrency) if concurrency else None,
        seed=seed,
    )


def table_runs(frame: pd.DataFrame, place: str, seed: int = 0) -> list[ClientRun]:
    """One run a row: load, lengths and mean latencies. Raises UsageError for what a row lacks."""
    runs = []
    if not len(frame):
        raise UsageError(f"{place}: no rows. Give one for each load that was measured.")
    for at, row in enumerate(frame.to_dict("records")):
        where = f"{place} row {at + 1}"
        cells = {str(key): value for key, value in row.items()}
        prompt = _first(cells, where, "prompt_tokens", "isl", "input_tokens")
        output = _first(cells, where, "output_tokens", "osl")
        if not prompt or not output:
            raise UsageError(f"{where}: no prompt_tokens or no output_tokens. Give both, in tokens.")
        rate = _first(cells, where, "rate_per_s", "request_rate")
        concurrency = _first(cells, where, "concurrency", "max_concurrency")
        if rate is None and concurrency is None:
            raise UsageError(f"{where}: no load. Give concurrency or rate_per_s.")
        count = int(_first(cells, where, "requests", "n_requests", "num_prompts") or 0)
        count = count or max(_DEFAULT_REQUESTS, 4 * int(concurrency or 0))
        runs.append(
            _run(
                where,
                [int(prompt)] * count,
                [int(output)] * count,
                ttft_ms=_first(cells, where, "ttft_ms", "ttft_ms_mean", "mean_ttft_ms"),
                tpot_ms=_first(cells, where, "tpot_ms", "tpot_ms_mean", "mean_tpot_ms"),
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
    lengths = lengths[:, (lengths[0] > 0) & (lengths[1] > 0)]
    if not lengths.size:
        raise UsageError(f"{name}: no request with tokens. Give a run in which something was answered.")
    trace = Trace.from_lengths(lengths[0], lengths[1], name=name)
    if rate is not None:
        trace = trace.at_rate(rate, burstiness=burstiness, seed=seed)
        concurrency = None
    return ClientRun(
        name=name,
        trace=trace,
        ttft_s=_seconds(ttft_ms, name),
        tpot_s=_seconds(tpot_ms, name),
        concurrency=concurrency,
    )


def _first(cells: dict[str, Any], place: str, *names: str) -> float | None:
    """The first of these columns that has a value."""
    found = ((name, figure(cells.get(name), name, place)) for name in names)
    return next((value for _, value in found if value is not None), None)
