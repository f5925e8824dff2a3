"""Limits of an iteration that nobody set: vLLM's own defaults for its API server, by device."""

from __future__ import annotations

from dataclasses import dataclass

from simbatch.deployment.gpu import GIB, GPU
from simbatch.errors import UsageError

BLOCK_SIZE = 16
"""Tokens in a KV block."""


@dataclass(frozen=True)
class EngineLimits:
    """Most tokens and most sequences of one iteration."""

    max_num_batched_tokens: int
    max_num_seqs: int


def default_limits(gpu: GPU, small: bool = False) -> EngineLimits:
    """What the API server takes on *gpu* when nothing is set and nothing limits it; *small*: before 0.9."""
    if small:
        return EngineLimits(2048, 256)
    if gpu.memory_bytes >= 160 * GIB:
        return EngineLimits(16384, 1024)
    if gpu.memory_bytes >= 70 * GIB and not gpu.name.startswith("A100"):
        return EngineLimits(8192, 1024)
    return EngineLimits(2048, 256)


def engine_limits(
    gpu: GPU,
    max_model_len: int,
    *,
    max_num_batched_tokens: int | None = None,
    max_num_seqs: int | None = None,
    enable_chunked_prefill: bool = True,
    small: bool = False,
) -> EngineLimits:
    """The limits in force: what was set, else the defaults fitted to each other as vLLM does.

    Raises UsageError for fewer tokens than sequences.
    """
    usual = default_limits(gpu, small)
    tokens = max_num_batched_tokens
    if tokens is None:
        tokens = usual.max_num_batched_tokens
        if not enable_chunked_prefill:
            tokens = max(tokens, max_model_len)
        tokens = min(tokens, (max_num_seqs or usual.max_num_seqs) * max_model_len)
    sequences = min(usual.max_num_seqs, tokens) if max_num_seqs is None else max_num_seqs
    if tokens < sequences:
        raise UsageError(
            f"max_num_batched_tokens is {tokens}, fewer than max_num_seqs, {sequences}: not every sequence could "
            f"decode in one iteration. Set max_num_batched_tokens to {sequences} or more, or lower max_num_seqs."
        )
    return EngineLimits(tokens, sequences)
