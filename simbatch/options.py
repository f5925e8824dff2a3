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

DEPLOYMENT_OPTIONS = frozenset(f.name for f in fields(Deployment) if f.init)
"""Options that are arguments of `Deployment` as well, where one is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What may be set beside the trace. None: as the system has it."""

    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_active_seqs: int | None = None
    block_size: int | None = None
    kv_tokens: int | None = None
    """Usable KV memory in tokens, exactly."""
    enable_chunked_prefill: bool | None = None
    scheduler_reserve_full_isl: bool | None = None
    watermark: float | None = None


@dataclass(frozen=True, slots=True)
class Setup:
    """What a run is set up with, everything decided."""

    deployment: Deployment | None
    limits: Limits
    kv_tokens: int
    block_size: int


def set_up(system: System, deployment: Deployment | None, given: dict[str, Any]) -> Setup:
    """Decide every option of a run of *system* from what was *given*.

    Raises UsageError for unknown names, for values out of range, and without a deployment when
    `kv_tokens` or `max_model_len` is missing.
    """
    options = _checked(given)
    if deployment is None:
        return _bare(system, options)
    wanted = {**system.deployment_defaults(deployment), **{k: v for k, v in given.items() if k in DEPLOYMENT_OPTIONS}}
    if wanted:
        deployment = deployment.replace(**wanted)
    assert deployment.max_model_len is not None
    assert deployment.kv_tokens is not None
    assert deployment.num_gpu_blocks is not None
    kv_tokens = deployment.kv_tokens
    if not system.null_block and "kv_tokens" not in deployment.given:
        kv_tokens = deployment.num_gpu_blocks * deployment.block_size
    limits = _limits(
        system,
        options,
        max_model_len=deployment.max_model_len,
        max_num_seqs=deployment.limits.max_num_seqs,
        max_num_batched_tokens=deployment.limits.max_num_batched_tokens,
        enable_chunked_prefill=deployment.enable_chunked_prefill,
    )
    return Setup(deployment, limits, kv_tokens, deployment.block_size)


def _bare(system: System, options: Options) -> Setup:
    """Without a deployment: the sizes must be given, and limits that are not are no limits."""
    missing = [name for name in ("kv_tokens", "max_model_len") if getattr(options, name) is None]
    if missing:
        raise UsageError(
            f"without a deployment {' and '.join(missing)} must be given. "
            "Give them, or a Deployment of a model on a GPU."
        )
    assert options.max_model_len is not None
    assert options.kv_tokens is not None
    limits = _limits(
        system,
        options,
        max_model_len=options.max_model_len,
        max_num_seqs=options.max_num_seqs,
        max_num_batched_tokens=options.max_num_batched_tokens,
        enable_chunked_prefill=options.enable_chunked_prefill is not False,
    )
    return Setup(None, limits, options.kv_tokens, options.block_size or 16)


def _limits(system: System, options: Options, **values: Any) -> Limits:
    """*values* with what the system fixes, and with what only a scheduler asks for."""
    for name in ("max_num_active_seqs", "scheduler_reserve_full_isl", "watermark"):
        if getattr(options, name) is not None:
            values[name] = getattr(options, name)
        elif name in system.limits:
            values[name] = system.limits[name]
    if system.whole_prompts:
        values["max_num_batched_tokens"] = None
    return Limits(**values)


def _checked(given: dict[str, Any]) -> Options:
    own = {field.name for field in fields(Options)}
    for name in given:
        if name not in own and name not in DEPLOYMENT_OPTIONS:
            raise unknown("option", name, own | DEPLOYMENT_OPTIONS)
    options = Options(**{name: value for name, value in given.items() if name in own})
    for name in ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "max_num_active_seqs", "block_size",
                 "kv_tokens"):  # fmt: skip
        value = getattr(options, name)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            raise UsageError(f"{name} is {value!r}. Give a whole number of at least 1.")
    share = options.watermark
    if share is not None and not 0 <= share < 1:
        raise UsageError(f"watermark is {share!r}. Give a share of the KV memory, from 0 up to below 1.")
    return options
