"""Block tables that stand beside the simulator's own paged memory, so that a GPU can follow its decisions.

The simulator's memory counts blocks and names none. This one is the same memory (every decision is
its parent's) that also hands out ids from a free list, in step: a sequence's table always has as many
ids as the parent says it holds.
"""

from __future__ import annotations

from typing import Any

from simbatch.growth import Growth
from simbatch.memory import PagedMemory
from simbatch.request import Sequence


class BlockTables(PagedMemory):
    """`tables` maps each holder to its block ids, in order of its tokens."""

    def __init__(self, num_blocks: int, block_size: int = 16) -> None:
        super().__init__(num_blocks, block_size)
        self.tables: dict[Sequence, list[int]] = {}
        self._free_ids = list(range(num_blocks - 1, -1, -1))
        """Last in, first out: what was just given back is used again, as a real allocator's cache lines would like."""
        self._growing: list[dict[Sequence, None]] = [{} for _ in range(block_size)]
        """Decoding sequences by the clock, modulo the block size, at which they need a block."""

    def take(self, sequence: Sequence, tokens: int, spare: int = 0) -> bool:
        if not super().take(sequence, tokens, spare):
            return False
        table = self.tables.setdefault(sequence, [])
        while len(table) < sequence.held:
            table.append(self._free_ids.pop())
        self._agree()
        return True

    def release(self, sequence: Sequence) -> int:
        blocks = super().release(sequence)
        self._free_ids.extend(reversed(self.tables.pop(sequence, ())))
        self._agree()
        return blocks

    def join(self, sequence: Sequence) -> None:
        super().join(sequence)
        self._growing[sequence.origin % self.block_size][sequence] = None

    def part(self, sequence: Sequence) -> None:
        super().part(sequence)
        del self._growing[sequence.origin % self.block_size][sequence]
        assert len(self.tables.get(sequence, ())) == sequence.held, (sequence, self.tables.get(sequence))

    def grow(self, spare: int = 0) -> bool:
        before = self.clock
        if not super().grow(spare):
            return False
        self._hand_out(before)
        self._agree()
        return True

    def advance(self, iterations: int, growth: Growth) -> None:
        before = self.clock
        super().advance(iterations, growth)
        for clock in range(before, self.clock):
            self._hand_out(clock)
        self._agree()

    def _hand_out(self, clock: int) -> None:
        """Whoever is due at *clock* gets one more block."""
        for sequence in self._growing[clock % self.block_size]:
            self.tables[sequence].append(self._free_ids.pop())

    def _agree(self) -> None:
        assert len(self._free_ids) == self.free_blocks, (len(self._free_ids), self.free_blocks)

    def place(self, sequence: Sequence) -> list[int]:
        """The block ids of *sequence*; empty for one that holds nothing."""
        return self.tables.get(sequence, [])

    def check(self, batch: Any) -> None:
        super().check(batch)
        handed = [block for table in self.tables.values() for block in table]
        assert sorted(handed + self._free_ids) == list(range(self.num_blocks)), "a block is lost or in two tables"
        for sequence in batch.members:
            held = sequence.held
            if held < 0:
                held = -(-(self.clock - sequence.origin) // self.block_size)
            assert len(self.place(sequence)) == held, (sequence, held)
