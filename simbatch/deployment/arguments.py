"""What the arguments of a deployment may be: kinds, ranges, and what contradicts each other."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from simbatch.checks import MOST, flag, real, shown, text, whole
from simbatch.deployment.gpu import GPU
from simbatch.deployment.model import ModelShape
from simbatch.errors import UsageError

MOST_BLOCK_TOKENS = 2**20
_LEAST = {
    "tensor_parallel_size": 1,
    "block_size": 1,
    "max_model_len": 1,
    "max_num_batched_tokens": 1,
    "max_num_seqs": 1,
    "num_gpu_blocks": 2,
    "kv_tokens": 1,
    "kv_cache_memory_bytes": 1,
}
"""Smallest value of each whole number. Of the blocks one is the null block."""
_TEXTS = ("dtype", "kv_cache_dtype")


def checked_arguments(given: dict[str, Any]) -> dict[str, Any]:
    """*given* by name, numbers as Python's. Raises UsageError for what is of the wrong kind or out of range."""
    found = dict(given)
    if not isinstance(given["model"], str | Path | ModelShape):
        raise UsageError(f"model is {shown(given['model'])}. Give a name, a folder with a config.json or a ModelShape.")
    if not isinstance(given["gpu"], str | GPU):
        raise UsageError(f"gpu is {shown(given['gpu'])}. Give a name or a GPU.")
    for name in _TEXTS:
        text(name, given[name])
    if given["quantization"] is not None:
        text("quantization", given["quantization"])
    flag("enable_chunked_prefill", given["enable_chunked_prefill"])
    for name, least in _LEAST.items():
        if given[name] is not None:
            found[name] = whole(name, given[name], least, MOST_BLOCK_TOKENS if name == "block_size" else MOST)
    if given["gpu_memory_utilization"] is not None:
        found["gpu_memory_utilization"] = share = real("gpu_memory_utilization", given["gpu_memory_utilization"])
        if not 0 < share <= 1:
            raise UsageError(
                f"gpu_memory_utilization is {share}, but it is a share of the card's memory. "
                "Give a number above 0 and at most 1."
            )
    if given["vllm_version"] is not None:
        text("vllm_version", given["vllm_version"])
    if given["price_usd_per_hour"] is not None:
        found["price_usd_per_hour"] = price = real("price_usd_per_hour", given["price_usd_per_hour"], "dollars")
        if not 0 <= price < math.inf:
            raise UsageError(f"price_usd_per_hour is {price}. Give dollars per GPU and hour.")
    sizes = [name for name in ("num_gpu_blocks", "kv_tokens", "kv_cache_memory_bytes") if given[name] is not None]
    if len(sizes) > 1:
        raise UsageError(f"{' and '.join(sizes)} both say how large the KV cache is. Give one of them.")
    if given["num_gpu_blocks"] is not None:
        whole("num_gpu_blocks * block_size", found["num_gpu_blocks"] * found["block_size"])
    return found
