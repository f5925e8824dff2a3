"""Named bundles of a scheduler and a memory with their options; any part can be overridden."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from simbatch.checks import text
from simbatch.errors import unknown


@dataclass(frozen=True)
class System:
    """What `--system NAME` stands for."""

    name: str
    about: str
    scheduler: str
    memory: str
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options in which it differs from vLLM's defaults; see `simbatch.options`."""
    whole_prompts: bool = False
    """Does it compute whole prompts and know no token budget?"""
    null_block: bool = False
    """Does one block of the KV memory hold nothing (vLLM V1)?"""
    prompt_sets_budget: bool = False
    """Is the token budget by default what the longest prompt needs, and 2,048 at least (vLLM V0)?"""


_V0 = {"gpu_memory_utilization": 0.9, "max_num_seqs": 256, "watermark": 0.01}

SYSTEMS = {
    system.name: system
    for system in (
        System(
            "naive",
            "one request at a time, memory reserved for prompt + limit: a generate() loop",
            scheduler="naive",
            memory="contiguous",
            options={"reserve": "limit", "placement": "first-fit"},
            whole_prompts=True,
        ),
        System(
            "static",
            "request-level batches, padded, run until the last one ends; memory reserved to the maximum",
            scheduler="static",
            memory="contiguous",
            options={"reserve": "max", "placement": "first-fit"},
            whole_prompts=True,
        ),
        System(
            "orca-max",
            "iteration-level, first come first served; the maximum length reserved, buddy placement",
            scheduler="orca",
            memory="contiguous",
            options={"reserve": "max", "placement": "buddy"},
            whole_prompts=True,
        ),
        System(
            "orca-pow2",
            "orca-max with prompt + output rounded up to a power of two reserved",
            scheduler="orca",
            memory="contiguous",
            options={"reserve": "pow2", "placement": "buddy"},
            whole_prompts=True,
        ),
        System(
            "orca-oracle",
            "orca-max with the true length reserved, which no real server can know",
            scheduler="orca",
            memory="contiguous",
            options={"reserve": "oracle", "placement": "buddy"},
            whole_prompts=True,
        ),
        System(
            "vllm-v0",
            "vLLM of the PagedAttention paper: prompts first, decodes otherwise; blocks on demand",
            scheduler="vllm-v0",
            memory="paged",
            options=_V0,
            prompt_sets_budget=True,
        ),
        System(
            "sarathi",
            "stall-free chunked prefill: decodes first, then chunks within a budget of 512 tokens",
            scheduler="sarathi",
            memory="paged",
            options={**_V0, "max_num_batched_tokens": 512},
        ),
        System(
            "vllm",
            "vLLM of today (V1): one token budget, prompts in chunks, prefix cache, planned a batch ahead",
            scheduler="vllm",
            memory="paged",
            options={"enable_prefix_caching": True, "async_scheduling": True},
            null_block=True,
        ),
    )
}
DEFAULT_SYSTEM = "vllm"


def find_system(name: str) -> System:
    """Raises UsageError for an unknown *name*."""
    if text("the system", name) not in SYSTEMS:
        raise unknown("system", name, SYSTEMS)
    return SYSTEMS[name]
