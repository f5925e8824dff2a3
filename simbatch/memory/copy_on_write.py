"""Paged memory in which parallel samples of one request share the blocks of its prompt.

A follower borrows the full blocks of its leader's prompt. The last block, partly filled, is shared
until somebody writes to it: with the first decode each follower gets a copy of its own, and the
leader keeps the original. Leader and followers come and go together.
"""

from __future__ import annotations

from simbatch.compiled import mypyc_attr
from simbatch.memory.paged import PagedMemory
from simbatch.request import Sequence


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class CopyOnWriteMemory(PagedMemory):
    """`held` of a sequence counts the blocks that it uses, borrowed ones included."""

    def __init__(self, num_blocks: int, block_size: int = 16, *, null_blocks: int = 0) -> None:
        super().__init__(num_blocks, block_size, null_blocks=null_blocks)
        self.shared_tokens = 0
        self._borrowed: dict[Sequence, int] = {}
        """Blocks of its leader that a follower uses."""
        self._sharing: dict[Sequence, int] = {}
        """Tokens that a follower in memory has in them."""
        self._copying: dict[Sequence, None] = {}
        """Followers that will get their copy of the last prompt block with the next growth."""

    def fits_together(self, group: list[Sequence], spare: int = 0) -> bool:
        """Could the samples of *group* be held to their ends if they were alone, leaving *spare* free?"""
        shared = group[0].prompt_tokens // self.block_size
        own = sum(-(-sequence.final_computed // self.block_size) - shared for sequence in group)
        return shared + own + spare <= self.num_blocks

    def share(self, leader: Sequence, follower: Sequence) -> None:
        follower.held = self._borrowed[follower] = leader.known // self.block_size
        self._share(follower, leader.known)

    def room(self, sequence: Sequence, tokens: int, spare: int = 0) -> bool:
        if not self._returns(sequence):
            return super().room(sequence, tokens, spare)
        sequence.held = self._borrowed[sequence]
        enough = super().room(sequence, tokens, spare)
        sequence.held = 0
        return enough

    def take(self, sequence: Sequence, tokens: int, spare: int = 0) -> bool:
        if not self._returns(sequence):
            return super().take(sequence, tokens, spare)
        sequence.held = borrowed = self._borrowed[sequence]
        if not super().take(sequence, tokens, spare):
            sequence.held = 0
            return False
        self._share(sequence, borrowed * self.block_size)
        return True

    def _returns(self, sequence: Sequence) -> bool:
        """Is it a follower that was thrown out, and borrows again what it comes back to?"""
        return sequence in self._borrowed and sequence not in self._sharing

    def join(self, sequence: Sequence) -> None:
        if sequence.held == self._borrowed.get(sequence) and sequence.computed % self.block_size:
            self._copying[sequence] = None
        super().join(sequence)

    def part(self, sequence: Sequence) -> None:
        super().part(sequence)
        self._copying.pop(sequence, None)

    def release(self, sequence: Sequence) -> int:
        blocks = super().release(sequence)
        borrowed = self._borrowed_blocks(sequence)
        self.free_blocks -= borrowed
        self.shared_tokens -= self._sharing.pop(sequence, 0)
        return blocks - borrowed

    def forget(self, sequence: Sequence) -> None:
        self._borrowed.pop(sequence, None)

    def due(self, sequence: Sequence) -> bool:
        return sequence in self._copying or super().due(sequence)

    def grow(self, spare: int = 0) -> bool:
        copies = len(self._copying)
        if not super().grow(spare + copies):
            return False
        self.free_blocks -= copies
        for sequence in self._copying:
            self._share(sequence, self._borrowed[sequence] * self.block_size)
        self._copying.clear()
        return True

    def _share(self, follower: Sequence, tokens: int) -> None:
        self.shared_tokens += tokens - self._sharing.get(follower, 0)
        self._sharing[follower] = tokens

    def _blocks_now(self, sequence: Sequence) -> int:
        return super()._blocks_now(sequence) - (sequence in self._copying)

    def _borrowed_blocks(self, sequence: Sequence) -> int:
        return self._borrowed[sequence] if sequence in self._sharing else 0
