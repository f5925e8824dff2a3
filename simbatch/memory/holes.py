"""First-fit and best-fit placement: pieces of any size in holes of any size.

Nothing is rounded away, but holes that lie between pieces may each be too small for the next
one: external fragmentation in its textbook form.

Invariant: two holes never touch; what is given back merges with the holes on both sides.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator


class _Holes:
    """The holes of an arena, by address and by size. A rule chooses among them."""

    def __init__(self, capacity_tokens: int) -> None:
        self.capacity_tokens = capacity_tokens
        self.free_tokens = capacity_tokens
        self._starts = [0]
        self._sizes = [capacity_tokens]
        """Sizes of the holes, in the order of `_starts`."""
        self._by_size = [(capacity_tokens, 0)]
        """(size, start) of each hole, ascending."""

    @property
    def largest_free_piece_tokens(self) -> int:
        return self._by_size[-1][0] if self._by_size else 0

    def rounded(self, tokens: int) -> int:
        """As it is."""
        return tokens

    def place(self, tokens: int) -> int | None:
        if not self._by_size or self._by_size[-1][0] < tokens:
            return None
        at = self._choose(tokens)
        start, size = self._starts[at], self._sizes[at]
        self._forget(size, start)
        if size == tokens:
            del self._starts[at], self._sizes[at]
        else:
            self._starts[at], self._sizes[at] = start + tokens, size - tokens
            insort(self._by_size, (size - tokens, start + tokens))
        self.free_tokens -= tokens
        return start

    def _choose(self, tokens: int) -> int:
        """Index of the hole to place *tokens* in; at least one is large enough."""
        raise NotImplementedError

    def remove(self, start_token: int, tokens: int) -> None:
        self.free_tokens += tokens
        starts, sizes = self._starts, self._sizes
        at = bisect_left(starts, start_token)
        if at < len(starts) and starts[at] == start_token + tokens:
            tokens += sizes[at]
            self._forget(sizes[at], starts[at])
            del starts[at], sizes[at]
        if at and starts[at - 1] + sizes[at - 1] == start_token:
            at -= 1
            start_token = starts[at]
            self._forget(sizes[at], start_token)
            tokens += sizes[at]
            sizes[at] = tokens
        else:
            starts.insert(at, start_token)
            sizes.insert(at, tokens)
        insort(self._by_size, (tokens, start_token))

    def _forget(self, size_tokens: int, start_token: int) -> None:
        del self._by_size[bisect_left(self._by_size, (size_tokens, start_token))]

    def smaller_tokens(self, tokens: int) -> int:
        if self.largest_free_piece_tokens < tokens:
            return self.free_tokens
        return sum(size for size, _ in self._by_size[: bisect_left(self._by_size, (tokens, 0))])

    def free_pieces(self) -> Iterator[tuple[int, int]]:
        return zip(self._starts, self._sizes, strict=True)

    def check(self) -> None:
        holes = list(self.free_pieces())
        assert self.free_tokens == sum(size for _, size in holes)
        assert self._by_size == sorted((size, start) for start, size in holes)
        end = -1
        for start, size in holes:
            assert size > 0, (start, size)
            assert start > end, (start, end)
            end = start + size


class FirstFit(_Holes):
    """Places a piece in the hole at the lowest address that takes it. Looks at the holes one by one.

    >>> arena = FirstFit(48)
    >>> arena.place(5), arena.place(16), arena.free_tokens
    (0, 5, 27)
    """

    name = "first-fit"

    def _choose(self, tokens: int) -> int:
        return next(at for at, size in enumerate(self._sizes) if size >= tokens)


class BestFit(_Holes):
    """Places a piece in the smallest hole that takes it, the lowest address among equals."""

    name = "best-fit"

    def _choose(self, tokens: int) -> int:
        _, start = self._by_size[bisect_left(self._by_size, (tokens, 0))]
        return bisect_left(self._starts, start)
