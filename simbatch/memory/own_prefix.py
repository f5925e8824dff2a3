"""Prefix caching where no two requests share anything: only a preempted one finds blocks, its own.

This is `PrefixCachingMemory` for a trace without prefix identity, to the last block, at the price of
counting. A released sequence leaves its full blocks in the cache as one run, which is eaten from its
tail as blocks are taken for new content; what is left when it comes back is what it finds. Since
those blocks are all free ones, a hit never changes who fits, only how much is to be computed.

What has been taken is booked as late as possible: before a run is added or looked up, since between
two such moments the order of takings does not matter.

Invariant: booked, free blocks are the anonymous ones plus those of the idle runs.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from simbatch.compiled import mypyc_attr
from simbatch.memory.paged import PagedMemory
from simbatch.request import Sequence


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class OwnPrefixMemory(PagedMemory):
    """See `PrefixCachingMemory` for *unhashed_first* and *lag*."""

    takes_padding = False

    def __init__(
        self,
        num_blocks: int,
        block_size: int = 16,
        *,
        null_blocks: int = 0,
        unhashed_first: bool = True,
        lag: int = 0,
    ) -> None:
        super().__init__(num_blocks, block_size, null_blocks=null_blocks)
        self.unhashed_first = unhashed_first
        self.lag = lag
        self._anonymous = num_blocks
        """Free blocks without content, next to be taken."""
        self._idle: OrderedDict[object, int] = OrderedDict()
        """Runs of free blocks in the order in which they will be taken: whose (or nobody's), and how many."""
        self._idle_blocks = 0
        self._holders: dict[Sequence, int] = {}
        """Who holds blocks, and how many of its tokens were known when it last took some: those can be found."""

    def cached_tokens(self, sequence: Sequence) -> int:
        if not sequence.preemptions:
            return 0
        self._book()
        return self._idle.get(sequence, 0) * self.block_size

    def take(self, sequence: Sequence, tokens: int, spare: int = 0) -> bool:
        if sequence.preemptions and not sequence.held and self.room(sequence, tokens, spare):
            self._book()
            found = self._idle.pop(sequence, 0)
            self._idle_blocks -= found
            sequence.held = found
            self.free_blocks -= found
            spare = 0
        if not super().take(sequence, tokens, spare):
            return False
        self._holders[sequence] = tokens
        return True

    def release(self, sequence: Sequence) -> int:
        self._book()
        blocks = super().release(sequence)
        entered = self._holders.pop(sequence, None)
        if entered is not None:
            full = min(entered // self.block_size, blocks)
            if self.unhashed_first:
                self._anonymous += blocks - full
            elif blocks > full:
                self._idle[object()] = blocks - full
                self._idle_blocks += blocks - full
            if full:
                self._idle[sequence] = full
                self._idle_blocks += full
        return blocks

    def complete(self, sequence: Sequence) -> None:
        self._holders[sequence] = sequence.final_computed

    def part(self, sequence: Sequence) -> None:
        self._holders[sequence] = self._findable(sequence)
        super().part(sequence)

    def _findable(self, sequence: Sequence) -> int:
        """Tokens of *sequence* up to which full blocks can be found."""
        known = self._holders.get(sequence, 0)
        if sequence.held < 0:
            known = max(known, self.clock - sequence.origin - self.lag)
        return known

    def _book(self) -> None:
        """What was taken since the last time: anonymous blocks, then the oldest run from its tail."""
        blocks = self._anonymous + self._idle_blocks - self.free_blocks
        if blocks <= self._anonymous:
            self._anonymous -= blocks
            return
        blocks -= self._anonymous
        self._anonymous = 0
        self._idle_blocks -= blocks
        while blocks:
            owner, left = next(iter(self._idle.items()))
            taken = min(blocks, left)
            blocks -= taken
            if taken == left:
                del self._idle[owner]
            else:
                self._idle[owner] = left - taken

    def check(self, batch: Any) -> None:
        super().check(batch)
        self._book()
        assert sum(self._idle.values()) == self._idle_blocks
        assert self._anonymous + self._idle_blocks == self.free_blocks
        assert set(self._holders) == {s for s in batch.members if s.held}

    def log_fields(self) -> dict[str, Any]:
        self._book()
        held = sum(self._findable(sequence) // self.block_size for sequence in self._holders)
        idle = sum(blocks for owner, blocks in self._idle.items() if isinstance(owner, Sequence))
        return {"hashed": held + idle}

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "name": "paged, prefix caching"}
