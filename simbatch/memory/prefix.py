"""Paged memory with prefix caching: full blocks are found again by their content.

A block becomes findable in the planning of the iteration that fills it. Blocks that somebody holds
are shared by reference count; those that nobody holds stay findable until they are taken for new
content, the least recently released first and, of one sequence, the tail before the head. They
count as free, and a hit takes them out of the free pool.

Invariant: free blocks are the anonymous ones plus the idle ones, and a block is idle exactly if it
has a key and nobody holds it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from simbatch.compiled import mypyc_attr
from simbatch.growth import Growth
from simbatch.memory.content import Content, Contents, Key
from simbatch.memory.paged import PagedMemory
from simbatch.request import Sequence


class Block:
    """A block in use or idle. `key` is None until it is full."""

    __slots__ = ("key", "users")

    def __init__(self) -> None:
        self.key: Key | None = None
        self.users = 1


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class PrefixCachingMemory(PagedMemory):
    """Requests may quote each other's prompts and answers; see `OwnPrefixMemory` where they do not.

    *unhashed_first*: are released blocks without a key the next to be reused (vLLM 0.33), or do
    they queue behind all others (0.11)? *lag*: by how many iterations does a plan run ahead of the
    tokens it counts on? A block that such a token completes becomes findable so much later.
    """

    caches = True
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
        self.shared_tokens = 0
        """Tokens that more than one sequence holds, counted for each holder but the first."""
        self._contents = Contents(block_size)
        self._anonymous = num_blocks
        """Free blocks without content, next to be taken."""
        self._idle: OrderedDict[Block, None] = OrderedDict()
        """Free blocks behind them, in the order in which they will be taken."""
        self._cached: dict[Key, list[Block]] = {}
        """Blocks by content, the one entered first in front."""
        self._tables: dict[Sequence, list[Block]] = {}
        self._content: dict[Sequence, Content] = {}
        """Of sequences in the engine, kept over a preemption."""
        self._decoders: list[dict[Sequence, None]] = [{} for _ in range(block_size)]
        """Decoding sequences by the clock, modulo the block size, at which they need a block."""
        self._found: list[Block] = []
        self._found_for: Sequence | None = None
        """Whose lookup `_found` is; None as soon as anything has changed since."""

    @property
    def hashed(self) -> int:
        """Distinct contents that can be found."""
        return len(self._cached)

    # -- looking up and taking -------------------------------------------------------------------

    def cached_tokens(self, sequence: Sequence) -> int:
        """Tokens of *sequence*, which holds nothing, that would be found: whole blocks, and never all of it."""
        content = self._content_of(sequence)
        found = []
        for block in range((sequence.known - 1) // self.block_size):
            copies = self._cached.get(content.key(block))
            if copies is None:
                break
            found.append(copies[0])
        self._found, self._found_for = found, sequence
        return len(found) * self.block_size

    def room(self, sequence: Sequence, tokens: int, spare: int = 0) -> bool:
        if self._found_for is not sequence:
            return super().room(sequence, tokens, spare)
        return self._need(tokens) + spare <= self.free_blocks

    def _need(self, tokens: int) -> int:
        """Free blocks that *tokens* would take beside the blocks found, idle ones among those included."""
        idle = sum(not block.users for block in self._found)
        return max(0, -(-tokens // self.block_size) - len(self._found)) + idle

    def take(self, sequence: Sequence, tokens: int, spare: int = 0) -> bool:
        if self._found_for is sequence and self._found:
            if self._need(tokens) + spare > self.free_blocks:
                return False
            self._use(sequence, self._found)
        before = self.free_blocks
        if not super().take(sequence, tokens, spare):
            return False
        table = self._tables.setdefault(sequence, [])
        table.extend(self._pop() for _ in range(before - self.free_blocks))
        self._found_for = None
        self._enter(sequence, table, tokens // self.block_size)
        return True

    def _use(self, sequence: Sequence, found: list[Block]) -> None:
        """*sequence* starts with the blocks *found*."""
        for block in found:
            if block.users:
                self.shared_tokens += self.block_size
            else:
                del self._idle[block]
                self.free_blocks -= 1
            block.users += 1
        self._tables[sequence] = list(found)
        sequence.held = len(found)

    def _pop(self) -> Block:
        """A block for new content; what it held before is forgotten."""
        if self._anonymous:
            self._anonymous -= 1
        else:
            block, _ = self._idle.popitem(last=False)
            if block.key is not None:
                self._forget(block)
        return Block()

    def _forget(self, block: Block) -> None:
        assert block.key is not None
        copies = self._cached[block.key]
        copies.remove(block)
        if not copies:
            del self._cached[block.key]

    def _enter(self, sequence: Sequence, table: list[Block], full: int) -> None:
        """The first *full* blocks of *table* can be found from now on."""
        content = self._content_of(sequence)
        for block in range(full - 1, -1, -1):
            if table[block].key is not None:
                break
        else:
            block = -1
        for i in range(block + 1, full):
            key = table[i].key = content.key(i)
            self._cached.setdefault(key, []).append(table[i])

    def _content_of(self, sequence: Sequence) -> Content:
        content = self._content.get(sequence)
        if content is None:
            content = self._content[sequence] = self._contents.of(sequence)
        return content

    def release(self, sequence: Sequence) -> int:
        if sequence.held < 0:
            self.part(sequence)
        blocks = sequence.held
        self.internal_tokens -= self._internal(sequence)
        self._ended.discard(sequence)
        sequence.held = 0
        self._found_for = None
        for block in reversed(self._tables.pop(sequence, ())):
            block.users -= 1
            if block.users:
                self.shared_tokens -= self.block_size
                continue
            self.free_blocks += 1
            if block.key is None and self.unhashed_first:
                self._anonymous += 1
            else:
                self._idle[block] = None
        return blocks

    def complete(self, sequence: Sequence) -> None:
        self._enter(sequence, self._tables[sequence], sequence.final_computed // self.block_size)

    def forget(self, sequence: Sequence) -> None:
        self._content.pop(sequence, None)

    # -- decoding --------------------------------------------------------------------------------

    def join(self, sequence: Sequence) -> None:
        super().join(sequence)
        self._decoders[sequence.origin % self.block_size][sequence] = None

    def part(self, sequence: Sequence) -> None:
        super().part(sequence)
        del self._decoders[sequence.origin % self.block_size][sequence]

    def grow(self, spare: int = 0) -> bool:
        clock = self.clock
        if not super().grow(spare):
            return False
        self._turn(clock)
        return True

    def advance(self, iterations: int, growth: Growth) -> None:
        clock = self.clock
        super().advance(iterations, growth)
        for at in range(clock, self.clock):
            self._turn(at)

    def _turn(self, clock: int) -> None:
        """Every decoding sequence grew by one token when the clock stood at *clock*: blocks begin and become full."""
        size = self.block_size
        self._found_for = None
        for sequence in _in_order(self._decoders[clock % size]):
            self._tables[sequence].append(self._pop())
        full = clock + 1 - self.lag
        for sequence in _in_order(self._decoders[full % size]):
            self._enter(sequence, self._tables[sequence], (full - sequence.origin) // size)

    def check(self, batch: Any) -> None:
        users: dict[Block, int] = {}
        for sequence in batch.members:
            blocks = sequence.held
            if blocks < 0:
                blocks = -(-(self.clock - sequence.origin) // self.block_size)
            table = self._tables.get(sequence, [])
            assert len(table) == blocks, (sequence, len(table), blocks)
            for block in table:
                users[block] = users.get(block, 0) + 1
        assert len(self._tables) == sum(bool(table) for table in self._tables.values())
        assert all(block.users == count for block, count in users.items())
        assert sum(count - 1 for count in users.values()) * self.block_size == self.shared_tokens
        assert all(block.users == 0 for block in self._idle)
        assert self._anonymous + len(self._idle) == self.free_blocks
        assert len(users) + self.free_blocks == self.num_blocks, (len(users), self.free_blocks)
        assert all(block.key == key for key, copies in self._cached.items() for block in copies)

    def log_fields(self) -> dict[str, Any]:
        return {"hashed": self.hashed}

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "name": "paged, prefix caching"}


def _in_order(sequences: dict[Sequence, None]) -> list[Sequence]:
    """In the order of the running list."""
    return sorted(sequences, key=lambda sequence: sequence.rank) if len(sequences) > 1 else list(sequences)
