"""Where the memory of one GPU goes: weights, what a running engine needs besides, and the KV cache.

The engine takes a share of the card and gives the KV cache what weights and a reserve leave. The
reserve is measured by a real engine at start-up and estimated here, with constants read off
start-up logs of vLLM 0.19 on H100 (8,192 tokens and 1,024 sequences an iteration): activations come
out within 0.1 GiB for text models and 0.3 GiB for one that also reads images, graphs within 0.3 GiB
for dense models and 0.65 GiB for experts. What other releases did is in `simbatch.deployment.releases`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from simbatch.deployment.gpu import GIB
from simbatch.deployment.model import ModelShape
from simbatch.deployment.releases import NEWEST, MemoryRules, memory_rules

_NEWEST = memory_rules(NEWEST)


@dataclass(frozen=True)
class MemoryBudget:
    """One GPU's memory by use, in bytes. *kv_cache_bytes* is negative where the rest does not fit."""

    total_bytes: int
    budget_bytes: int
    """The share that the engine may use."""
    weights_bytes: int
    activation_bytes: int
    non_torch_bytes: int
    graph_bytes: int
    takes_graphs_off: bool = True
    """Are the graphs reckoned with when the KV cache is made, or do they take what the share leaves?"""

    @property
    def reserve_bytes(self) -> int:
        """What the KV cache is made smaller for, besides the weights."""
        return self.activation_bytes + self.non_torch_bytes + (self.graph_bytes if self.takes_graphs_off else 0)

    @property
    def kv_cache_bytes(self) -> int:
        return self.budget_bytes - self.weights_bytes - self.reserve_bytes


def memory_budget(
    shape: ModelShape,
    *,
    total_bytes: int,
    gpu_memory_utilization: float,
    weights_bytes: int,
    element_bytes: int,
    tensor_parallel_size: int,
    max_num_batched_tokens: int,
    max_num_seqs: int,
    rules: MemoryRules = _NEWEST,
) -> MemoryBudget:
    """The estimate for one GPU of *tensor_parallel_size*, by the *rules* of a release."""
    return MemoryBudget(
        total_bytes=total_bytes,
        budget_bytes=math.ceil(total_bytes * gpu_memory_utilization),
        weights_bytes=weights_bytes,
        activation_bytes=activation_bytes(
            shape, element_bytes, tensor_parallel_size, max_num_batched_tokens, max_num_seqs, rules
        ),
        non_torch_bytes=non_torch_bytes(tensor_parallel_size, rules),
        graph_bytes=graph_bytes(shape),
        takes_graphs_off=rules.takes_graphs_off,
    )


def activation_bytes(
    shape: ModelShape,
    element_bytes: int,
    tensor_parallel_size: int,
    max_num_batched_tokens: int,
    max_num_seqs: int,
    rules: MemoryRules = _NEWEST,
) -> int:
    """Peak beside the weights while the engine tries its largest iteration.

    The peak is either in a layer or, with a large vocabulary, in the sampler: logits as they come
    and three 32-bit arrays of their size. Routed experts keep a workspace through both, unless they
    are stored in mxfp4, whose kernels need none.
    """
    tokens = max_num_batched_tokens
    logits = min(max_num_seqs, tokens) * shape.vocab
    sampler = (
        logits * (rules.sampler_bytes_per_logit or element_bytes + 3 * 4) + 2 * tokens * shape.hidden * element_bytes
    )
    layer = (
        tokens
        * element_bytes
        * (3 * shape.intermediate // tensor_parallel_size + rules.layer_hidden_rows * shape.hidden)
    )
    routed_width = shape.hidden + 2 * shape.moe_intermediate // tensor_parallel_size
    workspace = tokens * shape.experts_per_token * routed_width * element_bytes
    if shape.quantization == "mxfp4":
        workspace = 0
    return max(sampler, layer) + workspace + round(0.05 * GIB)


def non_torch_bytes(tensor_parallel_size: int, rules: MemoryRules = _NEWEST) -> int:
    """CUDA context and, from two GPUs on, the buffers for their exchange."""
    several = rules.non_torch_of_several_gib + 0.05 * tensor_parallel_size
    return round((rules.non_torch_gib if tensor_parallel_size == 1 else several) * GIB)


def graph_bytes(shape: ModelShape) -> int:
    """Recorded CUDA graphs: a little for each layer, and more where experts are launched."""
    return round((0.2 + 0.021 * shape.layers + (0.5 if shape.experts else 0)) * GIB)
