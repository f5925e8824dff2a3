"""The bundled profile cards: which data each is fitted to, and what is taken from elsewhere.

Efficiencies of a GPU come from kernels that a vendor timed, built into steps of ten models; the host, and
what only a running engine shows, from step logs. Where a card leans on another, it says so in its notes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import simbatch as sb
from fidelity import blis, fixed_batch, kernels
from fidelity.data import ROOT
from simbatch.answers.fit import ClientRun, Fit, fit
from simbatch.answers.fit.tables import built
from simbatch.timing.card import CardError, Estimate, ProfileCard, card_text
from simbatch.timing.layers import LayerParts

FOLDER = ROOT / "simbatch" / "timing" / "profiles"
HOST = ("step_us", "sequence_us", "prompt_us", "waiting_ns", "crowding_ns", "graph_tokens", "mixed_kv_share")
"""Coefficients that kernels say nothing of."""
BUILT = {
    "step_us": 25.0, "prompt_us": 0.0, "waiting_ns": 0.0, "crowding_ns": 0.0, "eager_layer_us": 0.0,
    "mixed_kv_share": 0.0,
}  # fmt: skip
"""Pinned where steps are built: 25 µs is the sampler."""
EXCHANGE = {"h100": {"all_reduce_us": 5.0, "link_efficiency": 0.5}, "a100-80": {}}
"""As timed inside recorded graphs between two and four H100: 4.2 to 5.5 µs for small messages."""
KERNEL_SOURCE = "kernel timings of aiconfigurator 095f58a5 (Apache-2.0), built into steps"
BLIS_STEPS = "inference-sim 9293b227, step log of 0.15.1 runs (Apache-2.0)"
BLIS_REQUESTS = "inference-sim/training c4f0340, request logs (no licence stated); coefficients only"


MOVED_H100, FEWER_H100 = 0.09, 0.12
"""Worst mean TPOT of a load of a model that the card has not seen, and of its own two models by a card without them:
the table `moved` of the document."""
JUDGED_A100, JUDGED_H200 = 0.12, 0.15
"""No run on such cards was compared."""


@cache
def from_kernels(gpu: str) -> Fit:
    """Steps of ten models built from kernels."""
    steps = [kernels.steps(gpu, model, gpus) for model, gpus in kernels.SHAPES]
    return fit(steps, pins={**BUILT, **EXCHANGE[gpu]}, resamples=20)


def gpu_pins(leave: tuple[str, ...] = ()) -> dict[str, float]:
    """The H100's coefficients by kernels, *leave* left to be fitted. The sampler stands for the host's constant."""
    values = from_kernels("h100").card.values().as_dict()
    pins = {name: value for name, value in values.items() if name not in HOST and name not in leave}
    return {**pins, "step_us": 25.0, "sequence_us": 0.4, "mixed_kv_share": 0.0, "crowding_ns": 0.0}


@cache
def llama_70b() -> Fit:
    """Step log below saturation, and a saturated run as its clients saw it: two contexts, with and without a queue."""
    general, _ = blis.step_runs()
    saturated = blis.windows(blis.find("70b-hf-tp4-reasoning"))
    pins = gpu_pins(leave=("layer_us", "kv_half_heads"))
    return fit(
        [blis.intervals(general), saturated],
        pins=pins,
        start=from_kernels("h100").card,
        name="h100-80gb-llama-2-70b-tp4",
        about={
            "about": "Llama-2-70B on four H100: step log of one run, request log of a saturated one; GPU by kernels",
            "engine": "vLLM 0.15.1, prefix caching, asynchronous scheduling",
            "date": "2026-02-17",
            "source": f"{BLIS_STEPS}; {BLIS_REQUESTS}",
            "front_end_ms": 8.5,
        },
    )


def codellama_34b(saturated: bool = False, alone: bool = False) -> Fit:
    """Step log of one run. With *saturated* its saturated run is in the fit, else the 70B's says how that goes.

    *alone*: nothing of the 70B either.
    """
    _, general = blis.step_runs()
    pins = gpu_pins(("layer_us", "kv_half_heads") if saturated else ("layer_us",))
    if alone:
        pins |= {"waiting_ns": 0.0}
    elif not saturated:
        other = llama_70b().card.values()
        pins |= {"kv_half_heads": other.kv_half_heads, "waiting_ns": other.waiting_ns}
    data = [blis.intervals(general)]
    if saturated:
        data.append(blis.windows(blis.find("34b-tp2-reasoning")))
    return fit(
        data,
        pins=pins,
        start=from_kernels("h100").card,
        name="h100-80gb-codellama-34b-tp2",
        about={
            "about": "CodeLlama-34B on two H100: step log of one run; GPU by kernels, KV heads and queues by the 70B",
            "engine": "vLLM 0.15.1, prefix caching, asynchronous scheduling",
            "date": "2026-02-18",
            "source": BLIS_STEPS,
            "front_end_ms": 8.5,
        },
    )


@cache
def llama_7b() -> Fit:
    """One run by what its clients saw: no step of it was logged."""
    run = blis.find("7b-tp1-codegen")
    seen = blis.measured_latencies(run)
    arrival = blis.requests(run)["arrival_us"].to_numpy() / 1e6
    both = []
    # The second load begins with an empty cache here and with a full one there: its first tokens say nothing.
    for name, low, high, first in (("5/s", 0.0, 300.0, True), ("10/s", 602.0, 900.0, False)):
        inside = (arrival >= low) & (arrival < high)
        both.append(
            ClientRun(
                name=f"codegen {name}",
                trace=blis.trace(run, low, high),
                ttft_s=float(seen["ttft"][inside].mean()) / 1e3 if first else None,
                tpot_s=float(seen["tpot"][inside].mean()) / 1e3,
                options=blis.options(),
            )
        )
    # Batch and the cache that it reads grow together in these loads: what reading costs is the kernels' word, and
    # they were timed with just this model's heads.
    values = from_kernels("h100").card.values()
    return fit(
        both,
        blis.deployment(run),
        pins={name: getattr(values, name) for name in ("kv_efficiency", "kv_half_heads", "compute_efficiency")},
        start=generic_h100(),
        name="h100-80gb-llama-2-7b",
        about={
            "about": "Llama-2-7B on one H100: client side of two loads of one run; GPU by kernels",
            "engine": "vLLM 0.15.1, prefix caching, asynchronous scheduling",
            "date": "2026-02-17",
            "source": BLIS_REQUESTS,
        },
    )


@cache
def host_us(but: str = "") -> float:
    """Host's constant beside kernels: the mean over the two models whose steps were logged, or one without *but*."""
    kernel_layer = from_kernels("h100").card.values().layer_us
    extra = []
    if but != "70b":
        extra.append((llama_70b().card.values().layer_us - kernel_layer) * 80)
    if but != "34b":
        extra.append((codellama_34b(alone=but == "70b").card.values().layer_us - kernel_layer) * 48)
    return sum(extra) / len(extra)


def without(model: str) -> ProfileCard:
    """The card of H100s as it would be had *model* (``34b`` or ``70b``) not been measured."""
    card = from_kernels("h100").card
    values = {"step_us": max(0.0, 25.0 + host_us(model))}  # one model needs less than its kernels: nothing then
    if model != "70b":
        other = llama_70b().card.values()
        values |= {"kv_half_heads": other.kv_half_heads, "waiting_ns": other.waiting_ns}
    return changed(card, values, name=f"h100-80gb without the {model.upper()}")


def changed(card: ProfileCard, values: Mapping[str, float], **fields: object) -> ProfileCard:
    """A card with some coefficients taken from elsewhere."""
    pinned = {name: Estimate(value, value, value, "pinned") for name, value in values.items()}
    # How long iterations take while others wait comes from a run in which up to so many did.
    measured = {**card.measured, "waiting": llama_70b().card.measured["waiting"]}
    return replace(card, coefficients={**card.coefficients, **pinned}, measured=measured, **fields)  # type: ignore[arg-type]


@cache
def generic_h100() -> ProfileCard:
    """Any model on H100s: kernels, and the host as two models have it."""
    card = from_kernels("h100").card
    other = llama_70b().card.values()
    return changed(
        card,
        {
            "step_us": 25.0 + host_us(),
            "kv_half_heads": other.kv_half_heads,
            "waiting_ns": other.waiting_ns,
        },
        name="h100-80gb",
        about="Any model on H100 80 GB: steps of ten models built from kernel timings, the host by logs of two models",
        engine="kernels of vLLM 0.24; host of vLLM 0.15.1",
        date="2026-02-18",
        source=f"{KERNEL_SOURCE}; {BLIS_STEPS}",
        front_end_ms=8.5,
        error=replace(card.error, step=MOVED_H100, moved=MOVED_H100, moved_gpu=0.2),
        notes=(
            *card.notes,
            "step_us: mean of what Llama-2-70B (+1.1 ms) and CodeLlama-34B (-0.4 ms) need beside their kernels",
            "kv_half_heads, waiting_ns: by the step log and a saturated run of Llama-2-70B",
            "moved, and step: worst mean TPOT of eleven loads of four models that this card had not seen; "
            f"its own two models, each by a card without it: {100 * FEWER_H100:.0f} %",
        ),
    )


@cache
def a100() -> ProfileCard:
    card = from_kernels("a100-80").card
    return changed(
        card,
        {"step_us": 25.0 + host_us(), "waiting_ns": llama_70b().card.values().waiting_ns},
        name="a100-80gb",
        about="Any model on A100 80 GB: steps of ten models built from kernel timings, the host as on H100 machines",
        engine="kernels of vLLM 0.14; host of vLLM 0.15.1",
        date="2026-02-18",
        source=KERNEL_SOURCE,
        front_end_ms=8.5,
        error=replace(card.error, step=JUDGED_A100, moved=JUDGED_A100, moved_gpu=0.2),
        notes=(
            *card.notes,
            "step_us, waiting_ns: those of h100-80gb",
            "step, moved: a judgement, since no run on an A100 was compared and the host of one is not known",
            f"models left out of the built steps came out within {100 * card.error.moved:.1f} %, or what such a fit is "
            "reckoned with at least, if that is more",
        ),
    )


RTX_MODELS = (("llama-3.1-8b_tp1", "llama-3.1-8b", 1), ("qwen3-32b_tp2", "qwen3-32b", 2))
"""Layer profiles: name, model, GPUs."""


def rtx_of(models: tuple[tuple[str, str, int], ...] = RTX_MODELS) -> ProfileCard:
    """Steps built from layer profiles of some models; the link as the run of the larger one needs it."""
    steps = []
    for name, model, gpus in models:
        here = sb.Deployment(model, gpu="rtx pro 6000 server", tensor_parallel_size=gpus)
        parts = LayerParts(kernels.layers(name), here, link_bytes_per_s=RTX_LINK_BYTES_PER_S)
        steps.append(built(parts, here))
    link = RTX_LINK_BYTES_PER_S / (steps[0].deployment.card.link_bytes_per_s or 1.0)
    pins = {**BUILT, "all_reduce_us": 5.0, "link_efficiency": link}
    pins.pop("mixed_kv_share")
    card = fit(steps, pins=pins, resamples=20 if len(steps) > 1 else 0, validate=len(steps) > 1).card
    return changed(
        replace(card, model="", tensor_parallel_size=0),
        {"step_us": 25.0 + host_us(), "waiting_ns": llama_70b().card.values().waiting_ns},
        name="rtx-pro-6000",
        about="Any model on RTX PRO 6000: steps of two models built from layer profiles, the host as on H100 machines",
        engine="layers of vLLM 0.19; host of vLLM 0.15.1",
        date="2026-02-18",
        source="layer profiles of LLMServingSim 5daddb21 (MIT), built into steps",
    )


@cache
def rtx() -> ProfileCard:
    """Its errors are those of two runs of the same models, which are in no fit."""
    from fidelity.rtx import RUNS, error_of

    card = rtx_of()
    step = max(error_of(run, card) for run in RUNS)
    moved = max(error_of(run, rtx_of((other,))) for run, other in zip(RUNS, reversed(RTX_MODELS), strict=True))
    return replace(
        card,
        error=replace(card.error, step=step, moved=max(step, moved), moved_gpu=max(0.25, 1.5 * moved)),
        notes=(
            *card.notes,
            "step_us, waiting_ns: those of h100-80gb",
            "link_efficiency: 15 GB/s, which the one run on two cards needs",
            "step: worst mean TPOT or throughput of two runs that no fit has seen (but for that link)",
            "moved: the same, each run by the layers of the other model alone",
        ),
    )


RTX_LINK_BYTES_PER_S = 15e9


@cache
def h200() -> ProfileCard:
    """No run on it: the H100's card with this GPU's bandwidth."""
    card = generic_h100()
    return replace(
        card,
        name="h200-141gb",
        kind="estimated",
        gpu="H200-SXM-141GB",
        about="Any model on H200: the coefficients of h100-80gb with this GPU's bandwidth; nothing was measured on one",
        error=CardError(
            **{
                **vars(card.error),
                "how": "none of its own: those of h100-80gb",
                "step": JUDGED_H200,
                "moved": JUDGED_H200,
                "moved_gpu": 0.2,
            }
        ),
        notes=(
            *(note for note in card.notes if not note.startswith("moved")),
            "moved from h100-80gb by physics",
            "step, moved: a judgement, since nothing was measured on one",
        ),
    )


@cache
def h100_64gb() -> Fit:
    return fit(
        fixed_batch.iterations(),
        name="h100-64gb-llama-3.1-8b",
        about={
            "about": "Llama-3.1-8B on one 64 GB H100: every step of 21 runs with constant batches",
            "engine": "vLLM 0.8.5 (V1), synchronous, no prefix caching",
            "date": "2025",
            "source": "GPULLMAdapterOptimization bae36e2d (Apache-2.0), predictor_default_latency",
        },
    )


def every() -> list[ProfileCard]:
    """All bundled cards."""
    return [
        generic_h100(),
        llama_70b().card,
        codellama_34b().card,
        llama_7b().card,
        h100_64gb().card,
        a100(),
        rtx(),
        h200(),
    ]


def write() -> list[str]:
    """Fit all cards anew and write them; returns what was written."""
    FOLDER.mkdir(exist_ok=True)
    written = []
    for card in every():
        path = FOLDER / f"{card.name}.toml"
        path.write_text(card_text(card), encoding="utf-8")
        written.append(str(path.relative_to(ROOT)))
    return written
