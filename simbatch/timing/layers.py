"""The layers of one model as a profiler timed them: parts for that model on that card, prompts beside decodes included.

Where attention of prompts and decodes was timed in one kernel, what decodes add to it is looked up by
the tokens of the prompts too: it is not what they take alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from simbatch.deployment import Deployment
from simbatch.timing.kernels import Grid

IN_BLOCK = ("qkv_proj", "o_proj", "gate_up_proj", "down_proj", "act_fn", "rotary_emb", "qk_norm")
"""Once in a layer; the norm before attention and the one after it are both "layernorm"."""
OUTSIDE = ("embedding", "final_layernorm")
NORMS = ("layernorm", "final_layernorm")
NOTHING = 1.0
"""Added to cached tokens and chunks, so that none of them has a logarithm."""


@dataclass(frozen=True)
class LayerTimes:
    """What was timed, µs of one layer on one GPU."""

    dense: dict[str, Grid]
    """By layer: (tokens)."""
    head: dict[str, Grid]
    """lm_head and sampler: (sequences)."""
    decodes: Grid
    """(sequences, context)."""
    mixed: Grid | None
    """What decodes add beside prompts: (tokens of the prompts, sequences, context)."""
    prompts: Grid
    """(tokens, 1 + cached tokens)."""
    ragged: float = 1.0
    """By how much unequal contexts are slower than equal ones with the same sum."""


class LayerParts:
    """Parts of the deployment that was profiled. *link_bytes_per_s* is what an exchange between GPUs reaches."""

    def __init__(
        self,
        times: LayerTimes,
        deployment: Deployment,
        *,
        link_bytes_per_s: float | None = None,
        all_reduce_us: float = 5.0,
    ) -> None:
        self.times = times
        shape, gpus = deployment.shape, deployment.tensor_parallel_size
        self._layers = shape.layers
        self._reduce_us = self._reduce_token_us = 0.0
        if gpus > 1:
            link = link_bytes_per_s or 0.5 * (deployment.card.link_bytes_per_s or 1e9)
            self._reduce_us = 2 * shape.layers * all_reduce_us
            moved_bytes = 2 * (gpus - 1) / gpus * shape.hidden * 2
            self._reduce_token_us = 2 * shape.layers * moved_bytes / link * 1e6

    def tokens_us(self, tokens: int) -> float:
        dense = self.times.dense
        block = sum(dense[name].at(tokens) for name in IN_BLOCK if name in dense)
        block += 2 * dense["layernorm"].at(tokens) if "layernorm" in dense else 0.0
        outside = sum(dense[name].at(tokens) for name in OUTSIDE if name in dense)
        return self._layers * block + outside + self._reduce_us + self._reduce_token_us * tokens

    def sequences_us(self, sequences: int) -> float:
        return sum(grid.at(sequences) for grid in self.times.head.values())

    def decodes_us(self, sequences: int, context: float) -> float:
        return self._layers * self.times.ragged * self.times.decodes.at(sequences, max(context, 1.0))

    def mixed_us(self, prompt_tokens: int, sequences: int, context: float) -> float:
        if self.times.mixed is None:
            return self.decodes_us(sequences, context)
        return self._layers * self.times.ragged * self.times.mixed.at(prompt_tokens, sequences, max(context, 1.0))

    def prompts_us(self, prompts: int, tokens: float, past: float) -> float:
        """Several prompts share one launch: each after the first costs what it takes beyond the smallest."""
        grid = self.times.prompts
        one, least = grid.at(max(tokens, 1.0), past + NOTHING), grid.at(1.0, NOTHING)
        return self._layers * (one + (prompts - 1) * max(one - least, 0.0))
