"""More runs of the 80 GB H100s with other models, known by means and percentiles alone: what moving a profile costs.

Arrivals are drawn (Poisson, as the gaps of the runs with request logs are) and prompts are the same hundred
again and again; nothing of these models or runs is in any card.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

import simbatch as sb
from fidelity.blis import DISTINCT_PROMPTS, FRONT_END_S, options
from fidelity.data import table
from simbatch.timing import Timing

FOLDER = "h100_blis_aggregates"
MODELS = {
    "meta-llama/Llama-3.1-70B-Instruct": "llama-3.1-70b",
    "Qwen/Qwen2.5-7B-Instruct": "qwen2.5-7b",
    "01-ai/Yi-34B": "yi-34b",
    "meta-llama/Llama-2-7b-hf": "llama-2-7b",
}


@dataclass(frozen=True)
class Load:
    """One load of one run, and what was measured of it, ms."""

    name: str
    model: str
    gpus: int
    seats: int
    budget: int
    blocks: int
    prompt_tokens: int
    output_tokens: int
    rate_per_s: float
    span_s: float
    ttft_ms: float
    tpot_ms: float
    e2e_ms: float


@cache
def loads() -> tuple[Load, ...]:
    found = []
    for _, row in table(FOLDER, "runs.csv").iterrows():
        if row["load"] == "all":
            continue
        rate, span = str(row["load"]).removesuffix(" s").split("/s x ")
        outputs = int(row["forced_output_tokens"])
        found.append(
            Load(
                name=f"{row['run']} {rate}/s",
                model=MODELS[str(row["model"])],
                gpus=int(row["tp"]),
                seats=int(row["max_num_seqs"]),
                budget=int(row["max_num_batched_tokens"]),
                blocks=int(row["gpu_kv_blocks"]),
                prompt_tokens=int(row["system_prompt_tokens"] + row["question_tokens"]),
                output_tokens=outputs,
                rate_per_s=float(rate),
                span_s=float(span),
                ttft_ms=float(row["ttft_ms_mean"]),
                # The source divides by tokens that its client counted, often too few.
                tpot_ms=float((row["e2e_ms_mean"] - row["ttft_ms_mean"]) / (outputs - 1)),
                e2e_ms=float(row["e2e_ms_mean"]),
            )
        )
    return tuple(found)


def deployment(load: Load) -> sb.Deployment:
    return sb.Deployment(
        load.model,
        gpu="h100",
        tensor_parallel_size=load.gpus,
        max_model_len=4096,
        num_gpu_blocks=load.blocks,
        max_num_seqs=load.seats,
        max_num_batched_tokens=load.budget,
    )


def trace(load: Load) -> sb.Trace:
    count = int(load.rate_per_s * load.span_s)
    gaps = np.random.default_rng(0).exponential(1 / load.rate_per_s, count)
    return sb.Trace.from_columns(
        name=load.name,
        arrival_s=np.cumsum(gaps),
        prompt_tokens=[load.prompt_tokens] * count,
        output_tokens=[load.output_tokens] * count,
        prefix_group=[str(at % DISTINCT_PROMPTS) for at in range(count)],
        prefix_tokens=[load.prompt_tokens] * count,
    )


def errors(load: Load, timing: Timing) -> tuple[float, float, float]:
    """Simulated ÷ measured - 1 of mean TTFT, TPOT and E2E."""
    result = sb.simulate(trace(load), deployment(load), timing=timing, **options())
    latency = result.metrics()["latency_s"]
    front_ms = FRONT_END_S * 1e3
    return (
        (latency["ttft"]["mean"] * 1e3 + front_ms) / load.ttft_ms - 1,
        latency["tpot"]["mean"] * 1e3 / load.tpot_ms - 1,
        (latency["e2e"]["mean"] * 1e3 + front_ms) / load.e2e_ms - 1,
    )
