"""Arithmetic against reading: how many operations a decode iteration does for each byte that it reads.

A GPU reaches its peak only from its ridge on, peak ÷ bandwidth. Weights are read once for all
sequences, so on weights alone intensity grows with the batch and reaches any ridge; every sequence
reads its own KV cache, so with the cache it stays below a bound that no batch passes.
"""

from __future__ import annotations

from simbatch.deployment import Deployment
from simbatch.timing import RooflineTiming


def decode_flop(deployment: Deployment, batch: int, length_tokens: int) -> float:
    """Operations of one GPU for one token of each of *batch* sequences that hold *length_tokens* each."""
    shape = deployment.shape
    per_token = 2 * (shape.active_params - shape.embedding_params + shape.vocab * shape.hidden)
    pairs = _cached_tokens_read(deployment, length_tokens)
    return batch * (per_token + pairs * shape.decode_flop_per_pair()) / deployment.tensor_parallel_size


def decode_bytes(deployment: Deployment, batch: int, length_tokens: int) -> float:
    """Bytes that one GPU reads for that: the weights that the batch needs, and each sequence's KV cache."""
    weights = RooflineTiming(deployment).layers_bytes(batch) + deployment.weights.output_layer
    cache = _cached_tokens_read(deployment, length_tokens) * deployment.kv_bytes_per_token_per_gpu
    return weights + batch * cache


def decode_intensity(deployment: Deployment, batch: int, length_tokens: int = 0) -> float:
    """Operations for each byte read by a decode of *batch* sequences; with no length, on weights alone."""
    return decode_flop(deployment, batch, length_tokens) / decode_bytes(deployment, batch, length_tokens)


def intensity_bound(deployment: Deployment, length_tokens: int) -> float:
    """What `decode_intensity` comes near as the batch grows without end: weights no longer count."""
    cache = _cached_tokens_read(deployment, length_tokens) * deployment.kv_bytes_per_token_per_gpu
    return decode_flop(deployment, 1, length_tokens) / cache


def batch_at(deployment: Deployment, flop_per_byte: float) -> int:
    """The smallest batch that reaches *flop_per_byte* on weights alone."""
    low, high = 0, 1
    while decode_intensity(deployment, high) < flop_per_byte:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if decode_intensity(deployment, middle) >= flop_per_byte else (middle, high)
    return high


def _cached_tokens_read(deployment: Deployment, length_tokens: int) -> float:
    """Tokens of cache that a sequence's next token meets, averaged over layers: some look back a window only."""
    shape = deployment.shape
    local = shape.local_layers / shape.kv_layers
    return (1 - local) * length_tokens + local * min(length_tokens, shape.window_tokens)
