"""The longest request that a named model was made for, where that is beyond doubt.

Configuration files say so and the table of shapes does not. Keys are names as the catalogue
writes them, one for each part of a row "A / B". A model that is missing here has no default.
"""

from __future__ import annotations

_NATIVE_TOKENS: dict[int, tuple[str, ...]] = {
    2048: ("Llama-13B", "Phi-2", "OPT-125M", "OPT-13B", "OPT-66B", "OPT-175B"),
    4096: ("Llama-2-7B", "Llama-2-13B", "Llama-2-70B", "Yi-34B"),
    8192: ("Llama-3-8B", "Gemma-7B", "Gemma-2-2B", "Gemma-2-9B", "Gemma-2-27B"),
    16384: ("CodeLlama-7B", "CodeLlama-34B", "DeepSeek-Coder-6.7B", "Phi-4-14B"),
    32768: (
        "Qwen2.5-0.5B", "Qwen2.5-1.5B", "Qwen2.5-3B", "Qwen2.5-7B", "Qwen2.5-14B", "Qwen2.5-32B", "Qwen2.5-72B",
        "Mistral-7B-v0.1", "Mistral-7B-v0.3", "Mistral-Small-24B", "Mixtral-8x7B",
    ),
    40960: (
        "Qwen3-0.6B", "Qwen3-1.7B", "Qwen3-4B", "Qwen3-8B", "Qwen3-14B", "Qwen3-32B", "Qwen3-30B-A3B",
        "Qwen3-235B-A22B",
    ),
    65536: ("Mixtral-8x22B",),
    131072: (
        "Llama-3.1-8B", "Llama-3.1-70B", "Llama-3.3-70B", "Llama-3.1-405B", "Llama-3.2-1B", "Llama-3.2-3B",
        "Gemma-3-4B", "Gemma-3-12B", "Gemma-3-27B", "Granite-3.1-2B", "Granite-3.1-8B", "Kimi-K2", "gpt-oss-20b",
        "gpt-oss-120b", "Mistral-Small-3.1-24B", "Mistral-Small-3.2-24B",
    ),
    163840: ("DeepSeek-V2-Lite", "DeepSeek-V3", "DeepSeek-R1", "DeepSeek-V3.2"),
    262144: ("Qwen3-Coder-480B-A35B",),
}  # fmt: skip


def native_context(part: str) -> int | None:
    """Tokens of prompt and output together for the catalogue's name *part*; None where it is not certain."""
    return next((tokens for tokens, names in _NATIVE_TOKENS.items() if part in names), None)
