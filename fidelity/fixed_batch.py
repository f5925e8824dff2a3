"""One 64 GB H100, Llama-3.1-8B, vLLM 0.8.5: every engine step of runs whose batches are known exactly.

What the log does not say is who arrived when in the first tenths of a second. Requests are sent at once
and reach the engine at a rate; 3,500 a second gives the number of groups in which seats fill in every run.
In runs whose first steps stay as short as the first one they begin to arrive later, by the log.
Batches are then those of vLLM's rules, iteration by iteration, with the logged times as the clock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pandas as pd

import simbatch as sb
from fidelity.data import Section, Watched, measured, signed, size, table
from fidelity.replay import NOT_RECORDED, Figures, Replay, figures
from simbatch.answers.fit import Fit, Iterations, fit, iterations_of
from simbatch.answers.fit.cells import problem_of, whole
from simbatch.answers.fit.correct import knots_of
from simbatch.answers.fit.identify import tell_apart
from simbatch.answers.fit.solve import solve
from simbatch.answers.fit.validate import cross_validate
from simbatch.timing import LinearTiming, Timing
from simbatch.timing.card import ProfileCard
from simbatch.timing.profile import ProfileTiming
from simbatch.timing.work import Floats

FOLDER = "h100_64gb_fixed_batch"
ARRIVALS_PER_S = 3500.0
SHORT = 1.1
"""A first step so much longer than the one before means that requests have come."""
LATE_LOG = "seqs1000_in1_out400"
"""Its log begins 37 s late: its batches are counted from the end."""


@dataclass(frozen=True)
class Run:
    """One run of the set."""

    name: str
    seats: int
    prompt_tokens: int
    output_tokens: int
    requests: int
    kv_tokens: int
    preemptions: int
    span_s: float
    duration_s: float
    gap_s: float
    steps_s: Floats | None
    """Logged durations, the warm-up request left out; None where the log is missing."""


def deployment() -> sb.Deployment:
    return sb.Deployment("llama-3.1-8b", gpu="h100-64", gpu_memory_utilization=0.9, max_model_len=4096)


@cache
def runs() -> tuple[Run, ...]:
    found = []
    kv_tokens = {50: 334944, 1000: 324832}
    for _, row in table(FOLDER, "runs.csv").iterrows():
        name = str(row["run_id"]).removeprefix("llama-3.1-8b-instruct_")
        path = measured(FOLDER, f"steps_{row['run_id']}.csv.gz")
        steps = None
        if path.exists():
            first = 0 if np.isnan(row["first_main_step_row"]) else int(row["first_main_step_row"])
            steps = np.diff(pd.read_csv(path)["t_us"].to_numpy(dtype=float))[first:] / 1e6
        known = row["kv_tokens"]
        found.append(
            Run(
                name=name,
                seats=int(row["max_num_seqs"]),
                prompt_tokens=int(row["prompt_tokens_mean"]),
                output_tokens=int(row["output_tokens"]),
                requests=int(row["n_requests"]),
                kv_tokens=kv_tokens[int(row["max_num_seqs"])] if np.isnan(known) else int(known),
                preemptions=int(row["preemptions_total"]),
                span_s=float(row["engine_span_s"]),
                duration_s=float(row["duration_s"]),
                gap_s=float(row["client_startup_gap_s"]),
                steps_s=steps,
            )
        )
    return tuple(found)


def lead_s(run: Run) -> float:
    """How long the first request was alone, by the log."""
    if run.steps_s is None or not len(run.steps_s) or run.name == LATE_LOG:
        return 0.0
    first = run.steps_s[0]
    longer = next((at for at, step in enumerate(run.steps_s[1:8]) if step >= SHORT * first), 0)
    return float(run.steps_s[1 : 1 + longer].sum())


def simulated(run: Run, timing: Timing, *, step: bool = False) -> sb.Result:
    """The run under vLLM's rules of that release."""
    later = lead_s(run) + 0.0005 + np.arange(1, run.requests) / ARRIVALS_PER_S
    trace = sb.Trace.from_columns(
        name=run.name,
        arrival_s=np.append(0.0, later),
        prompt_tokens=[run.prompt_tokens] * run.requests,
        output_tokens=[run.output_tokens] * run.requests,
    )
    return sb.simulate(
        trace,
        timing=timing,
        step=step,
        kv_tokens=run.kv_tokens - 16,  # one block is the null block
        max_model_len=4096,
        max_num_seqs=run.seats,
        max_num_batched_tokens=2048,
        scheduler_reserve_full_isl=False,
        async_scheduling=False,
        enable_prefix_caching=False,
    )


@cache
def iterations() -> Iterations:
    """Every logged step with its batch."""
    rough = LinearTiming(base_ms=11.9, token_us=21, context_ns=80)
    frames = []
    for run in runs():
        if run.steps_s is None or not len(run.steps_s):
            continue
        late = run.name == LATE_LOG
        watched = Watched(rough, None if late else run.steps_s)
        simulated(run, watched, step=True)
        frame = watched.frame()
        count = min(len(frame), len(run.steps_s))
        frame = frame.iloc[len(frame) - count :] if late else frame.iloc[:count]
        frames.append(frame.assign(run=run.name, duration_s=run.steps_s[:count]))
    return iterations_of(pd.concat(frames, ignore_index=True), deployment())


def some(keep: Callable[[str], bool]) -> Iterations:
    """The iterations of the runs that *keep* names."""
    every = iterations()
    chosen = np.array([keep(run) for run in every.run])
    return Iterations(
        every.deployment,
        {name: column[chosen] for name, column in every.rows.items()},
        every.count[chosen],
        every.duration_s[chosen],
        [run for run, kept in zip(every.run, chosen, strict=True) if kept],
    )


def card_without(keep: Callable[[str], bool]) -> ProfileCard:
    """A card fitted to some of the runs."""
    return fit(some(keep), validate=False, name="h100-64gb-llama-3.1-8b").card


@dataclass(frozen=True)
class Compared:
    """One run, simulated by a card that had not seen it, against what was measured."""

    run: Run
    step_error: float
    """Median over its steps."""
    step_size: float
    span_error: float
    steps: int
    preemptions: int
    replay: Replay


def gap_s(run: Run) -> float:
    """How long the client was busy before the first step; without a log, as long as with as many requests."""
    if np.isfinite(run.gap_s):
        return run.gap_s
    return float(np.nanmedian([other.gap_s for other in runs() if other.requests == run.requests]))


def _figures(run: Run, result: sb.Result) -> tuple[Figures, Figures]:
    """(simulated, measured). Time counts from the first step; E2E and the 90th percentile were not kept."""
    rows = result.requests
    first, done = rows["first_token_s"] * 1e3, rows["finished_s"] * 1e3
    seen = pd.DataFrame({"ttft": first, "e2e": done, "tpot": (done - first) / max(run.output_tokens - 1, 1)})
    one = figures(seen, rows["arrival_s"] * 0.0, rows["output_tokens"], result.metrics()["requests"]["preemptions"])
    told = table(FOLDER, "runs.csv").set_index("run_id").loc[f"llama-3.1-8b-instruct_{run.name}"]
    late_ms = gap_s(run) * 1e3
    nothing = (NOT_RECORDED,) * 4
    ttft, tpot = (
        (float(told[f"{name}_ms_mean"]), float(told[f"{name}_ms_p50"]), NOT_RECORDED, float(told[f"{name}_ms_p99"]))
        for name in ("ttft", "tpot")
    )
    other = Figures(
        latencies={
            "ttft": tuple(value - late_ms for value in ttft),  # type: ignore[dict-item]
            "tpot": tpot if run.output_tokens > 1 else nothing,
            "e2e": nothing,
        },
        output_tokens_per_s=run.requests * run.output_tokens / span_s(run),
        preemptions=run.preemptions,
    )
    if run.output_tokens == 1:
        one = replace(one, latencies={**one.latencies, "tpot": nothing})
    return replace(one, latencies={**one.latencies, "e2e": nothing}), other


def span_s(run: Run) -> float:
    """From the first step to the last, as measured."""
    return run.span_s if np.isfinite(run.span_s) else run.duration_s - gap_s(run)


def compare(run: Run, card: ProfileCard, errors: Floats) -> Compared:
    """*errors* are those of the logged steps."""
    result = simulated(run, ProfileTiming(deployment(), card))
    found = result.metrics()
    span = found["simulation"]["makespan_s"]
    return Compared(
        run=run,
        step_error=float(np.median(errors)) if len(errors) else float("nan"),
        step_size=float(np.median(np.abs(errors))) if len(errors) else float("nan"),
        span_error=span / span_s(run) - 1,
        steps=found["simulation"]["iterations"],
        preemptions=found["requests"]["preemptions"],
        replay=Replay(run.name, card.name, "the other runs of the set", *_figures(run, result)),
    )


@cache
def unseen() -> list[Compared]:
    """Every run, each by a fit to the others."""
    whole: Fit = fit(iterations(), resamples=0)
    assert whole.problem is not None
    found = []
    for run in runs():
        label = f"Llama-3.1-8B: {run.name}"
        at = whole.problem.runs.index(label) if label in whole.problem.runs else -1
        errors = whole.unseen_errors[whole.problem.run == at]
        name = run.name
        found.append(compare(run, card_without(lambda other, name=name: other != name), errors))
    return found


@cache
def size_left_out() -> list[tuple[str, float, float]]:
    """Median step error of every run by a fit without its batch size: (run, error, form kept).

    What is free to be fitted is decided anew without the size; *with the form kept* it is as for the whole set.
    """
    kept = form_kept()
    found = []
    for seats in sorted({run.seats for run in runs() if run.output_tokens > 1}):
        mark = f"seqs{seats}_in1_"
        card = card_without(lambda run, mark=mark: mark not in run)
        timing = ProfileTiming(deployment(), card)
        left = some(lambda run, mark=mark: mark in run)
        predicted = predicted_s(timing, left)
        for run in dict.fromkeys(left.run):
            mine = np.array(left.run) == run
            errors = predicted[mine] / left.duration_s[mine] - 1
            found.append((run, float(np.median(np.abs(errors))), kept[run]))
    return found


def form_kept() -> dict[str, float]:
    """Median step error by run: fits without its batch size, of the coefficients that the whole set tells apart."""
    cells, every = problem_of([iterations()]), whole([iterations()])
    told = tell_apart(cells, {})
    solution = solve(cells, told.start, told.free)

    def size_of(name: str) -> str:
        run = name.split(": ")[1]
        return run.split("_in")[0] if "_in1_" in run else run

    left_out = cross_validate(cells, every, solution, knots_of(cells), fold_of=size_of)
    return {run.run.split(": ")[1]: run.median_size for run in left_out.runs}


ODD, LIKE_IT = "seqs800_in1_out400", "seqs800_in1_out100"


def odd_run(width_tokens: int = 12_000) -> list[tuple[int, float, float]]:
    """Two runs with the same batch and contexts, both as measured: (tokens from, s of one, s of the other)."""
    every = iterations()
    name, rows = np.array(every.run), every.rows
    full = (rows["prefill_tokens"] == 0) & (rows["tokens"] >= 790) & (rows["tokens"] <= 800)
    found = []
    for low in range(8000, 80_000, width_tokens):
        here = full & (rows["context_tokens"] >= low) & (rows["context_tokens"] < low + width_tokens)
        odd, like = (float(np.median(every.duration_s[here & (name == run)])) for run in (ODD, LIKE_IT))
        found.append((low, odd, like))
    return found


def predicted_s(timing: ProfileTiming, rows: Iterations) -> Floats:
    """What a timing says of iterations, one by one."""
    from simbatch.timing.base import Iteration

    one, found = Iteration(), np.zeros(len(rows))
    names = list(rows.rows)
    for at, values in enumerate(zip(*(rows.rows[name] for name in names), strict=True)):
        for name, value in zip(names, values, strict=True):
            setattr(one, name, int(value))
        found[at] = timing.progression(one)[0] / 1e12
    return found


def section() -> list[Section]:
    """Tables of the document."""
    rows = []
    for found in unseen():
        run = found.run
        logged = 0 if run.steps_s is None or run.name == LATE_LOG else len(run.steps_s)
        rows.append(
            [
                run.name,
                "-" if np.isnan(found.step_size) else signed(found.step_error),
                "-" if np.isnan(found.step_size) else size(found.step_size),
                signed(found.span_error),
                f"{found.steps:,} / {logged:,}" if logged else f"{found.steps:,} / -",
                f"{found.preemptions:,} / {run.preemptions:,}",
            ]
        )
    heads = ["run", "median step error %", "its size %", "span and 1/throughput %", "steps sim / log", "preemptions"]
    left = [[run, size(error), size(kept)] for run, error, kept in size_left_out()]
    odd = [
        [f"{low:,} to {low + 12_000:,}", f"{one * 1e3:.2f}", f"{other * 1e3:.2f}", signed(one / other - 1)]
        for low, one, other in odd_run()
    ]
    left_heads = ["run", "median size of step error %", "the same, free coefficients as for the whole set"]
    odd_heads = ["context of the batch, tokens", f"{ODD}, ms", f"{LIKE_IT}, ms", "%"]
    return [
        Section("fixed-batch", heads, rows),
        Section("size-left-out", left_heads, left),
        Section("odd-run", odd_heads, odd),
    ]
