"""What fits on a deployment: from the arithmetic on the label of the box to what vLLM would get.

Two units are about: a label's GB is 10^9 bytes, what an engine prints is GiB, 2^30 bytes. Every
name here ends in the one it means. GiB and blocks are those of one GPU, as vLLM prints them. What a
real engine measures when it starts is estimated here and comes as a range; so does what depends
on it. `docs/capacity.md` works an example through.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from html import escape
from typing import Any

from simbatch.answers.by_label import Division, divisions
from simbatch.answers.intensity import batch_at, decode_intensity, intensity_bound
from simbatch.deployment import Deployment
from simbatch.errors import UsageError

GIB = 2**30

ACTIVATION_ERROR_GIB = 0.3
NON_TORCH_ERROR_GIB = 0.25
GRAPH_ERROR_GIB = 0.3
GRAPH_ERROR_OF_EXPERTS_GIB = 0.65
"""The largest errors of the estimates, rounded up, against 23 start-up logs of vLLM 0.17 and 0.19 on one to four H100.

Releases before 0.17 needed up to 5 GiB more for activations; other cards have not been compared."""


@dataclass(frozen=True)
class Range:
    """An estimate, and between what it lies."""

    low: float
    value: float
    high: float

    def through(self, count: Callable[[float], float]) -> Range:
        """The range of a function that does not fall as its argument grows."""
        return Range(count(self.low), count(self.value), count(self.high))


class Capacity:
    """What fits on *deployment* for sequences of *length_tokens*. Shows itself as the formula with its terms."""

    def __init__(self, deployment: Deployment, length_tokens: int) -> None:
        self.deployment = deployment
        self.length_tokens = length_tokens
        self.is_given = bool({"num_gpu_blocks", "kv_tokens"} & deployment.given.keys())
        """Did the user say how large the KV cache is?"""

    # -- one GPU's memory, in GiB of 2^30 bytes --------------------------------------------------

    @property
    def weights_gib(self) -> float:
        return self.deployment.memory.weights_bytes / GIB

    @property
    def activation_gib(self) -> Range:
        return _about(self.deployment.memory.activation_bytes, ACTIVATION_ERROR_GIB)

    @property
    def non_torch_gib(self) -> Range:
        return _about(self.deployment.memory.non_torch_bytes, NON_TORCH_ERROR_GIB)

    @property
    def graph_gib(self) -> Range:
        experts = self.deployment.shape.experts
        return _about(self.deployment.memory.graph_bytes, GRAPH_ERROR_OF_EXPERTS_GIB if experts else GRAPH_ERROR_GIB)

    @property
    def kv_gib(self) -> Range:
        """What the other terms leave of the engine's share; where it was given, that."""
        here = self.deployment
        if self.is_given:
            return _exactly(self.kv_tokens.value * here.kv_bytes_per_token_per_gpu / GIB)
        value = here.memory.kv_cache_bytes / GIB
        estimates = (self.activation_gib, self.non_torch_gib, self.graph_gib)
        most = value + sum(term.value - term.low for term in estimates)
        return Range(max(0.0, value - sum(term.high - term.value for term in estimates)), value, most)

    # -- tokens and sequences --------------------------------------------------------------------

    @property
    def block_bytes(self) -> int:
        """One KV block on one GPU, all layers."""
        return self.deployment.block_size * self.deployment.kv_bytes_per_token_per_gpu

    @property
    def num_gpu_blocks(self) -> Range:
        """KV blocks as vLLM counts them: one is the null block, which holds nothing."""
        value = self.deployment.num_gpu_blocks or 0
        if self.is_given:
            return _exactly(value)
        low, high = (math.floor(gib * GIB / self.block_bytes) for gib in (self.kv_gib.low, self.kv_gib.high))
        return Range(low, value, high)

    @property
    def kv_tokens(self) -> Range:
        """What vLLM prints as the size of its KV cache: all blocks. A number of tokens that was given is kept."""
        here = self.deployment
        if "kv_tokens" in here.given:
            return _exactly(here.kv_tokens or 0)
        return self.num_gpu_blocks.through(lambda blocks: blocks * here.block_size)

    @property
    def max_concurrency(self) -> Range:
        """Requests of max_model_len in the KV cache, as vLLM prints it: all blocks ÷ blocks of one request."""
        each = self.blocks_of(self.deployment.max_model_len or 1)
        return self.num_gpu_blocks.through(lambda blocks: blocks / each)

    @property
    def sequences(self) -> Range:
        """Sequences of the length asked for that fit at once, in whole blocks and without the null block."""
        each = self.blocks_of(self.length_tokens)
        return self.num_gpu_blocks.through(lambda blocks: max(0, int(blocks) - 1) // each)

    def blocks_of(self, tokens: int) -> int:
        return -(-tokens // self.deployment.block_size)

    # -- the label, and operations for each byte -------------------------------------------------

    @property
    def divisions(self) -> tuple[Division, ...]:
        """The arithmetic of the label, in GB of 10^9 bytes."""
        return divisions(self.deployment, self.length_tokens)

    @property
    def ridges(self) -> dict[str, float | None]:
        """FLOP per byte from which on the GPU is limited by arithmetic; None for arithmetic that it does not have."""
        card = self.deployment.card
        return {
            "dense": card.ridge_flop_per_byte(),
            # Two of four weights are skipped from the generation on that also brought bfloat16.
            "sparse": card.ridge_flop_per_byte("sparse") if card.has_bf16 else None,
            "fp8": None if card.fp8_flop_per_s is None else card.ridge_flop_per_byte("fp8"),
        }

    @cached_property
    def intensity(self) -> dict[str, Any]:
        """FLOP per byte of a decode at batch 1 and of all sequences that fit and may run, and what bounds it.

        Where none fits, one is taken to.
        """
        here, length = self.deployment, self.length_tokens
        fitting = max(1, min(int(self.sequences.value), here.limits.max_num_seqs))
        ridge = here.ridge_flop_per_byte
        return {
            "fitting_batch": fitting,
            "weights_only": {
                "batch_1": decode_intensity(here, 1),
                "fitting": decode_intensity(here, fitting),
                "batch_at_ridge": batch_at(here, ridge),
                "batch_at_sparse_ridge": batch_at(here, 2 * ridge),
            },
            "with_kv": {
                "batch_1": decode_intensity(here, 1, length),
                "fitting": decode_intensity(here, fitting, length),
                "bound": intensity_bound(here, length),
            },
        }

    # -- showing it ------------------------------------------------------------------------------

    @property
    def warnings(self) -> tuple[str, ...]:
        """What limits the answer without making it wrong."""
        here, own = self.deployment, []
        longest, most = here.max_model_len or 0, here.limits.max_num_seqs
        if self.length_tokens > longest:
            own.append(f"{self.length_tokens:,} tokens exceed max_model_len, {longest:,}: vLLM would refuse them")
        if self.sequences.value > most:
            own.append(f"{self.sequences.value:,} sequences fit, but max_num_seqs lets {most:,} of them run at once")
        gpus, kv_heads = here.tensor_parallel_size, here.shape.kv_heads
        if here.shape.latent is not None and gpus > 1:
            own.append(f"each of the {gpus} GPUs keeps the whole KV cache: a latent is not divided")
        elif gpus > kv_heads:
            own.append(f"{gpus} GPUs share {kv_heads} KV heads: each head is kept {gpus // kv_heads} times")
        return (*here.warnings, *own)

    def metrics(self) -> dict[str, Any]:
        """The JSON object. What is estimated is {low, value, high}; a KV cache that was given is a plain number."""
        here = self.deployment
        counted = {
            name: getattr(self, name)
            for name in ("kv_gib", "num_gpu_blocks", "kv_tokens", "max_concurrency", "sequences")
        }
        return {
            "config": {**here.describe(), "length_tokens": self.length_tokens},
            "weights_gib": self.weights_gib,
            "activation_gib": asdict(self.activation_gib),
            "non_torch_gib": asdict(self.non_torch_gib),
            "graph_gib": asdict(self.graph_gib),
            **{name: term.value if self.is_given else asdict(term) for name, term in counted.items()},
            "usable_kv_tokens": here.kv_tokens,
            "kv_bytes_per_token": here.kv_bytes_per_token,
            "ridge_flop_per_byte": here.ridge_flop_per_byte,
            "ridges_flop_per_byte": self.ridges,
            "intensity_flop_per_byte": self.intensity,
            "by_label": [{**asdict(division), "sequences": division.sequences} for division in self.divisions],
            "warnings": list(self.warnings),
        }

    def __repr__(self) -> str:
        from simbatch.show.capacity import capacity_text

        return capacity_text(self)

    def _repr_html_(self) -> str:
        return f'<pre style="max-height: 80vh; overflow: auto; line-height: 1.2">{escape(repr(self))}</pre>'


def capacity(deployment: Deployment | None = None, *, length_tokens: int | None = None) -> Capacity:
    """What fits on *deployment* (by default the default one), for sequences of *length_tokens*.

    The length counts prompt and output and is `max_model_len` unless given. Raises UsageError for a
    length below 1.

    >>> [way.sequences for way in capacity(Deployment("llama-13b", gpu="h100")).divisions]
    [31, 32, 28]
    """
    here = Deployment() if deployment is None else deployment
    length = here.max_model_len if length_tokens is None else length_tokens
    if not isinstance(length, int) or isinstance(length, bool) or length < 1:
        raise UsageError(f"length_tokens is {length!r}. Give a whole number of tokens, at least 1.")
    return Capacity(here, length)


def _about(estimate_bytes: int, error_gib: float) -> Range:
    value = estimate_bytes / GIB
    return Range(max(0.0, value - error_gib), value, value + error_gib)


def _exactly(value: float) -> Range:
    return Range(value, value, value)
