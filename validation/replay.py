"""The same requests through the executor and through the simulator, step by step.

Three runs. *Measured*: the engine with `OnGPU`. *Followed*: the simulator alone, with its own memory,
each iteration lasting what the measured one did; it must decide the same in every step and end at the same
picosecond, or the two are not one scheduler. *Predicted*: the simulator with a profile that has never seen
this run. Measured against predicted is what a simulation is worth.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from simbatch.errors import SimbatchError, UsageError
from simbatch.options import Options
from simbatch.result import Result
from simbatch.simulate import simulate
from simbatch.systems import find_system
from simbatch.timing import Iteration, Timing
from simbatch.trace import Trace
from validation.on_gpu import Executor, OnGPU
from validation.profile import Profile
from validation.tables import BlockTables

METRICS = (("total", "makespan_s"), ("mean TTFT", "ttft"), ("mean TPOT", "tpot"))


class Recorded:
    """Iterations last what they did the first time, in order. Only for a run that is taken step by step."""

    def __init__(self, durations_ps: list[int]) -> None:
        self._left = iter(durations_ps)

    def progression(self, iteration: Iteration) -> tuple[int, int, int]:
        duration_ps = next(self._left, None)
        if duration_ps is None:
            raise SimbatchError(
                "the simulator takes more iterations than were recorded: it does not decide as the replay did. "
                "Compare the two step logs for the first difference."
            )
        return duration_ps, 0, 1

    def describe(self) -> dict[str, Any]:
        return {"kind": "measured", "name": "recorded"}


@dataclass
class Replay:
    """One system on one trace."""

    system: str
    clock: OnGPU
    measured: Result
    followed: Result
    predicted: Result | None
    profile: Profile | None

    def same_decisions(self) -> bool:
        return self.first_difference() is None

    def first_difference(self) -> str | None:
        """Where the simulator first decided otherwise than the measured run, in words; None: nowhere."""
        ours, theirs = self.measured.decisions or [], self.followed.decisions or []
        for i, (a, b) in enumerate(zip(ours, theirs, strict=False)):
            for name in a:
                if a[name] != b.get(name):
                    return f"iteration {i}, {name}: measured run {a[name]!r}, simulator {b.get(name)!r}"
        if len(ours) != len(theirs):
            return f"the measured run has {len(ours)} iterations, the simulator {len(theirs)}"
        return None

    def step_errors(self) -> list[float]:
        """Predicted ÷ measured - 1 of each iteration of the measured run, on its own batches."""
        if self.profile is None:
            return []
        return [
            self.profile.seconds(counts) * 1e3 / row["gpu_ms"] - 1
            for counts, row in zip(self.clock.counts, self.clock.log, strict=True)
        ]

    def ends(self) -> dict[str, dict[str, float | None]]:
        """Total time, mean TTFT and mean TPOT: measured, predicted, and by how much they differ."""
        return {name: self._end(key) for name, key in METRICS}

    def _end(self, key: str) -> dict[str, float | None]:
        measured = _metric(self.measured, key)
        predicted = _metric(self.predicted, key) if self.predicted is not None else None
        error = predicted / measured - 1 if predicted is not None and measured else None
        return {"measured_s": measured, "predicted_s": predicted, "error": error}

    def summary(self) -> dict[str, Any]:
        """What the report reads."""
        from statistics import mean, median

        share = sorted(abs(e) for e in self.step_errors())
        hosts = [row["host_ms"] for row in self.clock.log[1:]]
        return {
            "system": self.system,
            "requests": len(self.measured.facts.ids),
            "iterations": self.measured.facts.iterations,
            "preemptions": self.measured.metrics()["requests"]["preemptions"],
            "same_decisions": self.same_decisions(),
            "first_difference": self.first_difference(),
            "same_end": _metric(self.measured, "makespan_s") == _metric(self.followed, "makespan_s"),
            "step_error": {"mean": mean(share), "median": median(share), "p95": share[int(0.95 * (len(share) - 1))],
                           "worst": share[-1]} if share else None,
            "ends": self.ends(),
            "gpu_s": sum(row["gpu_ms"] for row in self.clock.log) / 1e3,
            "host_ms_median": median(hosts) if hosts else None,
        }  # fmt: skip


def _metric(result: Result, key: str) -> float | None:
    metrics = result.metrics()
    value = metrics["simulation"]["makespan_s"] if key == "makespan_s" else metrics["latency_s"][key]["mean"]
    return None if value is None else float(value)


def replay(
    trace: Trace,
    system: str,
    executor: Executor,
    *,
    vocab: int,
    kv_tokens: int,
    page_tokens: int = 16,
    max_model_len: int = 2048,
    max_num_seqs: int | None = 256,
    max_num_batched_tokens: int | None = 2048,
    batch_size: int | None = None,
    host_in_time: bool = False,
    profile: Profile | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Replay:
    """Serve *trace* by *system* on *executor*, then twice more in the simulator. Raises UsageError where it cannot."""
    bundle = find_system(system)
    options: dict[str, Any] = {
        "kv_tokens": kv_tokens,
        "max_model_len": max_model_len,
        "max_num_seqs": max_num_seqs,
        "max_num_batched_tokens": max_num_batched_tokens,
        "batch_size": batch_size,
        "block_size": page_tokens,
        # The loop computes everything itself, one iteration at a time.
        "enable_prefix_caching": False,
        "async_scheduling": False,
    }
    known = {field.name for field in fields(Options)}
    options = {name: value for name, value in options.items() if name in known and value is not None}
    paged = bundle.memory == "paged"
    if bundle.memory not in ("paged", "contiguous"):
        raise UsageError(
            f"the system {system} keeps its cache in {bundle.memory} memory, which the loop does not have. "
            "Replay naive, static, orca-max, orca-pow2, orca-oracle, vllm-v0, sarathi or vllm."
        )

    def run(timing: Timing, memory: Any = None, **more: Any) -> Result:
        return simulate(trace, system=system, memory=memory, timing=timing, step=True, **more, **options)

    clock = OnGPU(executor, vocab, host_in_time=host_in_time)
    tables = BlockTables(kv_tokens // page_tokens, page_tokens) if paged else None
    measured = run(clock, tables, on_progress=on_progress)
    followed = run(Recorded(durations_ps(measured)))
    predicted = run(profile) if profile is not None else None
    return Replay(system, clock, measured, followed, predicted, profile)


def durations_ps(result: Result) -> list[int]:
    """Of every iteration of a run that was taken step by step, exactly."""
    rows = result.facts.rows
    found: list[int] = []
    for first, increment, count in zip(rows["first_ps"], rows["increment_ps"], rows["iterations"], strict=True):
        found += [int(first) + int(increment) * j for j in range(int(count))]
    return found


def write(found: Replay, folder: Path) -> dict[str, Any]:
    """Both step logs, both decision logs, requests and a summary into *folder*; returns the summary."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_csv(folder / "gpu_steps.csv", found.clock.log)
    runs = {"measured": found.measured, "followed": found.followed, "predicted": found.predicted}
    for name, result in runs.items():
        if result is None:
            continue
        result.requests.to_csv(folder / f"{name}_requests.csv", index=False)
        with gzip.open(folder / f"{name}_decisions.jsonl.gz", "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(step) + "\n" for step in result.decisions or [])
    if found.predicted is not None:
        steps = [
            {"i": step["i"], "T": step["tok"], "context": step["ctx"], "running": step["run"], "waiting": step["wait"],
             "start_ms": step["t0"] / 1e6, "ms": (step["t1"] - step["t0"]) / 1e6}
            for step in found.predicted.decisions or []
        ]  # fmt: skip
        _write_csv(folder / "simulated_steps.csv", steps)
    summary = found.summary()
    (folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    return summary


def _write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    if not rows:
        return
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
