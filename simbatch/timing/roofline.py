"""The roofline: each part of an iteration takes as long as its reading or its arithmetic, whichever is longer.

Parts run one after the other: the layers (weights once, arithmetic for each token), the output layer
(arithmetic for each sequence), attention (KV read for each token of context, arithmetic for each
query-key pair), the exchange between GPUs, and a fixed overhead. It is an estimate with published
averages for efficiencies, not a measurement: decodes of 16 to 112 sequences by models of 7B to 70B on
one to four H100 come out between 3 % high and 14 % low. Context is known as a sum over sequences; see
`_Line` for what that means for layers with a window.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from simbatch.deployment import Deployment
from simbatch.errors import UsageError
from simbatch.timing.base import FOREVER, Iteration
from simbatch.units import PS_PER_S, PS_PER_US

BANDWIDTH_EFFICIENCY = 0.74
KV_BANDWIDTH_EFFICIENCY = 0.90
"""Both from the published line of Llama-3.1-8B in bfloat16 on one H100, one sequence:
6.44 ms + 4.37e-5 ms for each token of context. 16.06 GB of weights in 6.44 ms is 74 % of 3.35 TB/s,
131,072 bytes in 4.37e-5 ms are 90 %."""
OVERHEAD_US = 385.0
"""What that line leaves: of the 16.06 GB the token table, 1.05 GB, is looked up and not read, so reading
the rest at 74 % takes 6.055 ms of the 6.44."""
COMPUTE_EFFICIENCY = 0.70
ATTENTION_EFFICIENCY = 0.50
"""Matrix products of 512 to 8,192 tokens reach 72 to 89 % of an H100's peak and prefill attention of 2,000 to
8,000 tokens 40 to 60 % (kernel timings); the small kernels between them are taken off the former."""
LINK_EFFICIENCY = 0.55
ALL_REDUCE_US = 5.0
"""From timings of vLLM's all-reduce on two, four and eight H100: 4.2 to 5.5 µs for small messages, 46 to 71 % of the
link for large ones."""


@dataclass(frozen=True)
class _Line:
    """Attention of decoding sequences in ps for a token of context, rounded once.

    *local_ps* belongs to layers that read the last *window* tokens only. Of the context only
    the sum C over N sequences is known, so these layers read min(C, N * window) tokens: exact while
    all sequences are shorter than the window or all longer, never above C, too much in between.
    """

    full_ps: int
    local_ps: int
    window_tokens: int

    def at(self, sequences: int, context: int) -> tuple[int, int, int]:
        """(ps now, ps more each iteration, iterations for which that holds)."""
        both = self.full_ps + self.local_ps
        edge = sequences * self.window_tokens
        if not self.local_ps or not sequences:
            return both * context, both * sequences, FOREVER
        if context <= edge:
            return both * context, both * sequences, (edge - context) // sequences + 1
        return self.full_ps * context + self.local_ps * edge, self.full_ps * sequences, FOREVER


class RooflineTiming:
    """Iteration times of a `Deployment`, from what has to be read and computed.

    *overhead_us* is added to every iteration. Efficiencies are shares of the card's peak that
    are reached: *bandwidth_efficiency* by weights, *kv_bandwidth_efficiency* by the KV cache,
    *compute_efficiency* by matrix products, *attention_efficiency* by attention, *link_efficiency* by the
    exchange between GPUs, of which each takes *all_reduce_us* at least. A mixture of experts reads the
    experts that T tokens are expected to touch if they choose evenly.

    Raises UsageError for an efficiency outside (0, 1] and for a negative time.
    """

    def __init__(
        self,
        deployment: Deployment,
        *,
        overhead_us: float = OVERHEAD_US,
        bandwidth_efficiency: float = BANDWIDTH_EFFICIENCY,
        kv_bandwidth_efficiency: float = KV_BANDWIDTH_EFFICIENCY,
        compute_efficiency: float = COMPUTE_EFFICIENCY,
        attention_efficiency: float = ATTENTION_EFFICIENCY,
        link_efficiency: float = LINK_EFFICIENCY,
        all_reduce_us: float = ALL_REDUCE_US,
    ) -> None:
        self.given = {
            "overhead_us": overhead_us,
            "bandwidth_efficiency": bandwidth_efficiency,
            "kv_bandwidth_efficiency": kv_bandwidth_efficiency,
            "compute_efficiency": compute_efficiency,
            "attention_efficiency": attention_efficiency,
            "link_efficiency": link_efficiency,
            "all_reduce_us": all_reduce_us,
        }
        for name, value in self.given.items():
            if name.endswith("_us") and not 0 <= value < math.inf:
                raise UsageError(f"roofline timing: {name} is {value}. Give microseconds, 0 or more.")
            if name.endswith("efficiency") and not 0 < value <= 1:
                raise UsageError(f"roofline timing: {name} is {value}, but it is a share of a peak. Give up to 1.")
        self.deployment = deployment
        shape, card, gpus = deployment.shape, deployment.card, deployment.tensor_parallel_size
        self._shape = shape
        self._weights = deployment.weights
        read_ps = PS_PER_S / (card.bandwidth_bytes_per_s * bandwidth_efficiency)
        kv_read_ps = PS_PER_S / (card.bandwidth_bytes_per_s * kv_bandwidth_efficiency)
        flop_ps = PS_PER_S / (deployment.peak_flop_per_s * compute_efficiency)
        head_flop_ps = PS_PER_S / (card.bf16_flop_per_s * compute_efficiency)
        # Attention runs in 16 bit whatever the weights are stored in.
        pair_flop_ps = PS_PER_S / (card.bf16_flop_per_s * attention_efficiency) / gpus

        layer_params = shape.active_params - shape.embedding_params
        self._read_ps = read_ps
        self._token_ps = 2 * layer_params / gpus * flop_ps
        self._output_read_ps = round(self._weights.output_layer * read_ps)
        self._output_sequence_ps = round(2 * shape.vocab * shape.hidden / gpus * head_flop_ps)

        local_share = shape.local_layers / shape.kv_layers
        self._kv_ps = deployment.kv_bytes_per_token_per_gpu * kv_read_ps
        self._pair_ps = shape.prefill_flop_per_pair() * pair_flop_ps
        decode_ps = max(self._kv_ps, shape.decode_flop_per_pair() * pair_flop_ps)
        local_ps = round(decode_ps * local_share)
        self._decode = _Line(round(decode_ps * (1 - local_share)), local_ps, shape.window_tokens)
        self._local_share = local_share

        self._overhead_ps = round(overhead_us * PS_PER_US)
        self._reduce_ps = self._reduce_token_ps = 0
        if gpus > 1 and card.link_bytes_per_s:
            token_bytes = 2 * (gpus - 1) / gpus * shape.hidden * 2
            link_ps = PS_PER_S / (card.link_bytes_per_s * link_efficiency)
            self._reduce_ps = round(2 * shape.layers * all_reduce_us * PS_PER_US)
            self._reduce_token_ps = round(2 * shape.layers * token_bytes * link_ps)
        self._layers_ps: dict[int, int] = {}

    def progression(self, iteration: Iteration) -> tuple[int, int, int]:
        decoding = iteration.sequences - iteration.prefill_sequences
        context = iteration.context_tokens - iteration.prefill_context_tokens
        attention_ps, increment, holds = self._decode.at(decoding, context)
        first = (
            self._overhead_ps
            + self.layers_ps(iteration.tokens)
            + max(self._output_read_ps, self._output_sequence_ps * iteration.sequences)
            + self._reduce_ps
            + self._reduce_token_ps * iteration.tokens
            + attention_ps
        )
        if iteration.prefill_sequences:
            return max(1, first + self._prefill_attention_ps(iteration)), 0, 1
        return max(1, first), increment, holds

    def layers_ps(self, tokens: int) -> int:
        """All layers without attention for *tokens* scheduled tokens, on one GPU."""
        known = self._layers_ps.get(tokens)
        if known is None:
            arithmetic_ps = tokens * self._token_ps
            known = self._layers_ps[tokens] = round(max(self.layers_bytes(tokens) * self._read_ps, arithmetic_ps))
        return known

    def layers_bytes(self, tokens: int) -> float:
        """Weights that one GPU reads for *tokens*, output layer left out."""
        experts = self._shape.experts
        if not experts:
            return self._weights.rest
        missed = (1 - self._shape.experts_per_token / experts) ** tokens
        return self._weights.rest + self._weights.experts * (1 - missed)

    def _prefill_attention_ps(self, iteration: Iteration) -> int:
        context, pairs = iteration.prefill_context_tokens, iteration.prefill_pairs
        window = self._shape.window_tokens
        full = max(context * self._kv_ps, pairs * self._pair_ps)
        if not self._local_share:
            return round(full)
        # A query of a windowed layer meets at most `window` keys, and those of a chunk share most of them.
        near = min(context, iteration.prefill_sequences * window + iteration.prefill_tokens)
        local = max(near * self._kv_ps, min(pairs, iteration.prefill_tokens * window) * self._pair_ps)
        return round(full * (1 - self._local_share) + local * self._local_share)

    def describe(self) -> dict[str, Any]:
        return {"kind": "estimated", "name": "roofline", **self.given}
