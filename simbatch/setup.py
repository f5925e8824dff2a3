"""What a run is set up with: every option decided.

What a user sets wins; then comes what the release and the system stand for; then vLLM's default on
that card. Options that have no effect on the parts in use are left out and named in a warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

from simbatch.deployment import Deployment
from simbatch.errors import UsageError
from simbatch.options import DEPLOYMENT_OPTIONS, Options, check_options
from simbatch.scheduler.base import Limits
from simbatch.systems import System
from simbatch.versions import NEWEST, VERSIONS, find_version

_GIB = 2**30
_SWAP_SPACE_GIB = 4
"""vLLM V0's default for each GPU."""
_OF_LIMITS = (
    "max_num_active_seqs",
    "scheduler_reserve_full_isl",
    "watermark",
    "scheduling_policy",
    "long_prefill_token_threshold",
    "long_prefill_token_threshold_adaptive",
    "prefill_schedule_interval",
)
_OF_PARTS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("reserve", "placement"), frozenset({"contiguous"})),
    "batch_size": frozenset({"static"}),
    **dict.fromkeys(("preemption_mode", "swap_space"), frozenset({"vllm-v0", "sarathi"})),
    **dict.fromkeys(
        (
            "vllm_version",
            "scheduling_policy",
            "long_prefill_token_threshold",
            "long_prefill_token_threshold_adaptive",
            "prefill_schedule_interval",
        ),
        frozenset({"vllm"}),
    ),
    **dict.fromkeys(("async_scheduling", "enable_prefix_caching"), frozenset({"vllm", "continuous", "custom"})),
}
"""Options that only some schedulers or memories have."""


@dataclass(frozen=True, slots=True)
class Setup:
    """Everything decided."""

    deployment: Deployment | None
    options: Options
    limits: Limits
    kv_tokens: int
    block_size: int
    vllm_version: str
    shares: bool
    """Does the trace say which prompts are alike?"""
    null_blocks: int
    """Blocks of the KV memory that hold nothing (vLLM V1: one)."""
    samples: bool
    """Are some of its rows parallel samples of one request?"""
    ignored: tuple[str, ...]
    """Options given that the parts in use do not have."""

    @property
    def swap_space_blocks(self) -> int | None:
        """CPU memory for swapped blocks; None, as much as is asked for, where no deployment says what a block is."""
        if self.deployment is None:
            return None
        gib = _SWAP_SPACE_GIB if self.options.swap_space is None else self.options.swap_space
        return int(gib * _GIB / (self.block_size * self.deployment.kv_bytes_per_token_per_gpu))


def set_up(
    system: System,
    deployment: Deployment | None,
    given: dict[str, Any],
    *,
    parts: tuple[str, str],
    shares: bool = False,
    samples: bool = False,
) -> Setup:
    """Decide every option of a run of *system* from what was *given* and, under it, from *deployment*.

    *parts* names the scheduler and the memory in use ("custom": somebody's own); *shares* says
    whether requests of the trace can share prompts, *samples* whether some are parallel samples.

    Raises UsageError for unknown names, for values out of range, and without a deployment when
    `kv_tokens` or `max_model_len` is missing.
    """
    check_options(given)
    given = {
        name: int(value) if isinstance(value, Integral) and not isinstance(value, bool) else value
        for name, value in given.items()
        if value is not None
    }
    absent = {name for name, having in _OF_PARTS.items() if not having & set(parts)}
    version = find_version(given.get("vllm_version", NEWEST))
    chosen = {**system.options, **VERSIONS[version], **given} if system.null_block else {**system.options, **given}
    if parts[0] != "vllm":
        chosen["async_scheduling"] = given.get("async_scheduling", False)
    options = Options(**{name: value for name, value in chosen.items() if name not in absent})
    if deployment is None:
        sizes = _sizes_given(system, options)
    else:
        deployment = _deploy(system, deployment, given, chosen)
        sizes = _sizes_of(system, deployment)
    kv_tokens, block_size, limits = sizes
    more = {name: getattr(options, name) for name in _OF_LIMITS if getattr(options, name) is not None}
    if system.whole_prompts:
        more["max_num_batched_tokens"] = None
    return Setup(
        deployment=deployment,
        options=options,
        limits=replace(limits, **more),
        kv_tokens=kv_tokens,
        block_size=block_size,
        vllm_version=version,
        shares=shares,
        null_blocks=int(system.null_block),
        samples=samples,
        ignored=tuple(name for name in given if name in absent),
    )


def _deploy(system: System, deployment: Deployment, given: dict[str, Any], chosen: dict[str, Any]) -> Deployment:
    """*deployment* with what was given over it, and what the system stands for under it."""
    deployment = deployment.replace(**{name: value for name, value in given.items() if name in DEPLOYMENT_OPTIONS})
    defaults = {name: value for name, value in chosen.items() if name in DEPLOYMENT_OPTIONS}
    if system.prompt_sets_budget:
        defaults["max_num_batched_tokens"] = max(deployment.max_model_len or 0, 2048)
    return deployment.replace(**{name: v for name, v in defaults.items() if name not in deployment.given})


def _sizes_of(system: System, deployment: Deployment) -> tuple[int, int, Limits]:
    """KV tokens, block size and limits of a deployment."""
    assert deployment.max_model_len is not None
    assert deployment.kv_tokens is not None
    assert deployment.num_gpu_blocks is not None
    kv_tokens = deployment.kv_tokens
    if not system.null_block and "kv_tokens" not in deployment.given:
        kv_tokens = deployment.num_gpu_blocks * deployment.block_size
    limits = Limits(
        max_model_len=deployment.max_model_len,
        max_num_seqs=deployment.limits.max_num_seqs,
        max_num_batched_tokens=deployment.limits.max_num_batched_tokens,
        enable_chunked_prefill=deployment.enable_chunked_prefill,
    )
    return kv_tokens, deployment.block_size, limits


def _sizes_given(system: System, options: Options) -> tuple[int, int, Limits]:
    """The same without a deployment: limits that neither the user nor the system sets are no limits."""
    block_size = options.block_size or 16
    kv_tokens = options.kv_tokens
    if kv_tokens is None and options.num_gpu_blocks is not None:
        kv_tokens = (options.num_gpu_blocks - system.null_block) * block_size
    missing = [n for n, v in (("kv_tokens", kv_tokens), ("max_model_len", options.max_model_len)) if v is None]
    if missing:
        raise UsageError(
            f"without a deployment {' and '.join(missing)} must be given. "
            "Give them, or a Deployment of a model on a GPU."
        )
    assert kv_tokens is not None
    assert options.max_model_len is not None
    budget = options.max_num_batched_tokens
    if budget is None and system.prompt_sets_budget:
        budget = max(options.max_model_len, 2048)
    limits = Limits(
        max_model_len=options.max_model_len,
        max_num_seqs=options.max_num_seqs,
        max_num_batched_tokens=budget,
        enable_chunked_prefill=options.enable_chunked_prefill is not False,
    )
    return kv_tokens, block_size, limits
