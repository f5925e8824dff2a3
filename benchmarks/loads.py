"""The loads that speed is measured with: one model on one card, lengths drawn once, seven ways to arrive.

Lengths are log-normal (prompt: mu 4.85, sigma 1.02, cut to 4-2,048 tokens; output: mu 4.95, sigma 0.95,
cut to 2-1,024), about 210 tokens each on average, as in the simulators that simbatch is compared with.
`LOADS` names a trace of *n* requests and the options that go with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import simbatch as sb

TIMING = "linear:base_ms=6.4,token_us=15,context_ns=0.05"
"""About Llama-3.1-8B on one H100."""


def deployment() -> sb.Deployment:
    return sb.Deployment("llama-3.1-8b", gpu="h100")


def mixed(n: int, rate_per_s: float | None, seed: int = 0) -> sb.Trace:
    """*n* requests of mixed lengths, Poisson at *rate_per_s* or all at time 0."""
    draw = np.random.default_rng(seed)
    prompts = np.clip(np.round(np.exp(draw.normal(4.85, 1.02, n))), 4, 2048).astype(int)
    outputs = np.clip(np.round(np.exp(draw.normal(4.95, 0.95, n))), 2, 1024).astype(int)
    trace = sb.Trace.from_lengths(prompts, outputs)
    return trace if rate_per_s is None else trace.at_rate(rate_per_s, seed=seed)


def long_outputs(n: int) -> sb.Trace:
    """*n* requests with outputs of 1,000 to 5,000 tokens, 0.3 a second."""
    outputs = np.random.default_rng(1).integers(1000, 5000, n)
    return sb.Trace.from_lengths(np.full(n, 200), outputs).at_rate(0.3)


LOADS: dict[str, tuple[Callable[[int], sb.Trace], dict[str, Any]]] = {
    "10 req/s": (lambda n: mixed(n, 10), {}),
    "40 req/s": (lambda n: mixed(n, 40), {}),
    "saturated": (lambda n: mixed(n, None), {"max_num_seqs": 256}),
    "thrashing": (lambda n: mixed(n, 60), {"kv_tokens": 52_000, "max_model_len": 4096}),
    "long outputs": (lambda n: long_outputs(max(1, n // 5)), {"max_model_len": 8192}),
    "closed loop, 64 users": (lambda n: mixed(n, None), {"concurrency": 64}),
    "80 req/s, 8 replicas": (lambda n: mixed(n, 80), {"replicas": 8}),
}

PLAIN: dict[str, Any] = {"async_scheduling": False, "enable_prefix_caching": False}
"""vLLM without what looks ahead or back: what other simulators simulate."""


class Asked(sb.VllmV1):
    """The same decisions by a policy that must be asked before every iteration."""

    def start(self, limits: sb.Limits) -> None:
        super().start(limits)
        self.asks_every_iteration = True


MODES: dict[str, dict[str, Any]] = {
    "vllm": {},
    "vllm, plain": PLAIN,
    "vllm, plain, priority": {**PLAIN, "scheduling_policy": "priority"},
    "vllm, plain, asked": {**PLAIN, "scheduler": Asked()},
    "vllm-v0": {"system": "vllm-v0"},
    "contiguous": {"system": "orca-oracle"},
    "static": {"system": "static"},
}
