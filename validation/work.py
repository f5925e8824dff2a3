"""One iteration as an executor gets it: who computes how many tokens, on which cache, and where that lies.

Counts follow the simulator's: T tokens, B decoding rows, K their context when the iteration ends, and
for each chunk P new tokens on C cached ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

BUCKETS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 256)
"""Batch sizes that have a CUDA graph; a batch is padded to the next. Beyond the last: as it is."""


def bucket_of(rows: int) -> int:
    """Rows that a batch of *rows* is computed as."""
    return next((bucket for bucket in BUCKETS if bucket >= rows), rows) if rows else 0


class Row(NamedTuple):
    """One scheduled sequence."""

    tokens: Sequence[int]
    """Token ids to compute: one for a decode, a chunk for a prompt."""
    context_tokens: int
    """In the cache before."""
    place: Sequence[int]
    """Paged: its page ids in order. Contiguous: (first token, length) of its piece."""
    key: Any = None
    """Whose it is."""


@dataclass
class Work:
    """One iteration."""

    decodes: list[Row] = field(default_factory=list)
    chunks: list[Row] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        """T."""
        return len(self.decodes) + sum(len(chunk.tokens) for chunk in self.chunks)

    @property
    def context_tokens(self) -> int:
        """K."""
        return sum(row.context_tokens + 1 for row in self.decodes)

    @property
    def bucket(self) -> int:
        return bucket_of(len(self.decodes))

    def counts(self) -> Counts:
        return Counts(
            tokens=self.tokens,
            rows=len(self.decodes),
            bucket=self.bucket,
            context_tokens=self.context_tokens,
            chunks=tuple((len(chunk.tokens), chunk.context_tokens) for chunk in self.chunks),
        )


class Load(Protocol):
    """The sums that a timing is told, whoever knows them: `Counts`, or `Sums` of the simulator's own iteration."""

    @property
    def tokens(self) -> int: ...
    @property
    def bucket(self) -> int: ...
    @property
    def context_tokens(self) -> int: ...
    @property
    def prefill_tokens(self) -> int: ...
    @property
    def prefill_sequences(self) -> int: ...
    @property
    def pairs(self) -> float: ...


class Sums(NamedTuple):
    """A `Load` by its numbers."""

    tokens: int
    bucket: int
    context_tokens: int
    prefill_tokens: int
    prefill_sequences: int
    pairs: float


@dataclass(frozen=True)
class Counts:
    """What the time of an iteration depends on."""

    tokens: int
    """T."""
    rows: int
    """B: decoding rows."""
    bucket: int
    """Rows computed for them, padding included."""
    context_tokens: int
    """K: tokens in the cache of the decoding rows when the iteration ends."""
    chunks: tuple[tuple[int, int], ...]
    """(P, C) of each prompt chunk."""

    @property
    def sequences(self) -> int:
        """Rows of the output layer."""
        return self.rows + len(self.chunks)

    @property
    def prefill_tokens(self) -> int:
        return sum(new for new, _ in self.chunks)

    @property
    def prefill_sequences(self) -> int:
        return len(self.chunks)

    @property
    def pairs(self) -> float:
        """Query-key pairs of the chunks: P·C + P(P + 1)/2."""
        return sum(new * cached + new * (new + 1) / 2 for new, cached in self.chunks)

    @property
    def kind(self) -> str:
        if not self.chunks:
            return "decode"
        return "mixed" if self.rows else "prefill"

    @property
    def label(self) -> str:
        """How the iteration is called in tables: ``B8 K4096 P512+0``."""
        parts = [f"B{self.rows} K{self.context_tokens}"] if self.rows else []
        return " ".join([*parts, *(f"P{new}+{cached}" for new, cached in self.chunks)])


def decode_counts(rows: int, context_tokens: int) -> Counts:
    """*rows* decoding sequences with *context_tokens* each when the iteration ends."""
    return Counts(rows, rows, bucket_of(rows), rows * context_tokens, ())


def parse_chunks(text: str) -> tuple[tuple[int, int], ...]:
    """From a table's cell, ``512+0;128+2048``."""
    pairs = (part.split("+") for part in text.split(";") if part)
    return tuple((int(new), int(cached)) for new, cached in pairs)


def show_chunks(chunks: Sequence[tuple[int, int]]) -> str:
    return ";".join(f"{new}+{cached}" for new, cached in chunks)
