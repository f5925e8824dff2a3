"""What fits on a deployment: from the arithmetic on the label of the box to what vLLM would get.

Two units are about: a label's GB is 10^9 bytes, what an engine prints is GiB, 2^30 bytes. Every
name here ends in the one it means. GiB and blocks are those of one GPU, as vLLM prints them. What a
real engine measures when it starts is estimated here and comes as a range; so does what depends
on it. `docs/capacity.md` works an example through.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from functools import cached_property
from html import escape
from typing import Any

from simbatch.answers.by_label import Division, divisions
from simbatch.answers.estimates import (
    ACTIVATION_ERROR_GIB,
    GRAPH_ERROR_GIB,
    GRAPH_ERROR_OF_EXPERTS_GIB,
    NON_TORCH_ERROR_GIB,
    Range,
    about,
    exactly,
)
from simbatch.answers.intensity import batch_at, decode_intensity, intensity_bound
from simbatch.checks import real, shown
from simbatch.deployment import Deployment
from simbatch.deployment.deployment import KV_SIZES
from simbatch.deployment.kv_layout import kv_layout
from simbatch.errors import UsageError

GIB = 2**30
MEASURED = ("weights_gib", "activation_gib", "non_torch_gib", "graph_gib")
"""Terms that an engine prints when it starts, and that may be given instead of estimated."""


class Capacity:
    """What fits on *deployment* for sequences of *length_tokens*. Shows itself as the formula with its terms."""

    def __init__(
        self, deployment: Deployment, length_tokens: int, measured: Mapping[str, float | None] | None = None
    ) -> None:
        self.deployment = deployment
        self.length_tokens = length_tokens
        self.measured = {name: value for name, value in (measured or {}).items() if value is not None}
        """Terms that an engine printed, GiB."""
        self.is_given = bool(KV_SIZES & deployment.given.keys())
        """Did the user say how large the KV cache is?"""
        self.layout = kv_layout(deployment.shape)

    # -- one GPU's memory, in GiB of 2^30 bytes --------------------------------------------------

    @property
    def weights_gib(self) -> float:
        return self.measured.get("weights_gib", self.deployment.memory.weights_bytes / GIB)

    @property
    def activation_gib(self) -> Range:
        return self._term("activation_gib", self.deployment.memory.activation_bytes, ACTIVATION_ERROR_GIB)

    @property
    def non_torch_gib(self) -> Range:
        return self._term("non_torch_gib", self.deployment.memory.non_torch_bytes, NON_TORCH_ERROR_GIB)

    @property
    def graph_gib(self) -> Range:
        error_gib = GRAPH_ERROR_OF_EXPERTS_GIB if self.deployment.shape.experts else GRAPH_ERROR_GIB
        return self._term("graph_gib", self.deployment.memory.graph_bytes, error_gib)

    def _term(self, name: str, estimate_bytes: int, error_gib: float) -> Range:
        return exactly(self.measured[name]) if name in self.measured else about(estimate_bytes, error_gib)

    @property
    def takes_graphs_off(self) -> bool:
        """Does this release make the KV cache smaller for CUDA graphs? Others let them take what the share leaves."""
        return self.deployment.memory.takes_graphs_off

    @property
    def kv_gib(self) -> Range:
        """What the other terms leave of the engine's share; where it was given, that."""
        here = self.deployment
        if self.is_given:
            size_bytes = here.kv_cache_memory_bytes
            return exactly((size_bytes or self.kv_tokens.value * here.kv_bytes_per_token_per_gpu) / GIB)
        terms = [self.activation_gib, self.non_torch_gib, *([self.graph_gib] if self.takes_graphs_off else [])]
        left = here.memory.budget_bytes / GIB - self.weights_gib
        return Range(
            max(0.0, left - sum(term.high for term in terms)),
            max(0.0, left - sum(term.value for term in terms)),
            left - sum(term.low for term in terms),
        )

    # -- tokens and sequences --------------------------------------------------------------------

    @property
    def block_bytes(self) -> int:
        """One KV block on one GPU: all layers, or those of one group where layers differ."""
        here, layout = self.deployment, self.layout
        every = here.block_size * here.kv_bytes_per_token_per_gpu
        return every * layout.layers_per_group // here.shape.kv_layers if layout.is_hybrid else every

    @property
    def num_gpu_blocks(self) -> Range:
        """KV blocks as vLLM counts them: one is the null block, which holds nothing."""
        here = self.deployment
        if self.is_given and not (self.layout.is_hybrid and here.kv_cache_memory_bytes):
            return exactly(here.num_gpu_blocks or 0)
        return self.kv_gib.through(lambda gib: math.floor(gib * GIB / self.block_bytes + 1e-6))

    @property
    def kv_tokens(self) -> Range:
        """What vLLM prints as the size of its KV cache: all blocks. A number of tokens that was given is kept.

        Where layers differ, every token takes a block of each group.
        """
        here = self.deployment
        if "kv_tokens" in here.given:
            return exactly(here.kv_tokens or 0)
        groups = 1 if self._counts_whole_blocks else self.layout.groups
        return self.num_gpu_blocks.through(lambda blocks: int(blocks) // groups * here.block_size)

    @property
    def _counts_whole_blocks(self) -> bool:
        """Are the blocks those of the simulator, which holds all layers in each? So are those given as a number."""
        return self.is_given and not self.deployment.kv_cache_memory_bytes

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
        """Blocks that one sequence of *tokens* holds at most; where layers differ, those of all groups."""
        here = self.deployment
        if self._counts_whole_blocks:
            return -(-tokens // here.block_size)
        return self.layout.pages_of(tokens, here.block_size, here.limits.max_num_batched_tokens)

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
        if self.layout.is_hybrid:
            own.append(
                f"{here.shape.local_layers} of {here.shape.kv_layers} layers look back {self.layout.window_tokens:,} "
                f"tokens only: blocks and concurrency are those of vLLM's {self.layout.groups} groups of layers"
            )
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


def capacity(
    deployment: Deployment | None = None,
    *,
    length_tokens: int | None = None,
    weights_gib: float | None = None,
    activation_gib: float | None = None,
    non_torch_gib: float | None = None,
    graph_gib: float | None = None,
) -> Capacity:
    """What fits on *deployment* (by default the default one), for sequences of *length_tokens*.

    The length counts prompt and output and is `max_model_len` unless given. The GiB are those of one
    GPU as an engine printed them; what is not given is estimated. Raises UsageError for a length below 1,
    and for GiB below 0.

    >>> [way.sequences for way in capacity(Deployment("llama-13b", gpu="h100")).divisions]
    [31, 32, 28]
    """
    here = Deployment() if deployment is None else deployment
    if not isinstance(here, Deployment):
        raise UsageError(f"the deployment is {shown(here)}. Give a Deployment, such as Deployment('llama-3.1-8b').")
    length = here.max_model_len if length_tokens is None else length_tokens
    if not isinstance(length, int) or isinstance(length, bool) or length < 1:
        raise UsageError(f"length_tokens is {length!r}. Give a whole number of tokens, at least 1.")
    measured = {
        name: None if value is None else real(name, value, "GiB")
        for name, value in zip(MEASURED, (weights_gib, activation_gib, non_torch_gib, graph_gib), strict=True)
    }
    for name, value in measured.items():
        if value is not None and not 0 <= value < math.inf:
            raise UsageError(f"{name} is {value:g}. Give what the engine printed, GiB of one GPU, 0 or more.")
    return Capacity(here, length, measured)
