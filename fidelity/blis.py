"""80 GB H100s under vLLM 0.15.1 with prefix caching and asynchronous scheduling: step intervals, and requests.

Intervals: about one step in ten was logged; between two logged steps the batch is taken as the mean of both ends,
and prompts start as often as sequences end. Requests: the same 100 prompts again and again, so a prompt is its
place modulo 100, and almost all of it is found in the cache; output lengths are the forced ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pandas as pd

import simbatch as sb
from fidelity.data import table
from fidelity.replay import NOT_RECORDED, Replay, figures
from simbatch.answers.fit import Iterations
from simbatch.timing import Iteration, Timing
from simbatch.timing.work import FEATURES, Floats
from simbatch.units import PS_PER_S

REQUESTS, STEPS = "h100_blis_requests", "h100_blis_steps"
DISTINCT_PROMPTS = 100
NEW_TOKENS = 13.0
"""Computed for a prompt whose rest is in the cache: the median of the step log."""
COLD_S = 60.0
"""The first minute, with empty caches, is left out of tails."""
FRONT_END_S = 0.0085
"""Client to engine: one constant for every model and load (6 to 10 ms are left over, whichever is looked at)."""
FEW_GONE = 0.001
"""Share of the requests that clients may have given up on without others being served sooner for it."""
MODELS = {
    "meta-llama/Llama-2-7b-hf": "llama-2-7b",
    "meta-llama/Llama-2-70b-hf": "llama-2-70b",
    "codellama/CodeLlama-34b-Instruct-hf": "codellama-34b",
}


@dataclass(frozen=True)
class Run:
    """One run of requests."""

    id: str
    model: str
    gpus: int
    blocks: int
    outputs: int
    stages: tuple[float, ...]
    """When each load begins, s."""

    @property
    def name(self) -> str:
        return self.id.split("-", 2)[2]


@cache
def runs() -> tuple[Run, ...]:
    found = []
    for _, row in table(REQUESTS, "runs.csv").iterrows():
        two = "general" in str(row["run_id"]) or "codegen" in str(row["run_id"])
        found.append(
            Run(
                id=str(row["run_id"]),
                model=MODELS[str(row["model"])],
                gpus=int(row["tp"]),
                blocks=int(row["gpu_kv_blocks"]),
                outputs=int(row["forced_output_tokens"]),
                stages=(0.0, 602.0) if two else (0.0,),
            )
        )
    return tuple(found)


def find(part: str) -> Run:
    """The run with *part* in its name."""
    return next(run for run in runs() if part in run.id)


def deployment(run: Run) -> sb.Deployment:
    return sb.Deployment(
        run.model,
        gpu="h100",
        tensor_parallel_size=run.gpus,
        max_model_len=4096,
        num_gpu_blocks=run.blocks,
        max_num_seqs=128,
        max_num_batched_tokens=2048,
    )


@cache
def requests(run: Run) -> pd.DataFrame:
    """The run's rows in order of arrival; prompts that the client gave up on have their length from their like."""
    rows = table(REQUESTS, f"requests_{run.id}.csv.gz")
    place = rows["index"] % DISTINCT_PROMPTS
    known = rows["prompt_tokens"].where(rows["prompt_tokens"] > 0)
    rows = rows.assign(place=place, prompt=known.groupby(place).transform("median").astype(int))
    return rows.sort_values("arrival_us", kind="stable").reset_index(drop=True)


def trace(run: Run, low_s: float = 0.0, high_s: float = np.inf) -> sb.Trace:
    """Its requests, or those that arrive in a part of it."""
    rows = requests(run)
    rows = rows[(rows["arrival_us"] >= low_s * 1e6) & (rows["arrival_us"] < high_s * 1e6)]
    return sb.Trace.from_columns(
        name=run.name,
        arrival_s=(rows["arrival_us"] / 1e6).to_numpy(),
        prompt_tokens=rows["prompt"].to_numpy(),
        output_tokens=np.full(len(rows), run.outputs),
        prefix_group=[str(place) for place in rows["place"]],
        prefix_tokens=rows["prompt"].to_numpy(),
    )


def simulated(run: Run, timing: Timing) -> sb.Result:
    """The run, all requests served to the end."""
    return sb.simulate(trace(run), deployment(run), timing=timing, **options())


def options() -> dict[str, object]:
    """How that engine was set."""
    return {"async_scheduling": True, "enable_prefix_caching": True, "scheduler_reserve_full_isl": False}


def latencies(result: sb.Result, front_end_s: float = FRONT_END_S) -> pd.DataFrame:
    """Simulated TTFT, TPOT and E2E of every request, ms, as its client would see them."""
    rows = result.requests
    ttft = (rows["first_token_s"] - rows["arrival_s"] + front_end_s) * 1e3
    e2e = (rows["finished_s"] - rows["arrival_s"] + front_end_s) * 1e3
    return pd.DataFrame({"ttft": ttft, "e2e": e2e, "tpot": (e2e - ttft) / (rows["output_tokens"] - 1)})


def measured_latencies(run: Run) -> pd.DataFrame:
    """The same as measured; empty where the client gave up."""
    rows = requests(run)
    good = rows["error"] == 0
    ttft, e2e = rows["ttft_s"].where(good) * 1e3, rows["e2e_s"].where(good) * 1e3
    return pd.DataFrame({"ttft": ttft, "e2e": e2e, "tpot": (e2e - ttft) / (run.outputs - 1)})


def replays(run: Run, timing: Timing, profile: str, saw: str) -> list[Replay]:
    """The run simulated, each of its loads a replay; where many clients gave up, those that came before the first."""
    result = simulated(run, timing)
    one, other = latencies(result), measured_latencies(run)
    arrival = requests(run)["arrival_us"].reset_index(drop=True) / 1e6
    outputs = pd.Series(float(run.outputs), index=one.index)
    gone = arrival[requests(run)["error"].to_numpy() != 0]
    until = float(gone.min()) if len(gone) > FEW_GONE * len(arrival) else np.inf
    preemptions = result.requests["preemptions"]
    found = []
    for low, high in zip(run.stages, (*run.stages[1:], np.inf), strict=True):
        mine = (arrival >= low) & (arrival < min(high, until))
        rate = f" {mine.sum() / (arrival[mine].max() - low):.0f}/s"
        cold = COLD_S if low == 0.0 else 0.0
        sides = [figures(side[mine], arrival[mine], outputs[mine], NOT_RECORDED, cold) for side in (one, other)]
        sides[0] = replace(sides[0], preemptions=float(preemptions[mine].sum()))
        found.append(Replay(run.name + rate, profile, saw, sides[0], sides[1]))
    return found


def completed(run: Run, timing: Timing) -> tuple[int, int]:
    """Requests that had been served when the last one arrived: simulated, measured."""
    arrival = requests(run)["arrival_us"].reset_index(drop=True) / 1e3
    last = arrival.max()
    one, other = latencies(simulated(run, timing)), measured_latencies(run)
    return int((arrival + one["e2e"] <= last).sum()), int((arrival + other["e2e"] <= last).sum())


def step_at_measured_batch(run: Run, timing: Timing, low_s: float, high_s: float) -> tuple[float, float, float]:
    """(sequences, s of a step as requests meet it, measured s a token): an error without the feedback.

    The longer a step, the more sequences there are, and the longer the step: a replay's error has both in it.
    A request meets as many others as there are on average, and is one more.
    """
    rows, seen = requests(run), measured_latencies(run)
    arrival = rows["arrival_us"].to_numpy() / 1e6
    mine = (arrival >= low_s) & (arrival < high_s)
    end_s = (arrival + seen["e2e"].to_numpy() / 1e3)[mine].max()
    decoding = float((seen["e2e"] - seen["ttft"])[mine].sum()) / 1e3 / (end_s - low_s)
    prompt, new, starts = round(rows["prompt"].mean()), round(NEW_TOKENS), decoding / run.outputs
    one = Iteration()
    one.tokens = one.sequences = round(decoding + 1)
    one.context_tokens = round((decoding + 1) * (prompt + run.outputs / 2))
    alone_s = timing.progression(one)[0] / PS_PER_S
    one.tokens, one.sequences = one.tokens + new, one.sequences + 1
    one.prefill_tokens, one.prefill_sequences, one.prefill_context_tokens = new, 1, prompt
    one.context_tokens, one.prefill_pairs = one.context_tokens + prompt, new * prompt
    beside_s = timing.progression(one)[0] / PS_PER_S
    return decoding, (1 - starts) * alone_s + starts * beside_s, float(seen["tpot"][mine].mean()) / 1e3


# -- steps ---------------------------------------------------------------------------------------------


def step_runs() -> tuple[Run, ...]:
    """The runs with a step log."""
    return find("llama-2-70b-tp4-general"), find("codellama-34b-tp2-general")


@cache
def intervals(run: Run, blocks: int = 10) -> Iterations:
    """Intervals between logged steps, cut into *blocks* in a row, which stand for runs."""
    spans = table(STEPS, f"intervals_{run.id}.csv.gz")
    steps = table(STEPS, f"steps_{run.id}.csv.gz").set_index("step_id")
    prompt, count = requests(run)["prompt"].mean(), spans["gap_steps"].to_numpy(float)
    first, following = spans["n_decode_first"].to_numpy(float), spans["n_decode_next"].to_numpy(float)
    decoding = (first + (count - 1) * (first + following) / 2) / count
    started = steps["n_prefill_reqs"].reindex(spans["step_id"]).to_numpy(float)
    prompts = (started + (count - 1) * decoding / run.outputs) / count
    new = (spans["prefill_tokens_first"].to_numpy(float) + (count - 1) * decoding / run.outputs * NEW_TOKENS) / count
    rows: dict[str, Floats] = {
        "tokens": np.maximum(decoding + new, 1.0),
        "sequences": decoding + prompts,
        "prefill_tokens": new,
        "prefill_sequences": prompts,
        "context_tokens": decoding * (prompt + run.outputs / 2) + prompts * prompt,
        "prefill_context_tokens": prompts * prompt,
        "prefill_pairs": new * prompt,
        "waiting": steps["waiting"].reindex(spans["step_id"]).to_numpy(float),
    }
    block = np.arange(len(spans)) * blocks // len(spans)
    duration_s = (spans["mean_cycle_ms"] * spans["gap_steps"] / 1e3).to_numpy(float)
    return Iterations(deployment(run), rows, count, duration_s, [f"part {at}" for at in block])


def windows(run: Run, width_s: float = 100.0) -> Iterations:
    """A saturated run by what its clients saw: in each window a full batch, and the usual time per output token."""
    rows, seen = requests(run), measured_latencies(run)
    arrival = rows["arrival_us"].to_numpy() / 1e6
    start, end = arrival + seen["ttft"].to_numpy() / 1e3, arrival + seen["e2e"].to_numpy() / 1e3
    gone = np.where(np.isnan(start), arrival + 300.0, start)  # the client's patience
    prompt = rows["prompt"].mean()
    found = []
    for at in np.arange(width_s / 2, arrival[-1], width_s):
        mine = np.abs(start - at) < width_s / 2
        running = int(((start < at) & (end > at)).sum())
        if mine.sum() < 100 or running < 100:
            continue
        waiting = int(((arrival < at) & (gone > at)).sum())
        prompts = running / run.outputs
        found.append(
            {
                "tokens": running + prompts * NEW_TOKENS,
                "sequences": running + prompts,
                "prefill_tokens": prompts * NEW_TOKENS,
                "prefill_sequences": prompts,
                "context_tokens": running * (prompt + run.outputs / 2) + prompts * prompt,
                "prefill_context_tokens": prompts * prompt,
                "prefill_pairs": prompts * NEW_TOKENS * prompt,
                "waiting": float(waiting),
                "duration_s": float(np.nanmedian(seen["tpot"][mine])) / 1e3,
            }
        )
    frame = pd.DataFrame(found)
    rows_of = {name: frame[name].to_numpy(float) for name in FEATURES}
    labels = [f"saturated, window {at}" for at in range(len(frame))]
    return Iterations(deployment(run), rows_of, np.full(len(frame), 2.0), frame["duration_s"].to_numpy() * 2, labels)
