"""Where in a contiguous memory a piece goes: an address space with pieces and holes.

A placement knows sizes and addresses and nothing of sequences. Whoever uses one remembers which
piece starts where and gives it back whole. `simbatch.memory.buddy` and `simbatch.memory.holes`
are the ones built in; anything of this shape will do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from simbatch.errors import UsageError, unknown
from simbatch.memory.buddy import Buddy
from simbatch.memory.holes import BestFit, FirstFit


class Placement(Protocol):
    """An arena of *capacity_tokens*, addresses from 0. Each answer depends only on what was placed and removed."""

    free_tokens: int
    """In all free pieces."""

    @property
    def largest_free_piece_tokens(self) -> int: ...

    def rounded(self, tokens: int) -> int:
        """The size of the piece that *tokens* would occupy."""
        ...

    def place(self, tokens: int) -> int | None:
        """Occupy a piece of *rounded(tokens)* and return its start; None when no free piece takes it."""
        ...

    def remove(self, start_token: int, tokens: int) -> None:
        """Give back the piece that was placed at *start_token* for *tokens*; it merges with what is free beside it."""
        ...

    def smaller_tokens(self, tokens: int) -> int:
        """In the free pieces that are too small for *tokens*."""
        ...

    def free_pieces(self) -> Iterator[tuple[int, int]]:
        """(start, size) of each, in order of address."""
        ...

    def check(self) -> None:
        """Compare every count with a recount; raises AssertionError. For tests."""
        ...


PLACEMENTS: dict[str, Callable[[int], Placement]] = {
    "buddy": Buddy,
    "first-fit": FirstFit,
    "best-fit": BestFit,
}


def arena(placement: str | Callable[[int], Placement], capacity_tokens: int) -> Placement:
    """An empty arena of *capacity_tokens* under a *placement*: a built-in name, or a class like one.

    Raises UsageError for an unknown name and for an arena that holds nothing.
    """
    if capacity_tokens < 1:
        raise UsageError(
            f"contiguous memory of {capacity_tokens} tokens holds nothing. Give it a capacity of at least one token."
        )
    if not isinstance(placement, str):
        return placement(capacity_tokens)
    if placement not in PLACEMENTS:
        raise unknown("placement", placement, PLACEMENTS, "Python also takes a class with the methods of Placement.")
    return PLACEMENTS[placement](capacity_tokens)
