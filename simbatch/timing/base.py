"""What a timing is told and what it answers."""

from __future__ import annotations

from typing import Any, Protocol

COUNTS = (
    "tokens",
    "sequences",
    "prefill_tokens",
    "context_tokens",
    "prefill_sequences",
    "prefill_context_tokens",
    "prefill_pairs",
    "waiting",
)
"""What an `Iteration` counts."""
FOREVER = 1 << 62
"""A progression that holds for as long as the same sequences decode."""


class Iteration:
    """One iteration as a timing sees it. Counts and tokens; the engine reuses the object."""

    __slots__ = (*COUNTS, "batch", "plan")

    def __init__(self, batch: Any = None) -> None:
        self.tokens = 0
        """T: tokens scheduled."""
        self.sequences = 0
        """N: sequences scheduled."""
        self.prefill_tokens = 0
        """P: those of the T that belong to sequences with more than one token to compute."""
        self.context_tokens = 0
        """C: tokens of all scheduled sequences in the cache when the iteration ends."""
        self.prefill_sequences = 0
        """Sequences that the P tokens belong to."""
        self.prefill_context_tokens = 0
        """The part of C that belongs to those sequences."""
        self.prefill_pairs = 0
        """Query-key pairs of those sequences: the work of their attention."""
        self.waiting = 0
        """Requests that wait after the plan."""
        self.plan: Any = None
        self.batch = batch
        """Who they are, for a timing that really runs them."""


class Timing(Protocol):
    """How long iterations take. Pure: the same iteration always takes the same time."""

    def progression(self, iteration: Iteration) -> tuple[int, int, int]:
        """(first, increment, holds): picoseconds of this iteration, by how much each next one is
        longer while the same sequences decode (C grows by N each time), and for how many
        iterations, this one included, that is exact. *first* is at least 1, *increment* may be
        negative as long as no duration falls below 1, *holds* is at least 1.

        Asking j iterations later must continue the same progression: (first + j·increment,
        increment, holds - j), or `FOREVER` again.
        """
        ...

    def describe(self) -> dict[str, Any]:
        """What repeats it: `kind` ("estimated" or "measured"), `name`, and its parameters with units."""
        ...
