"""The running sequences: a batch that is lazy about those that only decode.

A decoding sequence gains one token in every iteration, so the batch counts iterations on one
clock, and a decoding member is a constant: its `origin`, the clock at which nothing of it would
have been computed. Members that need more than one token (prompts, resumed sequences) are
*partial* and keep their own counts. Joining and leaving cost the same however long a member
stays.

Invariant: the context is the number of decoding members times the clock, less their origins.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from simbatch.compiled import mypyc_attr
from simbatch.errors import PolicyError
from simbatch.request import Sequence

NEVER = 1 << 62
"""A clock that no batch reaches."""


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Batch:
    """Who runs, in order of admission. Counts tokens; the clock counts iterations in which members decoded."""

    __slots__ = (
        "_end_clocks",
        "_ends",
        "_newest_decoding_rank",
        "_next_rank",
        "clock",
        "decodes_first",
        "decoding",
        "drained",
        "ended",
        "ended_origins",
        "last_decode_ps",
        "live_padding_tokens",
        "members",
        "next_end",
        "origins",
        "partial",
        "paused",
    )

    def __init__(self, decodes_first: bool = False) -> None:
        self.decodes_first = decodes_first
        """Do decoding members stand, in the order in which they began to decode, before partial ones?"""
        self.members: dict[Sequence, None] = {}
        """Everybody, in order of admission."""
        self.partial: dict[Sequence, None] = {}
        """Members with a prompt (or a recomputation) to finish, in order of admission."""
        self.clock = 0
        self.decoding = 0
        """Members that gain one token an iteration."""
        self.ended: dict[Sequence, None] = {}
        """Decoding members that have finished but keep their seat (request-level batches)."""
        self.ended_origins = 0
        self.drained: dict[Sequence, None] = {}
        """Members that have all their tokens planned and wait, without decoding, for the last to come back."""
        self.live_padding_tokens = 0
        """Padding of the decoding members that have not ended."""
        self.last_decode_ps = -1
        """End of the last iteration in which the decoding members got their token."""
        self.paused: dict[int, int] = {}
        """How many decoding members have had no token since when, if iterations left them out."""
        self.origins = 0
        """Sum over decoding members."""
        self.next_end = NEVER
        """The clock at which the next decoding member ends, of those that have not."""
        self._ends: dict[int, dict[Sequence, None]] = {}
        self._end_clocks: list[int] = []
        self._next_rank = 0
        self._newest_decoding_rank = -1

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self.members)

    def __contains__(self, sequence: object) -> bool:
        return sequence in self.members

    def newest(self) -> Sequence:
        """The member admitted last. Raises PolicyError when there is none."""
        if not self.members:
            raise PolicyError(
                "somebody is to be preempted for room, but nobody runs. "
                "A memory's grow() must return True as long as nobody decodes."
            )
        return next(reversed(self.members))

    def newest_decoding(self) -> Sequence:
        """The last decoding member in the list; call only while one decodes."""
        return next(s for s in reversed(self.members) if s not in self.partial)

    @property
    def context_tokens(self) -> int:
        """Tokens in the cache of all decoding members."""
        return self.decoding * self.clock - self.origins

    @property
    def live_tokens(self) -> int:
        """Tokens in the cache that belong to unfinished members, padding left out."""
        live = self.decoding * self.clock - self.origins - self.live_padding_tokens
        if self.ended:
            live -= len(self.ended) * self.clock - self.ended_origins
        if self.partial:
            for sequence in self.partial:
                live += max(0, sequence.computed - sequence.padding_tokens)
        return live

    @property
    def partial_last(self) -> bool:
        """Was every partial member admitted after every decoding one?"""
        for first in self.partial:
            return first.rank > self._newest_decoding_rank
        return True

    def computed(self, sequence: Sequence) -> int:
        """Tokens of a member in the cache, decoding or not."""
        explicit = sequence in self.partial or sequence in self.drained
        return sequence.computed if explicit else self.clock - sequence.origin

    # -- coming and going ----------------------------------------------------------------------

    def admit(self, sequence: Sequence) -> None:
        """Seat a sequence behind all others; it is partial until its known tokens are computed."""
        sequence.rank = self._next_rank
        self._next_rank += 1
        self.members[sequence] = self.partial[sequence] = None

    def _seat(self, sequence: Sequence) -> None:
        """Put a member behind all others."""
        sequence.rank = self._next_rank
        self._next_rank += 1
        del self.members[sequence]
        self.members[sequence] = None

    def join(self, sequence: Sequence, now_ps: int) -> None:
        """A partial member has got a token and decodes from now on."""
        del self.partial[sequence]
        if self.decodes_first:
            for member in (sequence, *self.partial):
                self._seat(member)
        origin = sequence.origin = self.clock - sequence.computed
        sequence.last_token_ps = now_ps
        self.decoding += 1
        self.origins += origin
        self.live_padding_tokens += sequence.padding_tokens
        if sequence.rank > self._newest_decoding_rank:
            self._newest_decoding_rank = sequence.rank
        end = origin + sequence.final_computed
        bucket = self._ends.get(end)
        if bucket is None:
            self._ends[end] = {sequence: None}
            heappush(self._end_clocks, end)
            if end < self.next_end:
                self.next_end = end
        else:
            bucket[sequence] = None

    def part(self, sequence: Sequence) -> None:
        """A decoding member becomes partial: its own counts are true again."""
        self._stop_decoding(sequence)
        end = sequence.origin + sequence.final_computed
        bucket = self._ends[end]
        del bucket[sequence]
        if not bucket:
            del self._ends[end]
            if end == self.next_end:
                self._find_next_end()
        self.live_padding_tokens -= sequence.padding_tokens
        self.partial[sequence] = None

    def unpack(self) -> list[Sequence]:
        """Every decoding member that has not ended becomes partial; returns them. `partial` keeps the order."""
        decoding = [s for s in self.members if s not in self.partial and s not in self.ended and s not in self.drained]
        for sequence in decoding:
            self.part(sequence)
        self.partial = {s: None for s in self.members if s not in self.ended and s not in self.drained}
        return decoding

    def pause(self, since_ps: int) -> None:
        """An iteration that began at *since_ps* leaves the decoding members out."""
        fresh = self.decoding - len(self.ended) - sum(self.paused.values())
        if fresh:
            self.paused[since_ps] = fresh

    def leave(self, sequence: Sequence) -> None:
        """A member goes: preempted, or ended."""
        if sequence in self.ended:
            del self.ended[sequence]
            self.ended_origins -= sequence.origin
            self._stop_decoding(sequence)
        elif sequence in self.partial:
            del self.partial[sequence]
        elif sequence in self.drained:
            del self.drained[sequence]
        else:
            self.part(sequence)
            del self.partial[sequence]
        del self.members[sequence]

    def drain(self, sequence: Sequence) -> None:
        """An ended member stops decoding; it keeps its seat until its last token has come back."""
        del self.ended[sequence]
        self.ended_origins -= sequence.origin
        self._stop_decoding(sequence)
        self.drained[sequence] = None

    def finished(self) -> list[Sequence]:
        """Decoding members that end at this clock, in order of admission; they are *ended* until they leave."""
        bucket = self._ends.pop(self.clock, None)
        if bucket is None:
            return []
        self._find_next_end()
        for sequence in bucket:
            self.ended[sequence] = None
            self.ended_origins += sequence.origin
            self.live_padding_tokens -= sequence.padding_tokens
        return sorted(bucket, key=_rank) if len(bucket) > 1 else list(bucket)

    def _find_next_end(self) -> None:
        clocks = self._end_clocks
        while clocks and clocks[0] not in self._ends:
            heappop(clocks)
        self.next_end = clocks[0] if clocks else NEVER

    def check(self) -> None:
        """Compare every count with a recount; raises AssertionError. For tests."""
        decoding = [s for s in self.members if s not in self.partial and s not in self.drained]
        assert len(decoding) == self.decoding, (len(decoding), self.decoding)
        assert sum(self.clock - s.origin for s in decoding) == self.context_tokens
        going = [s for s in decoding if s not in self.ended]
        assert sorted(s.rank for s in going) == sorted(s.rank for bucket in self._ends.values() for s in bucket)
        assert self.next_end == min(self._ends, default=NEVER)
        live = sum(self.clock - s.origin - s.padding_tokens for s in going)
        live += sum(max(0, s.computed - s.padding_tokens) for s in self.partial)
        assert live == self.live_tokens, (live, self.live_tokens)
        for s in going:
            assert 0 < self.clock - s.origin < s.final_computed, (s, self.clock)

    def _stop_decoding(self, sequence: Sequence) -> None:
        origin = sequence.origin
        sequence.computed = computed = self.clock - origin
        sequence.known = computed + 1
        if self.last_decode_ps > sequence.last_token_ps:
            sequence.last_token_ps = self.last_decode_ps
        if self.paused and sequence.last_token_ps in self.paused:
            self.paused[sequence.last_token_ps] -= 1
        self.origins -= origin
        self.decoding -= 1
        if not self.decoding:
            self._newest_decoding_rank = -1


def _rank(sequence: Sequence) -> int:
    return sequence.rank
