"""What benchmark clients leave behind: a record per request, or all requests of a run in one object.

aiperf writes `profile_export.jsonl`, a nested object per request. vllm bench and SGLang write an
object per run, with one list per quantity (`--save-detailed`); `runs` makes rows of it. Requests
that failed are bad rows, so that they are refused or dropped and counted, and never simulated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simbatch.trace.formats.base import Format


def _value(metrics: Mapping[str, Any], name: str) -> Any:
    metric = metrics.get(name)
    return metric.get("value") if isinstance(metric, dict) else metric


def _record(row: dict[str, Any]) -> dict[str, Any] | str:
    about, metrics = row.get("metadata"), row.get("metrics")
    if not isinstance(about, dict) or not isinstance(metrics, dict):
        return "metadata and metrics are no objects"
    error = row.get("error")
    if error or about.get("was_cancelled"):
        kind = error.get("type") if isinstance(error, dict) else None
        return f"this request failed ({kind or 'cancelled'})"
    return {
        "request_start_ns": about.get("request_start_ns"),
        "input_sequence_length": _value(metrics, "input_sequence_length"),
        "output_sequence_length": _value(metrics, "output_sequence_length"),
        "x_request_id": about.get("x_request_id"),
    }


AIPERF_RECORDS = Format(
    "aiperf records",
    frozenset({"metadata", "metrics"}),
    {
        "arrival_s": "request_start_ns",
        "prompt_tokens": "input_sequence_length",
        "output_tokens": "output_sequence_length",
        "id": "x_request_id",
    },
    unit="ns",
    take_apart=_record,
)

RUN = Format(
    "vllm bench result",
    frozenset({"input_lens", "output_lens"}),
    {"arrival_s": "start_times", "prompt_tokens": "input_lens", "output_tokens": "output_lens"},
)


def runs(run: Mapping[str, Any]) -> list[dict[str, Any] | str] | str:
    """The requests of one *run*, each as an object or as why it is none; or why the run cannot be read."""
    lists = {name: run.get(name) for name in (*RUN.columns.values(), "errors")}
    given = {name: values for name, values in lists.items() if isinstance(values, list) and values}
    if not {"input_lens", "output_lens"} <= given.keys():
        return "input_lens and output_lens are no lists; vllm bench writes them with --save-detailed"
    lengths = {len(values) for values in given.values()}
    if len(lengths) > 1:
        counts = ", ".join(f"{name} {len(values)}" for name, values in given.items())
        return f"the lists differ in length ({counts})"
    rows: list[dict[str, Any] | str] = []
    for request in range(lengths.pop()):
        row = {name: values[request] for name, values in given.items()}
        error = row.pop("errors", None)
        rows.append(f"this request failed ({str(error)[:40]})" if error else row)
    return rows
