"""A published line: time per token of Llama-3.1-8B on one H100, one request, by context (vLLM's blog, April 2026)."""

from __future__ import annotations

import simbatch as sb
from simbatch.timing import Iteration, Timing

MODEL, GPU = "llama-3.1-8b", "h100"
CONSTANT_MS = 6.44
CONTEXT_MS = 4.37e-5
"""For each token of context."""
CONTEXTS = (256, 512, 1024, 2048, 8192, 32768, 65536, 125_000)
UP_TO = 2048
"""Contexts that the target is about."""


def deployment() -> sb.Deployment:
    return sb.Deployment(MODEL, gpu=GPU)


def line_ms(context: int) -> float:
    return CONSTANT_MS + CONTEXT_MS * context


def errors(timing: Timing) -> dict[int, float]:
    """Predicted ÷ published - 1 of one decode, by context."""
    found = {}
    for context in CONTEXTS:
        one = Iteration()
        one.tokens = one.sequences = 1
        one.context_tokens = context
        found[context] = timing.progression(one)[0] / 1e9 / line_ms(context) - 1
    return found
