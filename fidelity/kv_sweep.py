"""The same card under vLLM 0.5.0 (V0), Llama-2-7B, with less and less KV memory: throughput inside one rank.

Decisions do not depend on times here, since everything arrives at once: each run is simulated once, and
what its iterations are is what a fit to whole runs needs. Efficiencies of the GPU are taken from the fixed-batch
set; what is fitted to each rank is the host's time and the reading of the cache. Prefill cost cannot be told
from totals and is left to physics.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

import simbatch as sb
from fidelity import fixed_batch
from fidelity.data import Section, signed, table
from simbatch.answers.fit.cells import together
from simbatch.answers.fit.problem import Problem
from simbatch.answers.fit.solve import solve
from simbatch.timing import LinearTiming
from simbatch.timing.coefficients import Coefficients
from simbatch.timing.work import FEATURES, Floats, Loads, loads

FOLDER = "h100_64gb_kv_sweep"
TRUE_OUTPUTS = {231: 230, 358: 357, 27: 27}
"""What the engine generated, by what the client asked for."""
GRAPH_TOKENS = 256
"""Largest recorded batch of that release."""
FREE = ("step_us", "sequence_us", "prompt_us", "crowding_ns", "kv_efficiency")
_WIDTHS = {"tokens": 0.1, "prefill_tokens": 0.2, "context_tokens": 0.2, "waiting": 1.0}


@dataclass(frozen=True)
class Run:
    """One run, and what its iterations had to do, in cells."""

    name: str
    rank: int
    duration_s: float
    tokens: int
    work: Loads
    count: Floats
    preemptions: int
    measured_preemptions: int


def deployment() -> sb.Deployment:
    return sb.Deployment("llama-2-7b", gpu="h100-64", gpu_memory_utilization=0.9)


@cache
def runs() -> tuple[Run, ...]:
    found = []
    for _, row in table(FOLDER, "runs.csv").iterrows():
        requests, outputs = int(row["n_requests"]), TRUE_OUTPUTS[int(row["output_tokens"])]
        result = sb.simulate(
            sb.Trace.from_lengths([int(row["prompt_tokens"])] * requests, [outputs] * requests),
            system="vllm-v0",
            timing=LinearTiming(base_ms=15, token_us=30, context_ns=330),
            num_gpu_blocks=int(row["gpu_kv_blocks"]),
            max_model_len=4096,
            max_num_seqs=4096,
            max_num_batched_tokens=4096,
        )
        work, count = _cells(result.facts.rows)
        found.append(
            Run(
                name=str(row["run_id"]).removeprefix("llama-2-7b_"),
                rank=int(row["lora_rank"]),
                duration_s=float(row["duration_s"]),
                tokens=requests * outputs,
                work=work,
                count=count,
                preemptions=result.metrics()["requests"]["preemptions"],
                measured_preemptions=int(row["preemptions_total"]),
            )
        )
    return tuple(found)


def _cells(rows: dict[str, Floats]) -> tuple[Loads, Floats]:
    """Stretches of iterations, those that are nearly alike together."""
    count = rows["iterations"].astype(float)
    sequences = rows["sequences"].astype(float)
    prefill = rows["prefill_tokens"].astype(float)
    prompts = np.where(prefill > 0, sequences, 0.0)
    context = rows["context_tokens"] + np.where(prefill > 0, 0.0, sequences * (count - 1) / 2)
    each = prefill / np.maximum(prompts, 1)
    features = {
        "tokens": rows["tokens"].astype(float),
        "sequences": sequences,
        "prefill_tokens": prefill,
        "prefill_sequences": prompts,
        "context_tokens": context,
        "prefill_context_tokens": np.where(prefill > 0, context, 0.0),
        "prefill_pairs": prompts * each * (each + 1) / 2,
        "waiting": rows["waiting"].astype(float),
    }
    keys = np.stack([np.round(np.log1p(features[name]) / width) for name, width in _WIDTHS.items()])
    _, cell = np.unique(keys, axis=1, return_inverse=True)
    cell = np.ravel(cell)
    total = np.bincount(cell, count)
    means = {name: np.bincount(cell, features[name] * count) / total for name in FEATURES}
    return loads(deployment(), means), total


def problem(some: list[Run]) -> Problem:
    """Whole runs as observations."""
    return Problem(
        work=together([run.work for run in some]),
        count=np.concatenate([run.count for run in some]),
        observation=np.concatenate([np.full(len(run.count), at) for at, run in enumerate(some)]),
        measured_s=np.array([run.duration_s for run in some]),
        run=np.arange(len(some)),
        weight=np.ones(len(some)),
        runs=tuple(run.name for run in some),
    )


def start() -> Coefficients:
    """The GPU as the fixed-batch set has it, and this release's graphs."""
    gpu = fixed_batch.card_without(lambda run: True).values().as_dict()
    return Coefficients.of({**gpu, "graph_tokens": GRAPH_TOKENS, "eager_layer_us": 0.0})


@cache
def unseen() -> list[tuple[Run, float]]:
    """Error of the throughput of every run, by a fit to the other runs of its rank.

    Rank 0 (adapters off) has three runs: there the shape is that of rank 8, and a constant and a cost for each
    sequence are fitted to the other two.
    """
    found = []
    whole = {}
    for rank in (8, 16, 32, 0):
        some = [run for run in runs() if run.rank == rank]
        free = FREE if rank else ("step_us", "sequence_us")
        every = problem(some)
        whole[rank] = solve(every, whole[8].coefficients if rank == 0 else start(), free)
        for at, run in enumerate(some):
            others = every.take(np.array([other for other in range(len(some)) if other != at]))
            fitted = solve(others, whole[rank].coefficients, free).coefficients
            predicted = every.take(np.array([at])).predicted_s(fitted)[0]
            found.append((run, float(run.duration_s / predicted - 1)))
    return found


def section() -> list[Section]:
    """Tables of the document."""
    rows = []
    for rank in (0, 8, 16, 32):
        errors = [error for run, error in unseen() if run.rank == rank]
        sizes = np.abs(errors)
        worst = max(((run, error) for run, error in unseen() if run.rank == rank), key=lambda pair: abs(pair[1]))
        rows.append(
            [
                str(rank),
                str(len(errors)),
                f"{100 * np.median(sizes):.1f}",
                f"{100 * sizes.max():.1f}",
                f"{worst[0].name} ({signed(worst[1])})",
            ]
        )
    every = np.abs([error for _, error in unseen()])
    rows.append(["all", str(len(every)), f"{100 * np.median(every):.1f}", f"{100 * every.max():.1f}", ""])
    heads = ["rank", "runs", "median size %", "worst %", "worst at"]
    detail = [[run.name, signed(error)] for run, error in unseen()]
    return [
        Section("kv-sweep-throughput", heads, rows),
        Section("kv-sweep-runs", ["run", "throughput error %"], detail),
    ]
