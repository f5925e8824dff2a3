"""Paged memory: blocks handed out on demand, one at a time.

Without prefix caching blocks are anonymous and only counts matter. A decoding sequence needs a
new block every `block_size` iterations; all that share the phase of that need are one number, so
growing by one token, or by a thousand, does not visit them.

Invariant: free + held = total, and what decoding sequences hold follows from their origins.
"""

from __future__ import annotations

from array import array
from collections import Counter
from heapq import heappop, heappush
from operator import index
from typing import Any, SupportsIndex

from simbatch.compiled import give_state, mypyc_attr, state_of
from simbatch.errors import UsageError
from simbatch.growth import Growth
from simbatch.request import Sequence

NEVER = 1 << 70
"""A clock, and a multiple of one, that no run reaches."""


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class PagedMemory:
    """*num_blocks* usable blocks of *block_size* tokens each.

    *null_blocks* more hold nothing and are not counted in anything but the watermark (vLLM V1 has one).
    """

    caches = False
    takes_padding = True
    shared_tokens = 0

    def __init__(
        self, num_blocks: SupportsIndex, block_size: SupportsIndex = 16, *, null_blocks: SupportsIndex = 0
    ) -> None:
        # Whole numbers may be anybody's, numpy's too; what is counted with is Python's.
        num_blocks, block_size, null_blocks = index(num_blocks), index(block_size), index(null_blocks)
        if num_blocks < 1 or block_size < 1:
            raise UsageError(
                f"paged memory of {num_blocks} blocks of {block_size} tokens holds nothing. "
                "Give at least one block of one token."
            )
        self.num_blocks = num_blocks
        self.null_blocks = null_blocks
        self.block_size = block_size
        self.capacity_tokens = num_blocks * block_size
        self.free_blocks = num_blocks
        self.clock = 0
        """Iterations that decoding sequences have room for."""
        self.internal_tokens = 0
        """Rests of last blocks already held."""
        self._decoding = 0
        self._due = array("q", [0]) * block_size
        """Decoding sequences by the clock, modulo the block size, at which they need a block."""
        self._rests = [NEVER]
        """A heap of the last blocks that decoding sequences will take and not fill: clock · block size + rest."""
        self._withdrawn: Counter[int] = Counter()
        """Those of its entries that nobody will take any more, and how often."""
        self._ended: set[Sequence] = set()

    @property
    def free_tokens(self) -> int:
        return self.free_blocks * self.block_size

    @property
    def held_tokens(self) -> int:
        return (self.num_blocks - self.free_blocks) * self.block_size

    @property
    def held(self) -> int:
        return self.num_blocks - self.free_blocks

    def external_tokens(self, head: Sequence | None) -> int:
        return 0

    def fits(self, sequence: Sequence, tokens: int | None = None, spare: int = 0) -> bool:
        most = sequence.final_computed if tokens is None else tokens
        return -(-most // self.block_size) + spare <= self.num_blocks

    def reserve_room(self, share: float) -> int:
        return int(share * (self.num_blocks + self.null_blocks))

    def cached_tokens(self, sequence: Sequence) -> int:
        return 0

    def complete(self, sequence: Sequence) -> None:
        pass

    def share(self, leader: Sequence, follower: Sequence) -> None:
        raise TypeError(f"{type(self).__name__} shares no prompts")

    def forget(self, sequence: Sequence) -> None:
        pass

    # -- room taken explicitly -------------------------------------------------------------------

    def room(self, sequence: Sequence, tokens: int, spare: int = 0) -> bool:
        need = -(-tokens // self.block_size) - sequence.held
        return (need if need > 0 else 0) + spare <= self.free_blocks

    def take(self, sequence: Sequence, tokens: int, spare: int = 0) -> bool:
        size, held = self.block_size, sequence.held
        blocks = -(-tokens // size)
        need = blocks - held
        if need <= 0:
            return True
        if need + spare > self.free_blocks:
            return False
        self.free_blocks -= need
        sequence.held = blocks
        if not held and sequence.padding_tokens:
            self.internal_tokens += sequence.padding_tokens
        if blocks == -(-sequence.final_computed // size):
            self.internal_tokens += -sequence.final_computed % size
        return True

    def release(self, sequence: Sequence) -> int:
        if sequence.held < 0:
            self.part(sequence)
        blocks = sequence.held
        if blocks:
            self.free_blocks += blocks
            self.internal_tokens -= self._internal(sequence)
            sequence.held = 0
        if self._ended:
            self._ended.discard(sequence)
        return blocks

    def end(self, sequence: Sequence) -> None:
        self.part(sequence)
        self.internal_tokens -= self._internal(sequence)
        self._ended.add(sequence)
        self.internal_tokens += self._internal(sequence)

    def _internal(self, sequence: Sequence) -> int:
        """The part of what a sequence that does not decode holds and will never fill."""
        held, size = sequence.held, self.block_size
        if self._ended and sequence in self._ended:
            return held * size
        if held == -(-sequence.final_computed // size):
            return sequence.padding_tokens + -sequence.final_computed % size
        return sequence.padding_tokens if held else 0

    # -- room that grows with the clock ----------------------------------------------------------

    def join(self, sequence: Sequence) -> None:
        size, final, origin = self.block_size, sequence.final_computed, sequence.origin
        self._due[origin % size] += 1
        self._decoding += 1
        rest = -final % size
        if rest and sequence.held < -(-final // size):
            heappush(self._rests, self._last_block_at(sequence) * size + rest)
        sequence.held = -1  # follows from the origin until it parts

    def part(self, sequence: Sequence) -> None:
        size, final = self.block_size, sequence.final_computed
        self._due[sequence.origin % size] -= 1
        self._decoding -= 1
        held = sequence.held = self._blocks_now(sequence)
        rest = -final % size
        if rest and held < -(-final // size):
            self._withdrawn[self._last_block_at(sequence) * size + rest] += 1

    def _blocks_now(self, sequence: Sequence) -> int:
        """Blocks that a decoding *sequence* uses."""
        return -((sequence.origin - self.clock) // self.block_size)

    def _last_block_at(self, sequence: Sequence) -> int:
        """The clock with which a decoding *sequence* takes its last block."""
        size = self.block_size
        at = sequence.origin + (sequence.final_computed - 1) // size * size + 1
        return at if at > self.clock else self.clock + 1

    def due(self, sequence: Sequence) -> bool:
        return (self.clock - sequence.origin) % self.block_size == 0

    def grow(self, spare: int = 0) -> bool:
        size, clock = self.block_size, self.clock
        need = self._due[clock % size]
        if need:
            if need + spare > self.free_blocks:
                return False
            self.free_blocks -= need
        elif spare > self.free_blocks:
            return False
        self.clock = clock = clock + 1
        if self._rests[0] < (clock + 1) * size:
            self._take_rests(clock)
        return True

    def headroom(self, most: int, spare: int = 0) -> int:
        size, decoding, free = self.block_size, self._decoding, self.free_blocks - spare
        if free < 0:
            return 0
        if decoding * (most // size + 1) <= free:
            return most
        turns = min(free // decoding, most // size) if decoding else 0
        taken, free, at = turns * size, free - turns * decoding, self.clock
        while taken < most:
            free -= self._due[at % size]
            if free < 0:
                break
            at += 1
            taken += 1
        return taken

    def advance(self, iterations: int, growth: Growth) -> None:
        more = iterations - 1
        if self._decoding:
            size, due = self.block_size, self._due
            at = self.clock % size
            if at + more <= size:
                due = due[at : at + more]
                blocks = sum(due)
            else:
                due = due[at:] + due[:at]
                blocks = more // size * self._decoding + sum(due[: more % size])
                if more < size:
                    due = due[:more]
            if blocks:
                self.free_blocks -= blocks
                growth.held(due, size)
        until = self.clock + more
        if self._rests[0] < (until + 1) * self.block_size:
            for at, rest in self._take_rests(until):
                growth.internal(at - self.clock, rest)
        self.clock = until

    def _take_rests(self, until: int) -> list[tuple[int, int]]:
        """Last blocks are taken up to the clock *until*: (clock, rest) of each."""
        rests, size, taken = self._rests, self.block_size, []
        beyond = (until + 1) * size
        while rests[0] < beyond:
            entry = heappop(rests)
            if entry in self._withdrawn:
                self._withdrawn[entry] -= 1
                if not self._withdrawn[entry]:
                    del self._withdrawn[entry]
                continue
            at, rest = divmod(entry, size)
            self.internal_tokens += rest
            taken.append((at, rest))
        return taken

    def check(self, batch: Any) -> None:
        held = internal = 0
        for sequence in batch.members:
            blocks = sequence.held
            if blocks < 0:
                blocks = self._blocks_now(sequence)
                internal += sequence.padding_tokens
                if blocks == -(-sequence.final_computed // self.block_size):
                    internal += -sequence.final_computed % self.block_size
            else:
                internal += self._internal(sequence)
            held += blocks - self._borrowed_blocks(sequence)
        assert held == self.num_blocks - self.free_blocks, (held, self.free_blocks)
        assert 0 <= self.free_blocks <= self.num_blocks
        assert internal == self.internal_tokens, (internal, self.internal_tokens)

    def _borrowed_blocks(self, sequence: Sequence) -> int:
        """Those that *sequence* uses and another holds."""
        return 0

    def log_fields(self) -> dict[str, Any]:
        return {}

    def describe(self) -> dict[str, Any]:
        return {"name": "paged", "num_blocks": self.num_blocks, "block_size": self.block_size}

    def __getstate__(self) -> tuple[dict[str, Any], object]:
        """For copies and for other processes."""
        return state_of(self)

    def __setstate__(self, state: tuple[dict[str, Any], Any]) -> None:
        give_state(self, state)
