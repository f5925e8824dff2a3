"""Where pieces go: worked examples, and every placement against a row of cells that is counted one by one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simbatch.errors import UsageError
from simbatch.memory.buddy import Buddy
from simbatch.memory.holes import BestFit, FirstFit
from simbatch.memory.placement import PLACEMENTS, Placement, arena

FITS = ("first-fit", "best-fit")


class Cells:
    """The same rules, told by looking at every token of the arena."""

    def __init__(self, placement: str, capacity: int) -> None:
        self.placement = placement
        self.cells = [False] * capacity

    def free_pieces(self) -> list[tuple[int, int]]:
        if self.placement == "buddy":
            pieces, start, capacity = [], 0, len(self.cells)
            for order in reversed(range(capacity.bit_length())):
                if capacity >> order & 1:
                    pieces += self._halves(start, 1 << order)
                    start += 1 << order
            return pieces
        pieces = []
        for at, taken in enumerate(self.cells):
            if taken:
                continue
            if pieces and sum(pieces[-1]) == at:
                pieces[-1] = (pieces[-1][0], pieces[-1][1] + 1)
            else:
                pieces.append((at, 1))
        return pieces

    def _halves(self, start: int, size: int) -> list[tuple[int, int]]:
        taken = sum(self.cells[start : start + size])
        if not taken:
            return [(start, size)]
        if taken == size:
            return []
        return self._halves(start, size // 2) + self._halves(start + size // 2, size // 2)

    def rounded(self, tokens: int) -> int:
        size = 1
        while size < tokens:
            size *= 2
        return size if self.placement == "buddy" else tokens

    def place(self, tokens: int) -> int | None:
        size = self.rounded(tokens)
        large = [(start, free) for start, free in self.free_pieces() if free >= size]
        if not large:
            return None
        start, _ = large[0] if self.placement == "first-fit" else min(large, key=lambda piece: (piece[1], piece[0]))
        self._fill(start, size, True)
        return start

    def remove(self, start: int, tokens: int) -> None:
        self._fill(start, self.rounded(tokens), False)

    def _fill(self, start: int, size: int, taken: bool) -> None:
        assert self.cells[start : start + size] == [not taken] * size
        self.cells[start : start + size] = [taken] * size


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(sorted(PLACEMENTS)),
    st.integers(1, 130),
    st.lists(st.tuples(st.integers(-9, 0) | st.sampled_from([1, 2, 3, 4, 5, 9, 30]), st.integers(1, 130)), max_size=60),
)
def test_agrees_with_cells(placement: str, capacity: int, moves: list[tuple[int, int]]) -> None:
    ours, cells = arena(placement, capacity), Cells(placement, capacity)
    pieces: list[tuple[int, int]] = []
    for tokens, asked in moves:
        if tokens > 0:
            start = ours.place(tokens)
            assert start == cells.place(tokens)
            if start is not None:
                pieces.append((start, tokens))
        elif pieces:
            piece = pieces.pop(-tokens % len(pieces))
            ours.remove(*piece)
            cells.remove(*piece)
        ours.check()
        free = cells.free_pieces()
        assert list(ours.free_pieces()) == free
        assert ours.free_tokens == cells.cells.count(False)
        assert ours.largest_free_piece_tokens == max((size for _, size in free), default=0)
        assert ours.rounded(asked) == cells.rounded(asked)
        assert ours.smaller_tokens(asked) == sum(size for _, size in free if size < cells.rounded(asked))
    for piece in pieces:
        ours.remove(*piece)
    assert list(ours.free_pieces()) == list(arena(placement, capacity).free_pieces())


def fill(place: Placement, tokens: int) -> list[int]:
    """Starts of as many pieces of *tokens* as fit."""
    starts = []
    while (start := place.place(tokens)) is not None:
        starts.append(start)
    return starts


def test_an_arena_that_is_no_power_of_two_holds_what_divides_into_it() -> None:
    """P12: 15,728 tokens are seven pieces of 2,048, and 1,392 tokens of no use."""
    buddy = Buddy(15_728)
    assert list(buddy.free_pieces())[:3] == [(0, 8192), (8192, 4096), (12288, 2048)]
    assert sorted(fill(buddy, 2048)) == [2048 * i for i in range(7)]
    assert buddy.free_tokens == buddy.smaller_tokens(2048) == 1392
    assert buddy.largest_free_piece_tokens == 1024


@given(st.integers(1, 5000), st.integers(0, 12))
def test_buddy_holds_capacity_over_length_for_powers_of_two(capacity: int, order: int) -> None:
    assert len(fill(Buddy(capacity), 1 << order)) == capacity >> order


@given(st.sampled_from(FITS), st.integers(1, 2000), st.integers(1, 300))
def test_fits_hold_capacity_over_length_for_any_length(placement: str, capacity: int, length: int) -> None:
    assert len(fill(arena(placement, capacity), length)) == capacity // length


@pytest.mark.parametrize("placement", FITS)
def test_free_in_all_is_enough_but_no_hole_is(placement: str) -> None:
    place = arena(placement, 100)
    starts = fill(place, 10)
    for start in starts[::2]:
        place.remove(start, 10)
    assert (place.free_tokens, place.largest_free_piece_tokens) == (50, 10)
    assert place.place(11) is None
    assert (place.smaller_tokens(11), place.smaller_tokens(10)) == (50, 0)
    place.remove(starts[1], 10)  # the hole on each side and this one are one hole now
    assert next(place.free_pieces()) == (0, 30)
    assert place.place(11) == 0


def test_first_fit_and_best_fit_differ() -> None:
    """Holes of 30 and 10: a piece of 10 takes the first one or the one that it fills."""
    for place, expected, largest in ((FirstFit(100), 0, 20), (BestFit(100), 60, 30)):
        for tokens in (30, 30, 10, 30):
            place.place(tokens)
        place.remove(0, 30)
        place.remove(60, 10)
        assert place.place(10) == expected
        assert place.largest_free_piece_tokens == largest
    first = FirstFit(100)
    assert [first.place(tokens) for tokens in (10, 10)] == [0, 10]
    first.remove(0, 10)
    assert first.place(10) == 0  # filled to the last token


def test_buddy_rounding_costs() -> None:
    """Five tokens too many for a block of 64: half of the next one is lost, where first fit holds three."""
    assert len(fill(Buddy(256), 69)) == 2
    assert len(fill(FirstFit(256), 69)) == 3


def test_buddies_merge_only_with_their_own_half() -> None:
    buddy = Buddy(16)
    assert fill(buddy, 4) == [0, 4, 8, 12]
    buddy.remove(4, 4)
    buddy.remove(8, 4)  # neighbours, but halves of different blocks
    assert list(buddy.free_pieces()) == [(4, 4), (8, 4)]
    assert buddy.place(8) is None
    assert buddy.place(4) == 4  # the lower of the two
    buddy.remove(4, 4)
    buddy.remove(0, 4)
    assert list(buddy.free_pieces()) == [(0, 8), (8, 4)]
    assert buddy.place(8) == 0


def test_unknown_placement_names_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"unknown placement 'bestfit'\. Did you mean best-fit"):
        arena("bestfit", 10)
    with pytest.raises(UsageError, match="contiguous memory of 0 tokens"):
        arena("buddy", 0)


def test_a_placement_of_your_own() -> None:
    assert isinstance(arena(BestFit, 10), BestFit)
