"""What was aimed at, what came out, and which data the numbers behind it had seen: one function for each set of runs.

A target is stated before its number is computed, and stays as it is when it is missed. Loads of a run that its own
rules leave out (the knife's edge, the cold first minute) are named where they are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from fidelity import aggregates, blis, cards, fixed_batch, kernels, kv_sweep, published, rtx
from fidelity.data import Section, signed
from fidelity.replay import LATENCIES, STATS, Replay, latency_section, rate_section
from simbatch.answers.fit import Fit, Iterations, fit
from simbatch.timing import Timing
from simbatch.timing.bundled import find_card
from simbatch.timing.card import ProfileCard
from simbatch.timing.coefficients import Coefficients
from simbatch.timing.parts import PartsTiming
from simbatch.timing.profile import ProfileTiming
from simbatch.timing.work import Floats

THIS_RUN, THIS_MODEL, THIS_GPU, NOTHING = "this run", "this model", "this GPU", "nothing"
EDGE = "llama-2-70b-tp4-general 20/s"
"""At 122 of 128 seats: its mean and tail of TTFT turn on a per mille of the step."""


@dataclass(frozen=True)
class Target:
    """One row: limits and errors are relative, in the order in which they are named."""

    quantity: str
    saw: str
    source: str
    """Which data the coefficients came from."""
    limits: tuple[float, ...]
    errors: tuple[float, ...]
    unit: str = "%"
    places: int = 1
    floor: float = 0.0
    """Where a target is a range, its lower end: to be at most the upper one is what counts."""

    @property
    def met(self) -> bool:
        return all(abs(error) <= limit for error, limit in zip(self.errors, self.limits, strict=True))

    def row(self) -> list[str]:
        scale = 100 if self.unit == "%" else 1
        low = f"{self.floor * scale:g} to " if self.floor else ""
        limits = low + " / ".join(f"{limit * scale:g}" for limit in self.limits) + f" {self.unit}"
        got = " / ".join(f"{error * scale:.{self.places}f}" for error in self.errors)
        return [self.quantity, self.saw, self.source, limits, got, "met" if self.met else "**missed**"]


HEADS = ["quantity", "the profile had seen", "coefficients from", "target", "got", ""]


@dataclass(frozen=True)
class Outcome:
    """What one set of runs gives."""

    targets: list[Target]
    sections: list[Section]


STEPS_OF_RUN = "step log of other parts of the run, kernel tables"


# -- one 64 GB H100 ------------------------------------------------------------------------------------


def fixed_batches() -> Outcome:
    """Runs of constant batches: each by a fit to the others."""
    every = fixed_batch.unseen()
    steps = np.array([found.step_size for found in every if not np.isnan(found.step_size)])
    spans = np.abs([found.span_error for found in every])
    logged = [(found.steps, len(found.run.steps_s)) for found in every if _has_whole_log(found.run)]
    off = max((one - other for one, other in logged), key=abs)
    left = [error for _, error, _ in fixed_batch.size_left_out()]
    preempting = next(found for found in every if found.run.preemptions)
    saw, source = THIS_GPU + " and model, other runs", "step logs of the other runs of the set"
    step, span = (float(np.median(steps)), float(steps.max())), (float(np.median(spans)), float(spans.max()))
    preempted = preempting.preemptions / preempting.run.preemptions - 1
    name = "fixed batch"
    targets = [
        Target(f"{name}: step time, median error of a run: median / worst", saw, source, (0.01, 0.05), step, places=2),
        Target(f"{name}: engine span: median / worst", saw, source, (0.01, 0.04), span),
        Target(f"{name}: number of steps, furthest off", saw, source, (3.0,), (float(off),), unit="steps", places=0),
        Target(
            f"{name}: a batch size left out: worst step", saw, f"{source}, none of that size", (0.05,), (max(left),)
        ),
        Target(f"{name}: preemptions of V1", saw, source, (0.02,), (preempted,), places=2),
    ]
    replays = [found.replay for found in every]
    sections = [
        *fixed_batch.section(),
        latency_section("fixed-batch-latencies", replays),
        rate_section("fixed-batch-rates", replays),
    ]
    return Outcome(targets, sections)


def _has_whole_log(run: fixed_batch.Run) -> bool:
    return run.steps_s is not None and len(run.steps_s) > 0 and run.name != fixed_batch.LATE_LOG


def kv_sweeps() -> Outcome:
    """Runs with less and less memory: each by a fit to the others of its rank."""
    sizes = np.abs([error for _, error in kv_sweep.unseen()])
    target = Target(
        "KV sweep: throughput inside a rank: median / worst",
        "this GPU, model and rank, other runs",
        "durations of the other runs of the rank; GPU by the fixed batches",
        (0.015, 0.07),
        (float(np.median(sizes)), float(sizes.max())),
    )
    return Outcome([target], kv_sweep.section())


# -- 80 GB H100s ---------------------------------------------------------------------------------------


def step_errors(found: Fit) -> Floats:
    """Errors of step intervals, each predicted by a fit without its part of the run."""
    assert found.problem is not None
    parts = [at for at, name in enumerate(found.problem.runs) if ": part " in name]
    errors: Floats = found.unseen_errors[np.isin(found.problem.run, parts)]
    return errors


def step_intervals() -> Outcome:
    """Intervals between steps of two runs."""
    targets = []
    for name, found in (("34B", cards.codellama_34b()), ("70B", cards.llama_70b())):
        sizes = np.abs(step_errors(found))
        errors = (float(np.median(sizes)), float(sizes.mean()))
        quantity = f"steps, {name}: interval: median / mean"
        saw = THIS_RUN + ", other tenths"
        targets.append(Target(quantity, saw, STEPS_OF_RUN, (0.01, 0.02), errors, places=2))
    return Outcome(targets, [])


def by(run: blis.Run, card: ProfileCard) -> ProfileTiming:
    return ProfileTiming(blis.deployment(run), card)


SAW = {
    "7b-tp1-codegen": THIS_RUN,
    "7b-tp1-general": THIS_MODEL,
    "34b-tp2-general": THIS_RUN + " (steps)",
    "34b-tp2-roleplay": THIS_MODEL,
    "70b-tp4-general": THIS_RUN + " (steps)",
    "70b-tp4-roleplay": THIS_MODEL,
}
"""Runs below saturation, and what the card of the model had seen of each."""
CARDS = {"7b": "h100-80gb-llama-2-7b", "34b": "h100-80gb-codellama-34b-tp2", "70b": "h100-80gb-llama-2-70b-tp4"}
"""Bundled, by the size of the model: as users have them."""
SOURCES = {
    "7b": "codegen, client side, two loads; GPU by kernel tables",
    "34b": "a tenth of the steps of general; GPU by kernel tables; queue by the 70B",
    "70b": "a tenth of the steps of general; client side of reasoning; GPU by kernel tables",
}


@cache
def own(model: str) -> list[Replay]:
    """Runs of a model below saturation by its own card."""
    card = find_card(CARDS[model])
    runs = [(blis.find(part), saw) for part, saw in SAW.items() if part.startswith(model)]
    return [replay for run, saw in runs for replay in blis.replays(run, by(run, card), card.name, saw)]


def worst(errors: Iterable[float]) -> float:
    """The one furthest from 0."""
    return max(errors, key=abs)


def requests() -> Outcome:
    """Runs below saturation by the card of their model."""
    targets, replays = [], []
    for model, source in SOURCES.items():
        mine = own(model)
        replays += mine
        quiet = [replay for replay in mine if replay.run != EDGE]
        body = [replay.error(of, stat) for replay in quiet for of in ("tpot", "e2e") for stat in STATS[:3]]
        first = [
            replay.error("ttft", stat) for replay in mine for stat in STATS[:3] if replay.run != EDGE or stat == "p50"
        ]
        tail = [replay.error("ttft", "p99") for replay in quiet]
        saw = "; ".join(f"{part.split('-')[-1]}: {seen}" for part, seen in SAW.items() if part.startswith(model))
        name = f"requests, {model.upper()}"
        targets += [
            Target(f"{name}: TPOT and E2E, mean, p50, p90: worst", saw, source, (0.02,), (worst(body),)),
            Target(f"{name}: TTFT, mean, p50, p90: worst", saw, source, (0.08,), (worst(first),)),
            Target(f"{name}: TTFT, p99 after 60 s: worst", saw, source, (0.10,), (worst(tail),)),
        ]
        for edge in (replay for replay in mine if replay.run == EDGE):
            errors = [edge.error(of, stat) for of in ("tpot", "e2e") for stat in STATS[:3]]
            quantity = f"{name}, general at 20/s (122 of 128 seats): TPOT and E2E, mean, p50, p90: worst"
            targets.append(Target(quantity, THIS_RUN + " (steps)", source, (0.02,), (worst(errors),)))
    sections = [latency_section("requests", replays), rate_section("requests-rates", replays)]
    sections.append(feedback("feedback", own_timing, tpot_errors(replays)))
    return Outcome(targets, sections)


def feedback(name: str, timing_of: Callable[[blis.Run], Timing], errors: Mapping[str, float]) -> Section:
    """By load: error of a step with the measured batch, and what becomes of it in a replay (*errors*, by run)."""
    rows = []
    for run in map(blis.find, SAW):
        loads = [load for load in errors if load.startswith(run.name)]
        for load, low, high in zip(loads, run.stages, (*run.stages[1:], np.inf), strict=True):
            sequences, step_s, token_s = blis.step_at_measured_batch(run, timing_of(run), low, high)
            cells = [f"{sequences:.1f}", f"{step_s * 1e3:.2f}", f"{token_s * 1e3:.2f}"]
            rows.append([load, *cells, signed(step_s / token_s - 1), signed(errors[load])])
    heads = ["load", "sequences", "step, ms", "a token as measured, ms", "error %", "error of the replay %"]
    return Section(name, heads, rows)


def tpot_errors(replays: Iterable[Replay]) -> dict[str, float]:
    return {replay.run: replay.error("tpot", "mean") for replay in replays}


def own_timing(run: blis.Run) -> ProfileTiming:
    """By the bundled card of the model."""
    return by(run, find_card(CARDS[next(model for model in CARDS if f"{model}-" in run.id)]))


def kernel_timing(run: blis.Run) -> PartsTiming:
    return kernels.timing(blis.deployment(run))


def reasoning() -> Outcome:
    """Saturated runs: with the run in the fit, and without."""
    run, name = blis.find("34b-tp2-reasoning"), "reasoning, 34B, saturated"
    seen, unseen = cards.codellama_34b(saturated=True).card, find_card(CARDS["34b"])
    (one,) = blis.replays(run, by(run, seen), "fitted with this run", THIS_RUN)
    done, served = blis.completed(run, by(run, seen))
    (other,) = blis.replays(run, by(run, unseen), unseen.name, THIS_MODEL)
    errors = (one.error("tpot", "mean"), done / served - 1, one.error("ttft", "mean"))
    with_it = SOURCES["34b"].split(";")[0] + "; client side of this run; GPU by kernel tables"
    targets = [
        Target(f"{name}, run in the fit: TPOT / completed / TTFT", THIS_RUN, with_it, (0.02, 0.04, 0.06), errors),
        Target(f"{name}, not in the fit: TPOT", THIS_MODEL, SOURCES["34b"], (0.08,), (other.error("tpot", "mean"),)),
    ]
    saturated, card = blis.find("70b-hf-tp4-reasoning"), find_card(CARDS["70b"])
    pair = [replace(one, run=f"{one.run}, in the fit"), replace(other, run=f"{other.run}, not in the fit")]
    replays = [*pair, *blis.replays(saturated, by(saturated, card), card.name, THIS_RUN)]
    sections = [latency_section("reasoning", replays), rate_section("reasoning-rates", replays), windows()]
    return Outcome(targets, sections)


def windows() -> Section:
    """How the measured time of a token goes with the queue, by 100 s of the saturated runs."""
    rows = []
    for run in (blis.find("34b-tp2-reasoning"), blis.find("70b-hf-tp4-reasoning")):
        seen = blis.windows(run)
        waiting, token_ms = seen.rows["waiting"], seen.duration_s / seen.count * 1e3
        rows.append([run.name, "waiting", *(f"{value:.0f}" for value in waiting), *[""] * (12 - len(seen))])
        rows.append(["", "ms a token", *(f"{value:.1f}" for value in token_ms), *[""] * (12 - len(seen))])
    return Section("windows", ["run", "", *(f"{100 * at} s" for at in range(12))], rows)


# -- from parts ----------------------------------------------------------------------------------------


def from_kernels() -> Outcome:
    """Steps built from kernel tables, nothing fitted, no host."""
    targets, replays = [], []
    for model, limit in (("7b", 0.04), ("34b", 0.05), ("70b", 0.10)):
        runs = [blis.find(part) for part in SAW if part.startswith(model)]
        timed = [(run, kernel_timing(run)) for run in runs]
        mine = [replay for run, timing in timed for replay in blis.replays(run, timing, "kernel tables", NOTHING)]
        error = worst(replay.error("tpot", "mean") for replay in mine)
        name = f"from kernels, {model.upper()}: mean TPOT: worst load"
        targets.append(Target(name, NOTHING, "kernel tables of a vendor", (limit,), (error,)))
        replays += mine
    alike = feedback("kernels-feedback", kernel_timing, tpot_errors(replays))
    return Outcome(targets, [latency_section("kernels", replays), alike])


def published_line() -> Outcome:
    """One decode of an 8B against a published line: kernels alone, and the bundled card of the GPU."""
    here = published.deployment()
    timings = {
        "kernel tables, no host": kernels.timing(here),
        "kernel tables and the host of other models": PartsTiming(
            here, kernels.KernelParts(kernels.kernels("h100"), here), Coefficients(step_us=cards.host_us())
        ),
        "h100-80gb, moved to the model": ProfileTiming(here, find_card("h100-80gb")),
    }
    rows, errors = [], {}
    for name, timing in timings.items():
        errors[name] = published.errors(timing)
        rows.append([name, *(signed(error) for error in errors[name].values())])
    within = [error for context, error in errors["kernel tables, no host"].items() if context <= published.UP_TO]
    target = Target(
        "from kernels, published 8B line, 256 to 2,048 tokens: worst",
        NOTHING,
        "kernel tables of a vendor",
        (0.05,),
        (max(within, key=abs),),
    )
    heads = ["time per token, error %", *(f"{context:,} tokens" for context in published.CONTEXTS)]
    return Outcome([target], [Section("published", heads, rows)])


def layer_profiles() -> Outcome:
    """RTX PRO 6000 from layer profiles."""
    one, two = rtx.RUNS
    replays = [
        rtx.replay(one, rtx.timing(one), "layer profile", "its layers; the host of H100 machines"),
        rtx.replay(two, rtx.timing(two), "layer profile", "its layers; its link by this run"),
    ]
    found = replays[0]
    errors = tuple(found.error(latency, "mean") for latency in ("ttft", "tpot", "e2e"))
    target = Target(
        "RTX PRO 6000, 8B from layer profiles: TTFT / TPOT / E2E", "its layers; nothing of the run",
        "layer profile; host by steps of H100 machines", (0.05, 0.02, 0.03), errors,
    )  # fmt: skip
    return Outcome([target], [latency_section("rtx", replays), rate_section("rtx-rates", replays)])


# -- moved to another model ----------------------------------------------------------------------------


def moved() -> Outcome:
    """Cards asked about models that they have not seen, and what two runs of a model are worth."""
    rows, sizes = [], []

    def compared(name: str, model: str, gpus: int, errors: tuple[float, ...]) -> None:
        rows.append([name, model, str(gpus), *map(signed, errors)])
        sizes.append(errors[1])

    generic = find_card("h100-80gb")
    for load in aggregates.loads():
        timing = ProfileTiming(aggregates.deployment(load), generic)
        compared(load.name, load.model, load.gpus, aggregates.errors(load, timing))
    others = {"7b": generic, "34b": cards.without("34b"), "70b": cards.without("70b")}
    for run in (blis.find(part) for part in SAW):
        card = others[next(model for model in others if f"{model}-" in run.id)]
        for replay in blis.replays(run, by(run, card), card.name, NOTHING):
            errors = tuple(replay.error(latency, "mean") for latency in LATENCIES)
            compared(replay.run, run.model, run.gpus, errors)
    targets = [
        Target(
            "another model by physics: mean TPOT: worst load",
            THIS_GPU + ", not the model",
            "kernel tables; host by steps of other models",
            (0.15,),
            (worst(sizes),),
            floor=0.08,
        ),
        calibrated(),
    ]
    heads = ["run", "model", "GPUs", "TTFT %", "TPOT %", "E2E %"]
    return Outcome(targets, [Section("moved", heads, rows)])


def calibrated() -> Target:
    """The 7B after two loads of one run, asked about its other runs."""
    card = find_card(CARDS["7b"])
    errors = [replay.error("tpot", "mean") for replay in own("7b") if "general" in replay.run]
    loads = [load for load in aggregates.loads() if load.model == "llama-2-7b"]
    errors += [aggregates.errors(load, ProfileTiming(aggregates.deployment(load), card))[1] for load in loads]
    name = "another model, two calibration runs (7B): mean TPOT of other runs: worst"
    return Target(name, THIS_MODEL, SOURCES["7b"], (0.04,), (worst(errors),))


# -- the fit itself ------------------------------------------------------------------------------------


def speed(rows: int = 200_000) -> Outcome:
    """A fit of many rows, in seconds of CPU; the rows are those of the fixed batches, again and again."""
    some = fixed_batch.iterations()
    take = np.arange(rows) % len(some)
    many = Iterations(
        some.deployment,
        {name: column[take] for name, column in some.rows.items()},
        some.count[take],
        some.duration_s[take],
        [f"{some.run[at]} {turn // len(some)}" for turn, at in enumerate(take)],
    )
    started = time.process_time()
    fit(many)
    seconds = time.process_time() - started
    return Outcome([Target(f"fit of {rows:,} rows: CPU time", "-", "-", (30.0,), (seconds,), unit="s", places=0)], [])


SETS: dict[str, Callable[[], Outcome]] = {
    "fixed-batch": fixed_batches,
    "kv-sweep": kv_sweeps,
    "steps": step_intervals,
    "requests": requests,
    "reasoning": reasoning,
    "kernels": from_kernels,
    "published": published_line,
    "rtx": layer_profiles,
    "moved": moved,
    "speed": speed,
}
