"""RTX PRO 6000 under vLLM 0.19: 300 ShareGPT-shaped requests at ten a second, on one card and on two.

Iterations come from layer profiles of the same card and model; the host's part is that of the H100 machines, so
nothing of the first run is in its timing. The second one needs a figure for the link between two cards, and
there is none but what the run itself says. Who shares a prefix with whom was not kept, only how long it is:
prompts with a shared prefix of the same length are taken for one group.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

import simbatch as sb
from fidelity import cards, kernels
from fidelity.data import table
from fidelity.replay import Figures, Replay, figures
from simbatch.timing import Timing
from simbatch.timing.card import ProfileCard
from simbatch.timing.coefficients import Coefficients
from simbatch.timing.layers import LayerParts
from simbatch.timing.parts import PartsTiming
from simbatch.timing.profile import ProfileTiming

FOLDER = "rtx_vllm019_requests"
GPU = "rtx pro 6000 server"


@dataclass(frozen=True)
class Run:
    """One of the two runs."""

    name: str
    model: str
    gpus: int

    @property
    def deployment(self) -> sb.Deployment:
        return sb.Deployment(
            self.model, gpu=GPU, tensor_parallel_size=self.gpus, max_num_seqs=128, max_num_batched_tokens=2048
        )


RUNS = tuple(Run(*which) for which in cards.RTX_MODELS)


def requests(run: Run) -> pd.DataFrame:
    return table(FOLDER, f"requests_rtxpro6000_{run.name}.csv").sort_values("queued_s", kind="stable")


def trace(run: Run, shared_prefixes: bool = True) -> sb.Trace:
    """The run's requests when the engine queued them."""
    rows = requests(run)
    shared = rows["shared_prefix_tokens"] if shared_prefixes else rows["shared_prefix_tokens"] * 0
    return sb.Trace.from_columns(
        name=run.name,
        arrival_s=(rows["queued_s"] - rows["queued_s"].min()).to_numpy(),
        prompt_tokens=rows["prompt_tokens"].to_numpy(),
        output_tokens=rows["output_tokens"].to_numpy(),
        prefix_group=[f"of {tokens}" if tokens else f"alone {at}" for at, tokens in enumerate(shared)],
        prefix_tokens=shared.to_numpy(),
    )


def host() -> Coefficients:
    """The host of the H100 machines; the sampler is in the layers."""
    return Coefficients(step_us=cards.host_us(), waiting_ns=cards.llama_70b().card.values().waiting_ns)


def timing(run: Run, coefficients: Coefficients | None = None) -> Timing:
    """Layers of the model on this card, and a host; without *coefficients* that of the H100 machines."""
    link = cards.RTX_LINK_BYTES_PER_S if run.gpus > 1 else None
    parts = LayerParts(kernels.layers(run.name), run.deployment, link_bytes_per_s=link)
    return PartsTiming(run.deployment, parts, coefficients or host())


def measured(run: Run) -> Figures:
    rows = requests(run)
    seen = pd.DataFrame(
        {
            "ttft": (rows["first_token_s"] - rows["queued_s"]) * 1e3,
            "e2e": (rows["last_token_s"] - rows["queued_s"]) * 1e3,
            "tpot": (rows["last_token_s"] - rows["first_token_s"]) * 1e3 / (rows["output_tokens"] - 1),
        }
    )
    return figures(seen, rows["queued_s"], rows["output_tokens"], float("nan"))


def replay(run: Run, timed: Timing, profile: str, saw: str, shared_prefixes: bool = True) -> Replay:
    result = sb.simulate(trace(run, shared_prefixes), run.deployment, timing=timed, enable_prefix_caching=True)
    rows = result.requests
    seen = pd.DataFrame(
        {
            "ttft": (rows["first_token_s"] - rows["arrival_s"]) * 1e3,
            "e2e": (rows["finished_s"] - rows["arrival_s"]) * 1e3,
            "tpot": (rows["finished_s"] - rows["first_token_s"]) * 1e3 / (rows["output_tokens"] - 1),
        }
    )
    preempted = result.metrics()["requests"]["preemptions"]
    one = figures(seen, rows["arrival_s"], rows["output_tokens"], preempted)
    return Replay(run.model + (" on 2" if run.gpus > 1 else ""), profile, saw, one, measured(run))


def error_of(run: Run, card: ProfileCard) -> float:
    """How far a card is off on a run: of mean TPOT and throughput the worse."""
    found = replay(run, ProfileTiming(run.deployment, card), card.name, "")
    rate = found.simulated.output_tokens_per_s / found.measured.output_tokens_per_s - 1
    return max(abs(found.error("tpot", "mean")), abs(rate))
