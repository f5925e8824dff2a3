"""The Mooncake family: jsonl with `timestamp`, `input_length`, `output_length` and mostly `hash_ids`.

The names are the same and the meanings are not: Mooncake and aiperf count milliseconds and blocks of
512 tokens, Bailian seconds and blocks of 16; the turns of an aiperf session hold only what is new,
those of Bailian all of it; RAGPulse names pieces of unknown length. vllm bench reads such files as
`timed_trace`, whose unit and block size are flags.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simbatch.trace.formats.base import Format
from simbatch.trace.formats.sessions import accumulate_turns, name_by_root

_LENGTHS = frozenset({"input_length", "output_length"})
_COLUMNS = {
    "arrival_s": "timestamp",
    "prompt_tokens": "input_length",
    "output_tokens": "output_length",
    "hash_ids": "hash_ids",
    "priority": "priority",
}

MOONCAKE = Format(
    "Mooncake",
    _LENGTHS,
    _COLUMNS,
    unit="ms",
    whole_times=True,
    constants={"hash_block_tokens": "512"},
)
"""kvcache-ai/Mooncake; SGLang, vllm bench (`timed_trace`) and aiperf (`mooncake_trace`) read it."""

AIPERF_INPUT = Format(
    "aiperf sessions",
    _LENGTHS | {"session_id"},
    {**_COLUMNS, "session": "session_id", "think_s": "delay"},
    unit="ms",
    think_unit="ms",
    whole_times=True,
    constants={"hash_block_tokens": "512"},
    may_lack_times=True,
    finish=accumulate_turns,
    note="each turn's history is added to its prompt, as aiperf does",
)

BAILIAN = Format(
    "Bailian",
    _LENGTHS | {"chat_id", "parent_chat_id"},
    {**_COLUMNS, "turn": "turn", "id": "chat_id", "session": "parent_chat_id"},
    constants={"hash_block_tokens": "16"},
    finish=name_by_root,
)
"""alibaba-edu/qwen-bailian-usagetraces-anon."""


def _names_pieces(first: Mapping[str, Any]) -> bool:
    return isinstance(first.get("hash_ids"), dict)


RAGPULSE = Format(
    "RAGPulse",
    _LENGTHS | {"hash_ids", "session_id"},
    {
        "arrival_s": "timestamp",
        "prompt_tokens": "input_length",
        "output_tokens": "output_length",
        "session": "session_id",
    },
    when=_names_pieces,
    note="its hash_ids name pieces of a prompt without their lengths, so no prefix identity can be made of them",
)
"""flashserve/RAGPulse; seconds, as text."""
