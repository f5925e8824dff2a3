"""Engine options, spelt as the flags of `vllm serve`: what may be set beside trace and deployment.

`simbatch.setup` decides what they come to for one run.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from simbatch.checks import MOST, flag, real, text, whole
from simbatch.deployment import Deployment
from simbatch.deployment.arguments import MOST_BLOCK_TOKENS
from simbatch.deployment.defaults import BLOCK_SIZE
from simbatch.errors import UsageError, unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What may be set beside the trace. None: as the system has it, else as vLLM has it."""

    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_active_seqs: int | None = None
    block_size: int | None = None
    kv_tokens: int | None = None
    """Usable KV memory in tokens, exactly."""
    num_gpu_blocks: int | None = None
    """KV memory in blocks as vLLM counts them: in V1 one of them is the null block."""
    gpu_memory_utilization: float | None = None
    vllm_version: str | None = None
    """Whose rules the system vllm follows: see `simbatch.versions`."""
    enable_chunked_prefill: bool | None = None
    scheduler_reserve_full_isl: bool | None = None
    watermark: float | None = None
    """Share of the KV memory that admission leaves free."""
    scheduling_policy: str | None = None
    """fcfs or priority."""
    long_prefill_token_threshold: int | None = None
    long_prefill_token_threshold_adaptive: bool | None = None
    prefill_schedule_interval: int | None = None
    async_scheduling: bool | None = None
    """Plan the next batch while one still runs."""
    enable_prefix_caching: bool | None = None
    """Find computed blocks again; only where the trace says which prompts are alike, or after a preemption."""
    reserve: str | None = None
    """Contiguous memory: max, pow2, oracle or limit."""
    placement: str | None = None
    """Contiguous memory: buddy, first-fit or best-fit."""
    batch_size: int | None = None
    """Static batches; None: as many as memory holds."""
    preemption_mode: str | None = None
    """vLLM V0: recompute or swap."""
    swap_space: float | None = None
    """vLLM V0: CPU memory for swapped blocks in GiB for each GPU."""


_COUNTS = (
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "max_num_active_seqs",
    "block_size",
    "kv_tokens",
    "num_gpu_blocks",
    "batch_size",
    "prefill_schedule_interval",
)
_FLAGS = (
    "enable_chunked_prefill",
    "scheduler_reserve_full_isl",
    "long_prefill_token_threshold_adaptive",
    "async_scheduling",
    "enable_prefix_caching",
)
_NAMES = ("vllm_version", "scheduling_policy", "reserve", "placement", "preemption_mode")
_MOST_SWAP_GIB = 2**20
DEPLOYMENT_OPTIONS = frozenset(field.name for field in fields(Deployment) if field.init) - {
    "vllm_version",
    "kv_cache_memory_bytes",
}
"""What a deployment and a run both take. A run's release is that of its rules; a deployment's, of its memory."""


def check_options(given: dict[str, Any]) -> None:
    """Raises UsageError for a name that is no option, and for a value of another kind or out of range."""
    own = {field.name for field in fields(Options)}
    for name, value in given.items():
        if name not in own:
            hint = "It is an argument of Deployment." if name in DEPLOYMENT_OPTIONS else ""
            raise unknown("option", name, own, hint)
        if value is None:
            continue
        if name in _COUNTS:
            whole(name, value, most=MOST_BLOCK_TOKENS if name == "block_size" else MOST)
        elif name in _FLAGS:
            flag(name, value)
        elif name in _NAMES:
            text(name, value)
    if given.get("long_prefill_token_threshold") is not None:
        whole("long_prefill_token_threshold", given["long_prefill_token_threshold"], least=0)
    if given.get("gpu_memory_utilization") is not None:
        real("gpu_memory_utilization", given["gpu_memory_utilization"])
    if given.get("watermark") is not None and not 0 <= real("watermark", given["watermark"]) < 1:
        raise UsageError(f"watermark is {given['watermark']!r}. Give a share of the KV memory, from 0 up to below 1.")
    if given.get("swap_space") is not None and not 0 <= real("swap_space", given["swap_space"]) < _MOST_SWAP_GIB:
        raise UsageError(f"swap_space is {given['swap_space']!r}. Give GiB for each GPU, 0 or more.")
    if given.get("num_gpu_blocks") is not None:
        whole("num_gpu_blocks * block_size", given["num_gpu_blocks"] * (given.get("block_size") or BLOCK_SIZE))
