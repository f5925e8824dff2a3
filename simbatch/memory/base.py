"""What a KV memory answers, whatever its inside."""

from __future__ import annotations

from typing import Any, Protocol

from simbatch.growth import Growth
from simbatch.request import Sequence


class Memory(Protocol):
    """Who holds which KV memory. Tokens, unless a memory's own unit is named.

    A sequence is *partial* (its room is taken explicitly) or *decoding*: after `join` it grows by
    one token each time `grow` or `advance` counts an iteration, until `part` or `release`.
    """

    capacity_tokens: int
    caches: bool
    """Does it find again what was computed before?"""
    takes_padding: bool
    """Can it hold prompts that are padded? A cache cannot: padding is no content."""
    shared_tokens: int
    """Tokens that more than one sequence holds, counted for each holder but the first."""

    @property
    def free_tokens(self) -> int:
        """Room that nobody holds."""
        ...

    def fits(self, sequence: Sequence, tokens: int | None = None, spare: int = 0) -> bool:
        """Could *sequence* hold *tokens* (default: all until its end), leaving *spare* free, if it were alone?"""
        ...

    def reserve_room(self, share: float) -> int:
        """*share* of the memory in its own unit, rounded down: what `spare` in other calls is measured in."""
        ...

    def cached_tokens(self, sequence: Sequence) -> int:
        """Tokens of a waiting *sequence* that need not be computed; a `room` or `take` that follows counts on them."""
        ...

    def complete(self, sequence: Sequence) -> None:
        """All tokens of a running *sequence*, which was planned ahead of them, have come back."""
        ...

    def share(self, leader: Sequence, follower: Sequence) -> None:
        """*follower* starts with the prompt of *leader*, and copies what it writes to. Not every memory can."""
        ...

    def forget(self, sequence: Sequence) -> None:
        """*sequence* has left for good."""
        ...

    def room(self, sequence: Sequence, tokens: int, spare: int = 0) -> bool:
        """Could *sequence* hold *tokens* in all, leaving *spare* free? Takes nothing."""
        ...

    def take(self, sequence: Sequence, tokens: int, spare: int = 0) -> bool:
        """Make *sequence* hold *tokens* in all, leaving *spare* free: all of it or nothing."""
        ...

    def release(self, sequence: Sequence) -> int:
        """Give back everything *sequence* holds; returns how much that was, in the memory's own unit."""
        ...

    def join(self, sequence: Sequence) -> None:
        """*sequence* decodes from now on; its `origin` is set."""
        ...

    def part(self, sequence: Sequence) -> None:
        """*sequence* no longer decodes, and keeps what it holds."""
        ...

    def end(self, sequence: Sequence) -> None:
        """*sequence* has got its last token but stays seated: what it holds is waste until it is released."""
        ...

    def due(self, sequence: Sequence) -> bool:
        """Does a decoding *sequence* need room for its next token that it does not hold?"""
        ...

    def grow(self, spare: int = 0) -> bool:
        """Room for the next token of every decoding sequence, leaving *spare* free: all or nothing."""
        ...

    def headroom(self, most: int, spare: int = 0) -> int:
        """How often `grow` would succeed in a row, at most *most*. May be low, never high."""
        ...

    def advance(self, iterations: int, growth: Growth) -> None:
        """A stretch of two or more *iterations* is run, the first of which `grow` has made room for.

        Makes room for the others, and tells *growth* when what is taken, and which part of it will never be filled.
        """
        ...

    @property
    def held(self) -> int:
        """What is held, in the memory's own unit."""
        ...

    @property
    def held_tokens(self) -> int: ...

    internal_tokens: int
    """Held, and never going to be filled by its holder."""

    def external_tokens(self, head: Sequence | None) -> int:
        """Rounded away by placement, or free and of no use to *head*, the first in the queue."""
        ...

    def check(self, batch: Any) -> None:
        """Compare every count with a recount over *batch*; raises AssertionError. For tests."""
        ...

    def log_fields(self) -> dict[str, Any]:
        """What a step log says about it beside the usual."""
        ...

    def describe(self) -> dict[str, Any]: ...
