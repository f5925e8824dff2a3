"""Formats that are plain tables: a row per request, with other names and other units.

Sources: Azure/AzurePublicDataset (2023 and 2024), HPMLL/BurstGPT (1 to 3), microsoft/vidur,
casys-kaist/LLMServingSim (tsv, csv and jsonl), Mutinifni/splitwise-sim.
"""

from __future__ import annotations

import hashlib
from typing import Any

from simbatch.trace.formats.base import Format

AZURE = Format(
    "Azure LLM inference",
    frozenset({"TIMESTAMP", "ContextTokens", "GeneratedTokens"}),
    {"arrival_s": "TIMESTAMP", "prompt_tokens": "ContextTokens", "output_tokens": "GeneratedTokens"},
)
"""Stamps of 7 digits in 2023; in 2024 with a zone, and without a fraction where it is zero."""

BURSTGPT = Format(
    "BurstGPT",
    frozenset({"Timestamp", "Request tokens", "Response tokens"}),
    {
        "arrival_s": "Timestamp",
        "prompt_tokens": "Request tokens",
        "output_tokens": "Response tokens",
        "session": "Session ID",
    },
)
"""Seconds. Failed requests have 0 response tokens. BurstGPT_3 has sessions, in a column of its own in second place."""

VIDUR = Format(
    "Vidur",
    frozenset({"num_prefill_tokens", "num_decode_tokens"}),
    {"arrival_s": "arrived_at", "prompt_tokens": "num_prefill_tokens", "output_tokens": "num_decode_tokens"},
)

SPLITWISE = Format(
    "splitwise-sim",
    frozenset({"arrival_timestamp", "prompt_size", "token_size"}),
    {"arrival_s": "arrival_timestamp", "prompt_tokens": "prompt_size", "output_tokens": "token_size"},
)

_BLOCK_TOKENS = 16
"""Prompts given as token ids are compared in blocks of this size, vLLM's own."""


def _blocks(row: dict[str, Any]) -> dict[str, Any] | str:
    """Token ids become one hash per block, of the block and all before it; the ids themselves are not kept."""
    tokens = row.pop("input_tok_ids", None)
    row.pop("output_tok_ids", None)
    if tokens is None:
        return row
    if not isinstance(tokens, list) or len(tokens) != row.get("input_toks"):
        found = len(tokens) if isinstance(tokens, list) else 0
        return f"input_tok_ids holds {found} tokens, but input_toks is {row.get('input_toks')}"
    chain = b""
    hashes = []
    for start in range(0, len(tokens) - _BLOCK_TOKENS + 1, _BLOCK_TOKENS):
        block = repr(tokens[start : start + _BLOCK_TOKENS]).encode()
        chain = hashlib.blake2b(chain + block, digest_size=6).digest()
        hashes.append(int.from_bytes(chain, "big"))
    return {**row, "hash_ids": hashes}


LLMSERVINGSIM = Format(
    "LLMServingSim",
    frozenset({"input_toks", "output_toks"}),
    {
        "arrival_s": "arrival_time_ns",
        "prompt_tokens": "input_toks",
        "output_tokens": "output_toks",
        "hash_ids": "hash_ids",
    },
    unit="ns",
    constants={"hash_block_tokens": str(_BLOCK_TOKENS)},
    take_apart=_blocks,
)
