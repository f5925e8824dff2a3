"""What to say when a deployment does not fit: by how much, and what would.

Too large is an error where the KV cache was to be derived, and a warning where the user said how
large it is. A longest request that exceeds the KV cache is a warning: most requests are shorter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simbatch.deployment.gpu import GIB
from simbatch.deployment.memory_budget import memory_budget
from simbatch.deployment.weights import dtype_bytes, weight_bytes
from simbatch.errors import UsageError

if TYPE_CHECKING:
    from simbatch.deployment.deployment import Deployment

UNKNOWN_CONTEXT_TOKENS = 8192


def refuse_what_does_not_fit(deployment: Deployment, memory_given: bool) -> list[str]:
    """Raise UsageError unless weights, reserve and two blocks fit; a list of one warning if *memory_given*."""
    memory = deployment.memory
    missing_bytes = 2 * deployment.block_size * deployment.kv_bytes_per_token_per_gpu - memory.kv_cache_bytes
    if missing_bytes <= 0:
        return []
    what = (
        f"{deployment.shape.name} needs {memory.weights_bytes / GIB:.1f} GiB of weights and "
        f"{memory.reserve_bytes / GIB:.1f} GiB besides on each GPU, but {deployment.card.name} gives "
        f"{memory.budget_bytes / GIB:.1f} GiB at gpu_memory_utilization {deployment.gpu_memory_utilization}: "
        f"{missing_bytes / GIB:.1f} GiB too much"
    )
    if memory_given:
        return [f"{what}; the KV cache is taken as given"]
    raise UsageError(f"{what}. {_remedy(deployment)}")


def _remedy(deployment: Deployment) -> str:
    for gpus in (2, 4, 8, 16, 32):
        if gpus > deployment.tensor_parallel_size and deployment.shape.splits_over(gpus) and _fits(deployment, gpus):
            return f"tensor_parallel_size {gpus} would fit."
    return "Use more or larger GPUs, or smaller weights such as quantization fp8 or int4."


def _fits(deployment: Deployment, gpus: int) -> bool:
    shape, card = deployment.shape, deployment.card
    if card.link_bytes_per_s is None:
        return False
    weights = weight_bytes(shape, deployment.dtype, deployment.weight_format, gpus)
    memory = memory_budget(
        shape,
        total_bytes=card.memory_bytes,
        gpu_memory_utilization=deployment.gpu_memory_utilization,
        weights_bytes=round(weights.total),
        element_bytes=dtype_bytes(deployment.dtype),
        tensor_parallel_size=gpus,
        max_num_batched_tokens=deployment.limits.max_num_batched_tokens,
        max_num_seqs=deployment.limits.max_num_seqs,
    )
    token_bytes = shape.kv_elements_per_token(gpus) * deployment.kv_element_bytes
    return memory.kv_cache_bytes >= 2 * deployment.block_size * token_bytes


def usable_length(deployment: Deployment) -> tuple[int, list[str]]:
    """(*max_model_len* in force, warnings).

    A length that the user set is kept, even if no such request fits; a default is cut to what fits.
    """
    room = deployment.kv_tokens or 0
    length = deployment.max_model_len
    if length is not None:
        if length <= room:
            return length, []
        return length, [
            f"the longest request, max_model_len {length} tokens, does not fit into {room} KV tokens: vLLM would "
            "not start"
        ]
    warnings = []
    length = deployment.shape.max_model_len
    if length is None:
        length = UNKNOWN_CONTEXT_TOKENS
        warnings.append(
            f"the longest request of {deployment.shape.name} is not known: max_model_len is taken as {length} tokens"
        )
    if length > room:
        warnings.append(
            f"a request of {length} tokens does not fit into {room} KV tokens: max_model_len is taken as {room} "
            "(vLLM would not start without --max-model-len)"
        )
        length = room
    return length, warnings
