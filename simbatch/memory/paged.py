"""Paged memory: blocks handed out on demand, one at a time.

Without prefix caching blocks are anonymous and only counts matter. A decoding sequence needs a
new block every `block_size` iterations; all that share the phase of that need are one number, so
growing by one token, or by a thousand, does not visit them.

Invariant: free + held = total, and what decoding sequences hold follows from their origins.
"""

from __future__ import annotations

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
        self._due = [0] * block_size
        """Decoding sequences by the clock, modulo the block size, at which they need a block."""
        self._rest_at: dict[int, int] = {}
        """Rests of last blocks that decoding sequences will take, by clock."""
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
        return max(0, self._blocks(sequence, tokens) - sequence.held) + spare <= self.free_blocks

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
        self.free_blocks += blocks
        self.internal_tokens -= self._internal(sequence)
        self._ended.discard(sequence)
        sequence.held = 0
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
        rest = -sequence.final_computed % size
        if rest and sequence.held < self._blocks(sequence, sequence.final_computed):
            at = self._last_block_at(sequence)
            self._rest_at[at] = self._rest_at.get(at, 0) + rest
        sequence.held = -1  # follows from the origin until it parts

    def part(self, sequence: Sequence) -> None:
        size = self.block_size
        self._due[sequence.origin % size] -= 1
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
        if self.clock in self._rest_at:
            self.internal_tokens += self._rest_at.pop(self.clock)
        return True

    def headroom(self, most: int, spare: int = 0) -> int:
        size, due, free = self.block_size, self._due, self.free_blocks - spare
        if free < 0:
            return 0
        decoding = sum(due)
        if decoding * (most // size + 1) <= free:
            return most
        turns = min(free // decoding, most // size) if decoding else 0
        taken, free, at = turns * size, free - turns * decoding, self.clock
        while taken < most:
            free -= due[at % size]
            if free < 0:
                break
            at += 1
            taken += 1
        return taken

    def advance(self, iterations: int, first_ps: int, increment_ps: int) -> tuple[int, int]:
        total = iterations * first_ps + increment_ps * (iterations * (iterations - 1) // 2)
        size, clock = self.block_size, self.clock
        more = iterations - 1
        blocks = (self.num_blocks - self.free_blocks) * total
        internal = self.internal_tokens * total
        if not more:
            return blocks * size, internal
        # A block taken j iterations into the stretch is held for the time that is left then.
        taken = 0
        for j in range(1, min(more, size) + 1):
            due = self._due[(clock + j - 1) % size]
            if due:
                times = (more - j) // size + 1
                taken += due * times
                blocks += due * (times * total - _elapsed_sum(j, size, times, first_ps, increment_ps))
        rests = self._rest_at
        if rests:
            if more < len(rests):
                due_now = [at for at in range(clock + 1, clock + more + 1) if at in rests]
            else:
                due_now = [at for at in rests if at <= clock + more]
            for at in due_now:
                rest, j = rests.pop(at), at - clock
                internal += rest * (total - j * first_ps - increment_ps * (j * (j - 1) // 2))
                self.internal_tokens += rest
        self.free_blocks -= taken
        self.clock += more
        return blocks * size, internal

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


def _elapsed_sum(start: int, stride: int, count: int, first_ps: int, increment_ps: int) -> int:
    """Sum of the times that have passed after *start*, *start* + *stride*, … iterations, *count* of them.

    After x iterations x·first + increment·x(x-1)/2 has passed.
    """
    if count == 1:
        return start * first_ps + increment_ps * (start * (start - 1) // 2)
    steps = count * (count - 1) // 2
    sums = count * start + stride * steps
    squares = count * start * start + 2 * start * stride * steps + stride * stride * (steps * (2 * count - 1) // 3)
    return first_ps * sums + increment_ps * ((squares - sums) // 2)
