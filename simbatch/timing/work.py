"""What iterations have to read, compute and exchange, in seconds at the peak of one GPU.

This is where a model and a card enter a timing: everything that follows (`simbatch.timing.formula`,
fits) deals in seconds at peak, shares of a peak that are reached, and times that no peak explains.
So coefficients measured with one model on one card say something about another.

Scalars of one `Deployment` are in `Peaks`; `loads` gives the same for many iterations at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from simbatch.deployment import Deployment

Floats: TypeAlias = NDArray[np.float64]

FEATURES = (
    "tokens",
    "sequences",
    "prefill_tokens",
    "prefill_sequences",
    "context_tokens",
    "prefill_context_tokens",
    "prefill_pairs",
    "waiting",
)
"""What a timing is told of an iteration, by the names of `simbatch.timing.Iteration`."""


@dataclass(frozen=True)
class Peaks:
    """One GPU's share of a model, in seconds at peak. Attention counts all layers."""

    layers: int
    rest_read_s: float
    """Weights of all layers that every iteration reads."""
    experts_read_s: float
    """All routed experts."""
    expert_missed: float
    """Chance that one token leaves an expert alone; 1 without experts."""
    token_math_s: float
    head_read_s: float
    """The output layer."""
    sequence_math_s: float
    """The output layer, for one sequence that gets a token."""
    kv_token_s: float
    """KV cache of one token."""
    kv_heads: int
    """KV heads on this GPU."""
    decode_pair_s: float
    prefill_pair_s: float
    """Arithmetic of one query against one key."""
    local_share: float
    """Share of the layers that attend to a window only."""
    window_tokens: int
    reduces: int
    """Exchanges between GPUs in one iteration."""
    reduce_token_s: float

    def layers_read_s(self, tokens: float) -> float:
        """Weights read for *tokens*, output layer left out."""
        if not self.experts_read_s:
            return self.rest_read_s
        missed: float = self.expert_missed**tokens
        return self.rest_read_s + self.experts_read_s * (1 - missed)


def peaks(deployment: Deployment) -> Peaks:
    """What one GPU of *deployment* has to do, at its peaks."""
    shape, card, gpus = deployment.shape, deployment.card, deployment.tensor_parallel_size
    bandwidth, weights = card.bandwidth_bytes_per_s, deployment.weights
    reduces, reduce_token_s = 0, 0.0
    if gpus > 1 and card.link_bytes_per_s:
        reduces = 2 * shape.layers
        reduce_token_s = reduces * 2 * (gpus - 1) / gpus * shape.hidden * 2 / card.link_bytes_per_s
    # Attention and the output layer run in 16 bit whatever the weights are stored in.
    return Peaks(
        layers=shape.layers,
        rest_read_s=weights.rest / bandwidth,
        experts_read_s=weights.experts / bandwidth,
        expert_missed=1 - shape.experts_per_token / shape.experts if shape.experts else 1.0,
        token_math_s=2 * (shape.active_params - shape.embedding_params) / gpus / deployment.peak_flop_per_s,
        head_read_s=weights.output_layer / bandwidth,
        sequence_math_s=2 * shape.vocab * shape.hidden / gpus / card.bf16_flop_per_s,
        kv_token_s=deployment.kv_bytes_per_token_per_gpu / bandwidth,
        kv_heads=1 if shape.latent else -(-shape.kv_heads // gpus),
        decode_pair_s=shape.decode_flop_per_pair() / gpus / card.bf16_flop_per_s,
        prefill_pair_s=shape.prefill_flop_per_pair() / gpus / card.bf16_flop_per_s,
        local_share=shape.local_layers / shape.kv_layers,
        window_tokens=shape.window_tokens,
        reduces=reduces,
        reduce_token_s=reduce_token_s,
    )


@dataclass(frozen=True)
class Loads:
    """What many iterations have to do: one entry each. Counts, and seconds at peak."""

    tokens: Floats
    sequences: Floats
    prompts: Floats
    """Sequences with more than one token to compute."""
    waiting: Floats
    mixed: Floats
    """1 where decodes and prompts share an iteration."""
    layers: Floats
    read_s: Floats
    math_s: Floats
    head_read_s: Floats
    head_math_s: Floats
    kv_s: Floats
    """KV cache read by decoding sequences: the longer of reading and arithmetic, at peak."""
    kv_sequence_s: Floats
    """The same for one token of context for each of them."""
    kv_heads: Floats
    prefill_kv_s: Floats
    pairs_s: Floats
    reduces: Floats
    reduce_s: Floats

    def __len__(self) -> int:
        return len(self.tokens)

    def take(self, rows: NDArray[np.intp]) -> Loads:
        """Some of them."""
        return Loads(**{name: column[rows] for name, column in vars(self).items()})


def loads(deployment: Deployment, rows: Mapping[str, Floats]) -> Loads:
    """Loads of iterations given by their `FEATURES`, one array each."""
    p = peaks(deployment)
    tokens, sequences, prompts = rows["tokens"], rows["sequences"], rows["prefill_sequences"]
    decoding = sequences - prompts
    context = rows["context_tokens"] - rows["prefill_context_tokens"]
    kv_s = max(p.kv_token_s, p.decode_pair_s)
    near = np.minimum(context, decoding * p.window_tokens)
    prefill_context = rows["prefill_context_tokens"]
    prefill_near = np.minimum(prefill_context, prompts * p.window_tokens + rows["prefill_tokens"])
    pairs = rows["prefill_pairs"]
    near_pairs = np.minimum(pairs, rows["prefill_tokens"] * p.window_tokens)
    ones = np.ones(len(tokens))
    local, full = p.local_share, 1 - p.local_share
    read_s = p.rest_read_s * ones
    if p.experts_read_s:
        read_s = read_s + p.experts_read_s * (1 - p.expert_missed**tokens)
    return Loads(
        tokens=tokens,
        sequences=sequences,
        prompts=prompts,
        waiting=rows["waiting"],
        mixed=((prompts > 0) & (decoding > 0)).astype(np.float64),
        layers=p.layers * ones,
        read_s=read_s,
        math_s=p.token_math_s * tokens,
        head_read_s=p.head_read_s * ones,
        head_math_s=p.sequence_math_s * sequences,
        kv_s=kv_s * (full * context + local * near),
        kv_sequence_s=kv_s * decoding,
        kv_heads=p.kv_heads * ones,
        prefill_kv_s=p.kv_token_s * (full * prefill_context + local * prefill_near),
        pairs_s=p.prefill_pair_s * (full * pairs + local * near_pairs),
        reduces=p.reduces * ones,
        reduce_s=p.reduce_token_s * tokens,
    )
