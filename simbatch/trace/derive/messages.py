"""The messages of a record, whatever the layout: who speaks, and what.

Layouts: ShareGPT (`conversations`: from, value), OpenAI (`messages`: role, content), LMSYS and
WildChat (`conversation`: role, content), UltraChat (`data`: texts that take turns). Told by the
record, so that files may be mixed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_ANSWERS = frozenset({"gpt", "chatgpt", "bing", "bard", "assistant", "model"})
_KEYS = ("conversations", "messages", "conversation", "data")
_ROLES = ("from", "role")
_TEXTS = ("value", "content", "text")


@dataclass(frozen=True)
class Message:
    """Who says what. *role* is the file's own word."""

    role: str
    text: str

    @property
    def is_answer(self) -> bool:
        """Is it a model that speaks?"""
        return self.role in _ANSWERS


class BadRecord(ValueError):
    """Why a record has no messages that can be counted."""


def messages_of(record: Any) -> list[Message]:
    """The messages of *record* in order. Raises BadRecord."""
    if not isinstance(record, Mapping):
        raise BadRecord("no object")
    key = next((key for key in _KEYS if isinstance(record.get(key), list)), None)
    if key is None:
        raise BadRecord("no conversation")
    items = record[key]
    if key == "data":
        roles = ("user", "assistant")
        return [Message(roles[place % 2], _text(item)) for place, item in enumerate(items)]
    return [_message(item) for item in items]


def piece_of(record: Any) -> tuple[str, int] | None:
    """(conversation, its message that the piece begins with) of a ShareGPT id such as ``QWJhYvA_2``; else None."""
    id = record.get("id") if isinstance(record, Mapping) else None
    if not isinstance(id, str):
        return None
    base, underscore, number = id.rpartition("_")
    return (base, int(number)) if underscore and number.isdecimal() and number.isascii() else None


def _message(item: Any) -> Message:
    if not isinstance(item, Mapping):
        raise BadRecord("a message that is no object")
    role = next((item[key] for key in _ROLES if isinstance(item.get(key), str)), None)
    if role is None:
        raise BadRecord("a message without a role")
    return Message(role, _text(next((item[key] for key in _TEXTS if item.get(key) is not None), "")))


def _text(content: Any) -> str:
    """A text, or the parts of one."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise BadRecord("a message that is no text")
    parts = []
    for part in content:
        text = part.get("text") if isinstance(part, Mapping) else part
        if not isinstance(text, str):
            raise BadRecord("a message with a part that is no text")
        parts.append(text)
    return "".join(parts)
