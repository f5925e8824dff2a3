"""Recorded decisions of real schedulers, replayed and compared exactly.

A log holds what vLLM's own scheduler decided under a virtual clock. The simulator is given the
same requests, limits and step times, takes one iteration at a time, and must decide the same; it
is then run ahead, and every request's times must be the same once more.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from simbatch.decisions import nanoseconds
from simbatch.errors import UsageError
from simbatch.facts import FINISHED
from simbatch.result import Result
from simbatch.scheduler import Sarathi, VllmV0
from simbatch.simulate import simulate
from simbatch.timing import LinearTiming
from simbatch.trace import Trace
from simbatch.units import PS_PER_MS, PS_PER_NS

_TIMES = {"first_sched_ns": "first_scheduled_ps", "first_token_ns": "first_token_ps", "finish_ns": "finished_ps"}
_COUNTS = ("output_tokens", "preemptions", "cached_tokens")


def replay_golden(steps_file: str | Path) -> str | None:
    """Replay a recorded log, ``NAME.steps.jsonl.gz`` with ``NAME.requests.jsonl.gz`` beside it.

    None when every decision and every time is equal; else the first difference in words. Raises
    UsageError for a file that is no such log, SimbatchError for a log of something not modelled.
    """
    path = Path(steps_file)
    if ".steps." not in path.name:
        raise UsageError(f"{path.name} is not the steps file of a log. Give NAME.steps.jsonl.gz.")
    steps = _read(path)
    requests = _read(path.with_name(path.name.replace(".steps.", ".requests.")))
    config = steps[0]
    return replay_case(
        {
            "name": config["scenario"],
            "engine": config["engine"],
            "step_time_ns": config["step_time_ns"],
            "requests": [line for line in requests if line["kind"] == "request"],
            "steps": [line for line in steps if line["kind"] == "step"],
            "results": [line for line in steps if line["kind"] == "result"],
        }
    )


def replay_case(case: Mapping[str, Any], step_time_ns: Mapping[str, int] | None = None) -> str | None:
    """The same for one case of a `micro.json`; *step_time_ns* stands in that file's header."""
    times = case.get("step_time_ns") or step_time_ns
    if times is None:
        raise UsageError(f"{case['name']} does not say how long a step takes. Give step_time_ns.")
    trace = _trace(case["name"], case["requests"])
    setup = _v0(case["engine"]) if "num_cpu_blocks" in case["engine"] else _v1(case["engine"])
    setup["timing"] = LinearTiming(
        base_ms=times["base"] * PS_PER_NS / PS_PER_MS,
        token_us=times["per_scheduled_token"] / 1000,
        context_ns=times["per_context_token"],
    )
    stepped = simulate(trace, step=True, **setup)
    return (
        _different_steps(case["steps"], stepped.decisions or [])
        or _different_results(case["results"], stepped, "step by step")
        or _different_results(case["results"], simulate(trace, **setup), "running ahead")
    )


def _v1(engine: Mapping[str, Any]) -> dict[str, Any]:
    """How `simulate` is called for the engine settings of a V1 log; one of its blocks is the null block."""
    settings = (
        "block_size",
        "max_model_len",
        "max_num_seqs",
        "max_num_batched_tokens",
        "max_num_active_seqs",
        "enable_chunked_prefill",
        "scheduler_reserve_full_isl",
        "watermark",
        "enable_prefix_caching",
        "async_scheduling",
        "long_prefill_token_threshold",
        "long_prefill_token_threshold_adaptive",
        "prefill_schedule_interval",
    )
    return {
        "kv_tokens": (engine["num_gpu_blocks"] - 1) * engine["block_size"],
        "scheduling_policy": engine["policy"],
        **{setting: engine[setting] for setting in settings},
    }


def _v0(engine: Mapping[str, Any]) -> dict[str, Any]:
    """The same for a V0 log; all of its blocks are usable."""
    policy = Sarathi if engine["enable_chunked_prefill"] else VllmV0
    return {
        "system": "vllm-v0",
        "scheduler": policy(engine["preemption_mode"] or "recompute", engine["num_cpu_blocks"]),
        "kv_tokens": engine["num_gpu_blocks"] * engine["block_size"],
        **{name: engine[name] for name in ("block_size", "max_model_len", "max_num_seqs", "max_num_batched_tokens")},
    }


def _trace(name: str, requests: Sequence[Mapping[str, Any]]) -> Trace:
    """The log's requests, sorted by arrival as an engine receives them; equal times keep file order."""
    ordered = sorted(requests, key=lambda r: r["arrival_ns"])
    return Trace.from_columns(
        name=name,
        id=[r["id"] for r in ordered],
        arrival_ps=[r["arrival_ns"] * PS_PER_NS for r in ordered],
        prompt_tokens=[r["prompt_len"] for r in ordered],
        output_tokens=[r["output_len"] for r in ordered],
        max_tokens=[r["max_tokens"] if "stop" in r else r["output_len"] for r in ordered],
        priority=[r.get("priority", 0) for r in ordered],
        segments=[tuple(map(tuple, r["segments"])) if "segments" in r else None for r in ordered],
    )


def _different_steps(real: Sequence[Mapping[str, Any]], ours: Sequence[Mapping[str, Any]]) -> str | None:
    for theirs, mine in zip(real, ours, strict=False):
        for field, value in theirs.items():
            if field != "kind" and value != mine.get(field):
                return (
                    f"step {theirs['i']}, {field}: the real scheduler has {_short(value)}, "
                    f"the simulator {_short(mine.get(field))}"
                )
    if len(real) != len(ours):
        return f"step {min(len(real), len(ours))}: the real scheduler took {len(real)} steps, the simulator {len(ours)}"
    return None


def _different_results(real: Iterable[Mapping[str, Any]], result: Result, how: str) -> str | None:
    columns = result.facts.requests
    row_of = {id_: row for row, id_ in enumerate(result.facts.ids)}
    for theirs in real:
        row = row_of.get(theirs["id"])
        if row is None:
            return f"request {theirs['id']}: not among the requests of the log"
        mine: dict[str, Any] = {field: int(columns[field][row]) for field in _COUNTS}
        if columns["status"][row] == FINISHED:
            mine |= {field: nanoseconds(int(columns[column][row])) for field, column in _TIMES.items()}
        else:
            mine |= {**dict.fromkeys(_TIMES), "finish_ns": theirs["finish_ns"], "finish_reason": "ignored"}
        for field, value in mine.items():
            if field in theirs and theirs[field] != value:
                return (
                    f"request {theirs['id']}, {field}, {how}: the real scheduler has {theirs[field]}, "
                    f"the simulator {value}"
                )
    return None


def _short(value: Any, most: int = 300) -> str:
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}… ({len(value)} entries)"


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]
    except (OSError, EOFError, ValueError) as error:
        raise UsageError(f"{path} cannot be read as a log ({error}). Give a gzip file of JSON lines.") from error
