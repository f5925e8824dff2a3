"""Buddy placement: pieces are powers of two, and a freed piece merges with its other half.

An arena that is no power of two is a row of whole blocks, the largest first, one for each bit of
its size, so that every block starts at a multiple of its own size and the rest is not lost.

Invariant: two free halves of one block never lie beside each other; they are that block.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator


class Buddy:
    """Places a piece in the smallest free block that takes it, the lowest address first.

    >>> arena = Buddy(48)
    >>> arena.place(5), arena.place(16), arena.free_tokens
    (32, 0, 24)
    """

    name = "buddy"

    def __init__(self, capacity_tokens: int) -> None:
        self.capacity_tokens = capacity_tokens
        self.free_tokens = capacity_tokens
        self._free: list[list[int]] = [[] for _ in range(capacity_tokens.bit_length())]
        """Starts of the free blocks of 2**order tokens, by order, ascending."""
        self._orders = capacity_tokens
        """Bit *order* is set while there is a free block of that order."""
        start = 0
        for order in reversed(range(capacity_tokens.bit_length())):
            if capacity_tokens >> order & 1:
                self._free[order].append(start)
                start += 1 << order

    @property
    def largest_free_piece_tokens(self) -> int:
        return 1 << self._orders.bit_length() - 1 if self._orders else 0

    def rounded(self, tokens: int) -> int:
        """The next power of two."""
        return 1 << (tokens - 1).bit_length()

    def place(self, tokens: int) -> int | None:
        order = (tokens - 1).bit_length()
        enough = self._orders >> order
        if not enough:
            return None
        at = order + (enough & -enough).bit_length() - 1
        blocks = self._free[at]
        start = blocks.pop(0)
        if not blocks:
            self._orders ^= 1 << at
        if at > order:
            # No block of an order between the two was free: each gets its one upper half.
            self._orders |= (1 << at) - (1 << order)
            while at > order:
                at -= 1
                self._free[at].append(start + (1 << at))
        self.free_tokens -= 1 << order
        return start

    def remove(self, start_token: int, tokens: int) -> None:
        order = (tokens - 1).bit_length()
        self.free_tokens += 1 << order
        while True:
            # Beyond a block of the arena's own row lies a smaller one, so the search ends there by itself.
            blocks, other = self._free[order], start_token ^ (1 << order)
            at = bisect_left(blocks, other)
            if at == len(blocks) or blocks[at] != other:
                break
            del blocks[at]
            if not blocks:
                self._orders ^= 1 << order
            start_token = min(start_token, other)
            order += 1
        insort(blocks, start_token)
        self._orders |= 1 << order

    def smaller_tokens(self, tokens: int) -> int:
        order = (tokens - 1).bit_length()
        return sum(len(blocks) << at for at, blocks in enumerate(self._free[:order]))

    def free_pieces(self) -> Iterator[tuple[int, int]]:
        pieces = ((start, 1 << order) for order, blocks in enumerate(self._free) for start in blocks)
        return iter(sorted(pieces))

    def check(self) -> None:
        assert self.free_tokens == sum(size for _, size in self.free_pieces())
        assert self._orders == sum(1 << order for order, blocks in enumerate(self._free) if blocks)
        for order, blocks in enumerate(self._free):
            assert blocks == sorted(set(blocks)), (order, blocks)
            for start in blocks:
                assert start % (1 << order) == 0, (order, start)
                assert start ^ (1 << order) not in blocks, (order, start)
