"""Contiguous memory: each sequence gets one piece of a real address space, for its whole stay.

The piece is as long as a reservation rule says and lies where a placement puts it. It never
grows, so decoding costs the memory nothing, and all of the waste is decided at admission: what
the rule reserves and the output never fills, what the placement rounds away, and holes between
pieces that are too small for whoever waits.

Invariant: held + rounding + free = capacity, and pieces and holes tile the arena.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simbatch.compiled import give_state, mypyc_attr, state_of
from simbatch.errors import UsageError
from simbatch.growth import Growth
from simbatch.memory.placement import Placement, arena
from simbatch.memory.reserve import Reserve, reserve_name, reserve_rule
from simbatch.request import Sequence

Piece = tuple[int, int, Sequence | None]
"""(start, size, who holds it) in tokens; None: free."""


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class ContiguousMemory:
    """*capacity_tokens* in one address space; its own unit is the token.

    *reserve* is max, pow2, oracle or limit (see `simbatch.memory.reserve`) or a function of a
    sequence; *placement* is buddy, first-fit or best-fit, or a class of that kind.

    Raises UsageError for an unknown name, and when `max` could never be placed.
    """

    caches = False
    takes_padding = True
    shared_tokens = 0

    def __init__(
        self,
        capacity_tokens: int,
        reserve: str | Reserve = "max",
        placement: str | Callable[[int], Placement] = "buddy",
        max_model_len: int = 2048,
    ) -> None:
        self.capacity_tokens = capacity_tokens
        self.max_model_len = max_model_len
        self.reserve = reserve
        self.reservation = reserve_rule(reserve, max_model_len)
        """Tokens that a sequence reserves, or would."""
        self.placement = arena(placement, capacity_tokens)
        self.free_tokens = capacity_tokens
        self.held_tokens = 0
        self.internal_tokens = 0
        self.rounding_tokens = 0
        """Occupied beyond what was reserved, because the placement rounds."""
        self.clock = 0
        """Iterations that decoding sequences have room for."""
        self._largest_tokens = self.placement.largest_free_piece_tokens
        """The largest piece that an empty memory takes."""
        self._places: dict[Sequence, tuple[int, int]] = {}
        """(start, size) of each holder's piece."""
        self._ended: set[Sequence] = set()
        self._useless_for = -1
        """The size for which `_useless_tokens` is true; -1 when pieces have moved since."""
        self._useless_tokens = 0
        if reserve == "max" and self.placement.rounded(max_model_len) > self._largest_tokens:
            raise UsageError(
                f"contiguous memory of {capacity_tokens} tokens has no piece for a reservation of max_model_len "
                f"{max_model_len}: the largest is {self._largest_tokens} tokens. Lower max_model_len to that, give "
                "more memory, or reserve less than max."
            )

    @property
    def held(self) -> int:
        return self.held_tokens

    @property
    def largest_free_piece_tokens(self) -> int:
        """The longest piece that could be placed now."""
        return self.placement.largest_free_piece_tokens

    def pieces(self) -> list[Piece]:
        """The whole arena in order of address, rounding included in the piece it belongs to."""
        taken: list[Piece] = [(start, size, sequence) for sequence, (start, size) in self._places.items()]
        free: list[Piece] = [(start, size, None) for start, size in self.placement.free_pieces()]
        return sorted(taken + free, key=lambda piece: piece[0])

    def external_tokens(self, head: Sequence | None) -> int:
        if head is None:
            return self.rounding_tokens
        size = self.placement.rounded(self.reservation(head))
        if size != self._useless_for:
            self._useless_for = size
            self._useless_tokens = self.placement.smaller_tokens(size)
        return self.rounding_tokens + self._useless_tokens

    def fits(self, sequence: Sequence, tokens: int | None = None, spare: int = 0) -> bool:
        size = self.placement.rounded(self.reservation(sequence))
        return size <= self._largest_tokens and size + spare <= self.capacity_tokens

    def reserve_room(self, share: float) -> int:
        return int(share * self.capacity_tokens)

    def cached_tokens(self, sequence: Sequence) -> int:
        return 0

    def complete(self, sequence: Sequence) -> None:
        pass

    def share(self, leader: Sequence, follower: Sequence) -> None:
        raise TypeError(f"{type(self).__name__} shares no prompts")

    def forget(self, sequence: Sequence) -> None:
        pass

    # -- pieces ----------------------------------------------------------------------------------

    def room(self, sequence: Sequence, tokens: int, spare: int = 0) -> bool:
        if sequence.held:
            return tokens <= sequence.held
        reserved = self.reservation(sequence)
        size = self.placement.rounded(reserved)
        return (
            tokens <= reserved and size <= self.placement.largest_free_piece_tokens and size + spare <= self.free_tokens
        )

    def take(self, sequence: Sequence, tokens: int, spare: int = 0) -> bool:
        if sequence.held:
            return tokens <= sequence.held
        reserved = self.reservation(sequence)
        size = self.placement.rounded(reserved)
        if tokens > reserved or size + spare > self.free_tokens:
            return False
        start = self.placement.place(reserved)
        if start is None:
            return False
        self._places[sequence] = start, size
        sequence.held = reserved
        self.free_tokens -= size
        self.held_tokens += reserved
        self.rounding_tokens += size - reserved
        self.internal_tokens += _never_filled(sequence)
        self._useless_for = -1
        return True

    def release(self, sequence: Sequence) -> int:
        if not sequence.held:
            return 0
        start, size = self._places.pop(sequence)
        self.placement.remove(start, size)
        self.free_tokens += size
        self.held_tokens -= sequence.held
        self.rounding_tokens -= size - sequence.held
        if sequence in self._ended:
            self._ended.remove(sequence)
            self.internal_tokens -= sequence.held
        else:
            self.internal_tokens -= _never_filled(sequence)
        released, sequence.held = sequence.held, 0
        self._useless_for = -1
        return released

    def end(self, sequence: Sequence) -> None:
        self._ended.add(sequence)
        self.internal_tokens += sequence.held - _never_filled(sequence)

    # -- decoding, which never needs more ----------------------------------------------------------

    def join(self, sequence: Sequence) -> None:
        pass

    def part(self, sequence: Sequence) -> None:
        pass

    def due(self, sequence: Sequence) -> bool:
        return False

    def grow(self, spare: int = 0) -> bool:
        self.clock += 1
        return True

    def headroom(self, most: int, spare: int = 0) -> int:
        return most

    def advance(self, iterations: int, growth: Growth) -> None:
        self.clock += iterations - 1

    def check(self, batch: Any) -> None:
        self.placement.check()
        assert self.free_tokens == self.placement.free_tokens
        assert self.held_tokens + self.rounding_tokens + self.free_tokens == self.capacity_tokens
        at = 0
        for start, size, _ in self.pieces():
            assert start == at, (start, at)
            at += size
        assert at == self.capacity_tokens
        held = rounding = internal = 0
        for sequence in batch.members:
            held += sequence.held
            internal += sequence.held if sequence in batch.ended else _never_filled(sequence)
            rounding += self._places[sequence][1] - sequence.held
        assert len(self._places) == len(batch.members)
        assert held == self.held_tokens, (held, self.held_tokens)
        assert rounding == self.rounding_tokens, (rounding, self.rounding_tokens)
        assert internal == self.internal_tokens, (internal, self.internal_tokens)

    def log_fields(self) -> dict[str, Any]:
        """`pieces`: [who, start, size, reserved] in order of address."""
        places = sorted(self._places.items(), key=lambda entry: entry[1])
        return {"pieces": [[sequence.id, start, size, sequence.held] for sequence, (start, size) in places]}

    def describe(self) -> dict[str, Any]:
        return {
            "name": "contiguous",
            "capacity_tokens": self.capacity_tokens,
            "reserve": reserve_name(self.reserve),
            "placement": getattr(self.placement, "name", type(self.placement).__name__),
            "max_model_len": self.max_model_len,
        }

    def __getstate__(self) -> tuple[dict[str, Any], object]:
        """For copies and for other processes."""
        return state_of(self)

    def __setstate__(self, state: tuple[dict[str, Any], Any]) -> None:
        give_state(self, state)


def _never_filled(sequence: Sequence) -> int:
    """The part of its reservation that an unfinished sequence will not fill: padding, and what lies past its end."""
    return sequence.held - (sequence.final_computed - sequence.padding_tokens)
