"""Which messages make a request: the rules by name, on token counts.

A rule takes conversations one by one and gives rows; what it leaves out it counts with a reason, so
that what was read is what was kept and what was dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from simbatch.trace.columns import MAX_TOKENS
from simbatch.trace.identity import Segment, Segments, own

LEAST_TOKENS = 4
MOST_TOKENS = 2048
MOST_PROMPT_TOKENS = 1024
"""Lengths that vllm bench keeps."""

ABOUT = {
    "first": "first two messages of each record (pieces of a split conversation count as records), human then gpt, "
    "both >= 4 tokens, sum <= 2048, no other cap",
    "vllm": "first two messages of each record, whatever their roles (vllm bench), both >= 4 tokens, "
    "prompt <= 1024, sum <= 2048; file order, not shuffled",
    "turns": "every exchange of each conversation, pieces of a split one put together; a prompt is the whole history "
    "and all messages since the last answer; exchanges with nothing on a side left out",
    "sessions": "turns of whole conversations, pieces of a split one put together; a prompt is the whole history and "
    "all messages since the last answer, and quotes both; exchanges with nothing on a side left out",
}
"""What a trace says about the rule that made it."""
WHOLE = frozenset({"turns", "sessions"})
"""Rules on whole conversations; the others take each record as it is."""
_OPENINGS = (("human", "gpt"), ("user", "assistant"))


@dataclass(frozen=True, slots=True)
class Counted:
    """A message without its text."""

    role: str
    is_answer: bool
    tokens: int


@dataclass(frozen=True, slots=True)
class Row:
    """A request."""

    prompt_tokens: int
    output_tokens: int
    session: str = ""
    turn: int = 0
    id: str = ""
    segments: Segments | None = None


@dataclass
class Tally:
    """How many of a thing were seen, and why some were dropped."""

    seen: int = 0
    dropped: Counter[str] = field(default_factory=Counter)

    @property
    def kept(self) -> int:
        """Seen and not dropped."""
        return self.seen - self.dropped.total()


class Rule:
    """A rule by *name*, and what came of it so far."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.conversations = Tally()
        """Records where the rule takes records, whole conversations where it takes those."""
        self.exchanges = Tally()
        """Of the conversations that were not dropped as a whole."""

    def rows(self, messages: Sequence[Counted]) -> Iterator[Row]:
        """The requests of one conversation."""
        self.conversations.seen += 1
        if self.name not in WHOLE:
            yield from self._first_two(messages)
            return
        pairs = list(self._exchanges(messages))
        if not pairs:
            self.conversations.dropped["no exchange that can be used"] += 1
            return
        session = str(self.conversations.kept - 1)
        history: list[Segment] = []
        before = 0
        for turn, (prompt, output) in enumerate(pairs):
            id = f"{session}.{turn}"
            history.append(own(id, prompt))
            if self.name == "sessions":
                yield Row(before + prompt, output, session, turn, id, tuple(history))
            else:
                yield Row(before + prompt, output)
            history.append((f"o{id}", 0, output))
            before += prompt + output

    def _first_two(self, messages: Sequence[Counted]) -> Iterator[Row]:
        reason = ""
        if len(messages) < 2:
            reason = "fewer than two messages"
        elif self.name == "first" and tuple(message.role for message in messages[:2]) not in _OPENINGS:
            reason = "not opened by human, then gpt"
        else:
            prompt, output = messages[0].tokens, messages[1].tokens
            if min(prompt, output) < LEAST_TOKENS:
                reason = f"a message of less than {LEAST_TOKENS} tokens"
            elif self.name == "vllm" and prompt > MOST_PROMPT_TOKENS:
                reason = f"a prompt of more than {MOST_PROMPT_TOKENS:,} tokens"
            elif prompt + output > MOST_TOKENS:
                reason = f"more than {MOST_TOKENS:,} tokens together"
        if reason:
            self.conversations.dropped[reason] += 1
        else:
            yield Row(messages[0].tokens, messages[1].tokens)

    def _exchanges(self, messages: Sequence[Counted]) -> Iterator[tuple[int, int]]:
        """(tokens since the last answer, tokens of the answer), where both are some."""
        new = 0
        total = 0
        waiting = False
        for message in messages:
            if not message.is_answer:
                new += message.tokens
                waiting = True
                continue
            self.exchanges.seen += 1
            waiting = False
            if not new:
                self.exchanges.dropped["an answer to nothing"] += 1
            elif not message.tokens:
                self.exchanges.dropped["an empty answer"] += 1
            elif total + new + message.tokens > MAX_TOKENS:
                self.exchanges.dropped[f"a history of more than {MAX_TOKENS:,} tokens"] += 1
            else:
                total += new + message.tokens
                yield new, message.tokens
            new = 0
        if waiting:
            self.exchanges.seen += 1
            self.exchanges.dropped["no answer"] += 1
