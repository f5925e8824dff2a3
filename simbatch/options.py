"""Engine options, spelt as the flags of `vllm serve`, and what they come to for one run.

What a user sets wins; then comes what the system stands for; then vLLM's default on that card.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from simbatch.deployment import Deployment
from simbatch.errors import UsageError, unknown
from simbatch.scheduler.base import Limits
from simbatch.systems import System

_GIB = 2**30
_SWAP_SPACE_GIB = 4
"""vLLM V0's default for each GPU."""


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
DEPLOYMENT_OPTIONS = frozenset(field.name for field in fields(Deployment) if field.init)
_OF_LIMITS = (
    "max_num_active_seqs",
    "scheduler_reserve_full_isl",
    "watermark",
    "scheduling_policy",
    "long_prefill_token_threshold",
    "long_prefill_token_threshold_adaptive",
    "prefill_schedule_interval",
)


@dataclass(frozen=True, slots=True)
class Setup:
    """What a run is set up with, everything decided."""

    deployment: Deployment | None
    options: Options
    limits: Limits
    kv_tokens: int
    block_size: int
    shares: bool
    """Does the trace say which prompts are alike?"""

    @property
    def swap_space_blocks(self) -> int | None:
        """CPU memory for swapped blocks; None, as much as is asked for, where no deployment says what a block is."""
        if self.deployment is None:
            return None
        gib = _SWAP_SPACE_GIB if self.options.swap_space is None else self.options.swap_space
        return int(gib * _GIB / (self.block_size * self.deployment.kv_bytes_per_token_per_gpu))


def set_up(system: System, deployment: Deployment | None, given: dict[str, Any], shares: bool = False) -> Setup:
    """Decide every option of a run of *system* from what was *given* and, under it, from *deployment*.

    *shares* says whether requests of the trace can share prompts.

    Raises UsageError for unknown names, for values out of range, and without a deployment when
    `kv_tokens` or `max_model_len` is missing.
    """
    _check(given)
    if deployment is None:
        return _without_deployment(system, Options(**{**system.options, **given}), shares)
    deployment = deployment.replace(**{name: value for name, value in given.items() if name in DEPLOYMENT_OPTIONS})
    defaults = {name: value for name, value in system.options.items() if name in DEPLOYMENT_OPTIONS}
    if system.prompt_sets_budget:
        defaults["max_num_batched_tokens"] = max(deployment.max_model_len or 0, 2048)
    deployment = deployment.replace(**{name: v for name, v in defaults.items() if name not in deployment.given})
    assert deployment.max_model_len is not None
    assert deployment.kv_tokens is not None
    assert deployment.num_gpu_blocks is not None
    kv_tokens = deployment.kv_tokens
    if not system.null_block and "kv_tokens" not in deployment.given:
        kv_tokens = deployment.num_gpu_blocks * deployment.block_size
    options = Options(**{**system.options, **given})
    limits = _limits(
        system,
        options,
        max_model_len=deployment.max_model_len,
        max_num_seqs=deployment.limits.max_num_seqs,
        max_num_batched_tokens=deployment.limits.max_num_batched_tokens,
        enable_chunked_prefill=deployment.enable_chunked_prefill,
    )
    return Setup(deployment, options, limits, kv_tokens, deployment.block_size, shares)


def _without_deployment(system: System, options: Options, shares: bool) -> Setup:
    """The sizes must be given, and limits that neither the user nor the system sets are no limits."""
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
    limits = _limits(
        system,
        options,
        max_model_len=options.max_model_len,
        max_num_seqs=options.max_num_seqs,
        max_num_batched_tokens=budget,
        enable_chunked_prefill=options.enable_chunked_prefill is not False,
    )
    return Setup(None, options, limits, kv_tokens, block_size, shares)


def _limits(system: System, options: Options, **values: Any) -> Limits:
    values |= {name: getattr(options, name) for name in _OF_LIMITS if getattr(options, name) is not None}
    if system.whole_prompts:
        values["max_num_batched_tokens"] = None
    return Limits(**values)


def _check(given: dict[str, Any]) -> None:
    own = {field.name for field in fields(Options)}
    for name, value in given.items():
        if name not in own:
            hint = "It is an argument of Deployment." if name in DEPLOYMENT_OPTIONS else ""
            raise unknown("option", name, own, hint)
        if value is None:
            continue
        if name in _COUNTS and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise UsageError(f"{name} is {value!r}. Give a whole number of at least 1.")
    share = given.get("watermark")
    if share is not None and not 0 <= share < 1:
        raise UsageError(f"watermark is {share!r}. Give a share of the KV memory, from 0 up to below 1.")
    gib = given.get("swap_space")
    if gib is not None and not 0 <= gib < 1 << 20:
        raise UsageError(f"swap_space is {gib!r}. Give GiB for each GPU, 0 or more.")
