"""Paged memory: blocks handed out on demand, one at a time.

Without prefix caching blocks are anonymous and only counts matter. A decoding sequence needs a
new block every `block_size` iterations; all that share the phase of that need are one number, so
growing by one token, or by a thousand, does not visit them.

Invariant: free + held = total, and what decoding sequences hold follows from their origins.
"""

from __future__ import annotations

from heapq import heappop, heappush
from operator import mul
from typing import Any

from simbatch.errors import UsageError
from simbatch.request import Sequence


class PagedMemory:
    """*num_blocks* usable blocks of *block_size* tokens each.

    *null_blocks* more hold nothing and are not counted in anything but the watermark (vLLM V1 has one).
    """

    caches = False
    takes_padding = True
    shared_tokens = 0

    def __init__(self, num_blocks: int, block_size: int = 16, *, null_blocks: int = 0) -> None:
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
        self._due = [0] * block_size
        """Decoding sequences by the clock, modulo the block size, at which they need a block."""
        self._rest_at: dict[int, int] = {}
        """Rests of last blocks that decoding sequences will take, by clock."""
        self._rest_clocks: list[int] = []
        """A heap of those clocks, and of some at which nobody takes one any more."""
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
        need = self._blocks(sequence, tokens) - sequence.held
        return (need if need > 0 else 0) + spare <= self.free_blocks

    def take(self, sequence: Sequence, tokens: int, spare: int = 0) -> bool:
        need = self._blocks(sequence, tokens) - sequence.held
        if need <= 0:
            return True
        if need + spare > self.free_blocks:
            return False
        if not sequence.held:
            self.internal_tokens += sequence.padding_tokens
        self.free_blocks -= need
        sequence.held += need
        if sequence.held == self._blocks(sequence, sequence.final_computed):
            self.internal_tokens += -sequence.final_computed % self.block_size
        return True

    def _blocks(self, sequence: Sequence, tokens: int) -> int:
        """Blocks of its own that *sequence* holds when it has *tokens* in the cache."""
        return -(-tokens // self.block_size)

    def _blocks_now(self, sequence: Sequence) -> int:
        """Blocks that a decoding *sequence* holds."""
        return self._blocks(sequence, self.clock - sequence.origin)

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
        if sequence in self._ended:
            return sequence.held * self.block_size
        if sequence.held == self._blocks(sequence, sequence.final_computed):
            return sequence.padding_tokens + -sequence.final_computed % self.block_size
        return sequence.padding_tokens if sequence.held else 0

    # -- room that grows with the clock ----------------------------------------------------------

    def join(self, sequence: Sequence) -> None:
        size = self.block_size
        self._due[sequence.origin % size] += 1
        self._decoding += 1
        rest = -sequence.final_computed % size
        if rest and sequence.held < self._blocks(sequence, sequence.final_computed):
            at = self._last_block_at(sequence)
            if at in self._rest_at:
                self._rest_at[at] += rest
            else:
                self._rest_at[at] = rest
                heappush(self._rest_clocks, at)
        sequence.held = -1  # follows from the origin until it parts

    def part(self, sequence: Sequence) -> None:
        size = self.block_size
        self._due[sequence.origin % size] -= 1
        self._decoding -= 1
        sequence.held = self._blocks_now(sequence)
        rest = -sequence.final_computed % size
        if rest and sequence.held < self._blocks(sequence, sequence.final_computed):
            at = self._last_block_at(sequence)
            self._rest_at[at] -= rest
            if not self._rest_at[at]:
                del self._rest_at[at]

    def _last_block_at(self, sequence: Sequence) -> int:
        """The clock with which a decoding *sequence* takes its last block."""
        size = self.block_size
        at = sequence.origin + (sequence.final_computed - 1) // size * size + 1
        return at if at > self.clock else self.clock + 1

    def due(self, sequence: Sequence) -> bool:
        return (self.clock - sequence.origin) % self.block_size == 0

    def grow(self, spare: int = 0) -> bool:
        need = self._due[self.clock % self.block_size]
        if need + spare > self.free_blocks:
            return False
        self.free_blocks -= need
        self.clock += 1
        if self._rest_clocks and self._rest_clocks[0] <= self.clock:
            self._take_rests(self.clock)
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

    def advance(self, iterations: int, first_ps: int, increment_ps: int) -> tuple[int, int]:
        more = iterations - 1
        total = iterations * first_ps + increment_ps * (iterations * more // 2)
        blocks = (self.num_blocks - self.free_blocks) * total
        internal = self.internal_tokens * total
        if self._decoding:
            # A block taken j iterations into the stretch is held for the time that is left then.
            due, at = self._due, self.clock % self.block_size
            due = due[at:] + due[:at]
            taken, elapsed = _taken(due, more, first_ps, increment_ps)
            self.free_blocks -= taken
            blocks += taken * total - elapsed
        until = self.clock + more
        if self._rest_clocks and self._rest_clocks[0] <= until:
            for at, rest in self._take_rests(until):
                j = at - self.clock
                internal += rest * (total - j * first_ps - increment_ps * (j * (j - 1) // 2))
        self.clock = until
        return blocks * self.block_size, internal

    def _take_rests(self, until: int) -> list[tuple[int, int]]:
        """Last blocks are taken up to the clock *until*: (clock, rests of those blocks)."""
        clocks, taken = self._rest_clocks, []
        while clocks and clocks[0] <= until:
            at = heappop(clocks)
            rest = self._rest_at.pop(at, 0)
            if rest:
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
                if blocks == self._blocks(sequence, sequence.final_computed):
                    internal += -sequence.final_computed % self.block_size
            else:
                internal += self._internal(sequence)
            held += blocks
        assert held == self.num_blocks - self.free_blocks, (held, self.free_blocks)
        assert 0 <= self.free_blocks <= self.num_blocks
        assert internal == self.internal_tokens, (internal, self.internal_tokens)

    def log_fields(self) -> dict[str, Any]:
        return {}

    def describe(self) -> dict[str, Any]:
        return {"name": "paged", "num_blocks": self.num_blocks, "block_size": self.block_size}


_ONES = tuple(range(1, 1025))
_PAIRS = tuple(j * (j - 1) // 2 for j in _ONES)


def _taken(due: list[int], iterations: int, first_ps: int, increment_ps: int) -> tuple[int, int]:
    """Blocks taken in as many *iterations*, of which the first takes due[0] and so on, round and round.

    Returns how many, and the sum of the times that have passed when each is taken. After x
    iterations E(x) = x·first + increment·x(x-1)/2 has passed, so E(x + y) = E(x) + E(y) + increment·x·y:
    sums over turns of *due* follow from three sums over one.
    """
    size = len(due)
    blocks = elapsed = 0
    if iterations >= size:
        turns = iterations // size
        iterations -= turns * size
        members, ones, pairs = _sums(due)
        steps = turns * (turns - 1) // 2
        starts = size * (size * (steps * (2 * turns - 1) // 3) - steps) // 2
        blocks = turns * members
        elapsed = turns * (first_ps * ones + increment_ps * pairs)
        elapsed += members * (first_ps * size * steps + increment_ps * starts) + increment_ps * size * steps * ones
        if not iterations:
            return blocks, elapsed
        before = turns * size
        members, ones, pairs = _sums(due[:iterations])
        elapsed += members * (first_ps * before + increment_ps * (before * (before - 1) // 2))
        elapsed += increment_ps * before * ones
    else:
        members, ones, pairs = _sums(due[:iterations])
    return blocks + members, elapsed + first_ps * ones + increment_ps * pairs


def _sums(due: list[int]) -> tuple[int, int, int]:
    """Sums of due, of due times its place j (from 1), and of due times j(j-1)/2."""
    if len(due) <= len(_ONES):
        return sum(due), sum(map(mul, due, _ONES)), sum(map(mul, due, _PAIRS))
    places = range(1, len(due) + 1)
    return sum(due), sum(map(mul, due, places)), sum(map(mul, due, (j * (j - 1) // 2 for j in places)))
