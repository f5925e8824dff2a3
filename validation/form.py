"""The time of an iteration as a formula whose coefficients mean something, so that it moves to other cards.

    t = overhead + layers · layer + [ (W / (η_w·BW))^p + (F_T / (η_f·F))^p ]^(1/p)
        + K·κ / (η_a·BW) + layers · row · B + pairs · 4·L·h / (η_p·F)

W weight bytes (layers and output layer), F_T operations of all products for T tokens, K context of the
decoding rows, κ KV bytes of a token, B decoding rows as computed (padded), pairs = Σ P·C + P(P+1)/2, h
heads times head size, BW and F the card's peaks. The smooth maximum has its exponent p because between 128 and
512 tokens neither side of the roof is reached. Times in seconds, efficiencies are shares of the peak.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simbatch.deployment import GPU
from validation.shape import Shape
from validation.work import Load

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Coefficients:
    """What is fitted. Defaults: what H100 kernel tables imply for a 13B."""

    overhead_us: float = 200.0
    """Of an iteration: embedding, sampling, launch of the graph."""
    layer_us: float = 25.0
    """Of a layer: small kernels and gaps."""
    weight_efficiency: float = 0.85
    """Share of the bandwidth that products reach while they wait for weights."""
    flop_efficiency: float = 0.80
    kv_efficiency: float = 0.90
    row_ns: float = 50.0
    """Of a decoding row in a layer."""
    pair_efficiency: float = 0.40
    smooth_power: float = 1.7

    def describe(self) -> dict[str, float]:
        return asdict(self)


@dataclass(frozen=True)
class Features:
    """What the formula is made of, one entry for each iteration; everything in seconds at the card's peaks."""

    weight_s: Floats
    flop_s: Floats
    kv_s: Floats
    rows: Floats
    pair_s: Floats
    layers: Floats
    tokens: Floats

    def and_then(self, other: Features) -> Features:
        """Both, one after the other: iterations of several shapes."""
        names = [field.name for field in fields(self)]
        return Features(**{name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in names})

    def seconds(self, c: Coefficients) -> Floats:
        """The formula."""
        roof = smooth_maximum(self.weight_s / c.weight_efficiency, self.flop_s / c.flop_efficiency, c.smooth_power)
        small = 1e-6 * (c.overhead_us + c.layer_us * self.layers + 1e-3 * c.row_ns * self.rows * self.layers)
        total: Floats = small + roof + self.kv_s / c.kv_efficiency + self.pair_s / c.pair_efficiency
        return total


def smooth_maximum(a: Floats, b: Floats, power: float) -> Floats:
    """(a^p + b^p)^(1/p), from the sum at p = 1 to the larger at infinity."""
    high = np.maximum(a, b)
    low = np.minimum(a, b)
    smooth: Floats = high * (1 + (low / high) ** power) ** (1 / power)
    return smooth


def features(loads: Sequence[Load], shape: Shape, card: GPU) -> Features:
    """Of iterations of *shape* on *card*."""

    def column(values: Any) -> Floats:
        return np.array(list(values), dtype=np.float64)

    tokens = column(c.bucket + c.prefill_tokens for c in loads)
    outputs = column(c.bucket + c.prefill_sequences for c in loads)
    flop = 2 * (shape.layers * shape.layer_params * tokens + shape.head_params * outputs)
    context = column(c.context_tokens for c in loads)
    pairs = column(c.pairs for c in loads)
    bandwidth, peak = card.bandwidth_bytes_per_s, card.bf16_flop_per_s
    ones = np.ones(len(loads))
    return Features(
        weight_s=shape.weight_bytes / bandwidth * ones,
        flop_s=flop / peak,
        kv_s=context * shape.kv_bytes_per_token / bandwidth,
        rows=column(c.bucket for c in loads),
        pair_s=4 * shape.layers * shape.heads * shape.head_dim * pairs / peak,
        layers=shape.layers * ones,
        tokens=tokens,
    )
