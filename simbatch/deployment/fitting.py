"""What to say when a deployment does not fit: by how much, and what would.

Too large is an error where the KV cache was to be derived, and a warning where the user said how
large it is. A longest request that exceeds the KV cache is a warning: most requests are shorter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simbatch.deployment.defaults import BLOCK_SIZE, default_limits
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
        f"{memory.budget_bytes / GIB:.1f} GiB at gpu_memory_utilization {deployment.engine_share:g}: "
        f"{missing_bytes / GIB:.1f} GiB too much"
    )
    if memory_given:
        return [f"{what}; the KV cache is taken as given"]
    raise UsageError(f"{what}. {_remedy(deployment)}")


def _remedy(deployment: Deployment) -> str:
    """What would fit: first what was asked for beyond vLLM's defaults, then more GPUs."""
    usual = default_limits(deployment.card, deployment.rules.small_defaults)
    defaults = {
        "max_num_batched_tokens": usual.max_num_batched_tokens,
        "block_size": BLOCK_SIZE,
        "max_num_seqs": usual.max_num_seqs,
    }
    beyond = {name: most for name, most in defaults.items() if deployment.given.get(name, 0) > most}
    for lower in (*({name: most} for name, most in beyond.items()), beyond):
        if lower and _fits(deployment, deployment.tensor_parallel_size, **lower):
            return f"Lower {' and '.join(lower)}: {' and '.join(map(str, lower.values()))} would fit."
    for gpus in (2, 4, 8, 16, 32):
        if gpus > deployment.tensor_parallel_size and deployment.shape.splits_over(gpus) and _fits(deployment, gpus):
            return f"tensor_parallel_size {gpus} would fit."
    return "Use more or larger GPUs, or smaller weights such as quantization fp8 or int4."


def _fits(
    deployment: Deployment,
    gpus: int,
    *,
    max_num_batched_tokens: int | None = None,
    max_num_seqs: int | None = None,
    block_size: int | None = None,
) -> bool:
    """Would it fit on so many GPUs, with other limits where they are given?"""
    shape, card = deployment.shape, deployment.card
    if card.link_bytes_per_s is None and gpus > 1:
        return False
    tokens = max_num_batched_tokens or deployment.limits.max_num_batched_tokens
    sequences = max_num_seqs or deployment.limits.max_num_seqs
    if tokens < sequences:
        return False
    weights = weight_bytes(shape, deployment.dtype, deployment.weight_format, gpus)
    memory = memory_budget(
        shape,
        total_bytes=card.memory_bytes,
        gpu_memory_utilization=deployment.engine_share,
        weights_bytes=round(weights.total),
        element_bytes=dtype_bytes(deployment.dtype),
        tensor_parallel_size=gpus,
        max_num_batched_tokens=tokens,
        max_num_seqs=sequences,
        rules=deployment.rules,
    )
    token_bytes = shape.kv_elements_per_token(gpus) * deployment.kv_element_bytes
    return memory.kv_cache_bytes >= 2 * (block_size or deployment.block_size) * token_bytes


def usable_length(deployment: Deployment) -> tuple[int, list[str]]:
    """(*max_model_len* in force, warnings).

    A length that the user set is kept, even if no such request fits; a default is cut to what fits.
    """
    room = deployment.kv_tokens or 0
    length = deployment.max_model_len
    warnings = []
    if length is not None:
        made_for = deployment.shape.max_model_len
        if made_for is not None and length > made_for:
            warnings.append(
                f"max_model_len {length} exceeds the {made_for} tokens that {deployment.shape.name} was made for: "
                "vLLM refuses that unless VLLM_ALLOW_LONG_MAX_MODEL_LEN=1"
            )
        if length > room:
            warnings.append(
                f"the longest request, max_model_len {length} tokens, does not fit into {room} KV tokens: vLLM would "
                "not start"
            )
        return length, warnings
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
