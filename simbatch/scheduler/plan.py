"""A plan: what one iteration does, made with four verbs.

`decode` gives every decoding sequence room for its next token, `serve` gives a partial one some
of the tokens it lacks, `admit` takes in a waiting one, `preempt` throws a running one out. Each
moves the memory, the batch and the queue at once, so what a policy reads next is true. Policies and
memories may be somebody's own: whole numbers of any kind become Python's here, and what a memory
answers counts as true or false.
"""

from __future__ import annotations

from collections.abc import Sequence as List
from enum import IntEnum
from operator import index
from typing import TYPE_CHECKING, Any, SupportsIndex

from simbatch.compiled import mypyc_attr
from simbatch.errors import PolicyError

if TYPE_CHECKING:
    from simbatch.batch import Batch
    from simbatch.memory.base import Memory
    from simbatch.request import Sequence
    from simbatch.scheduler.queue import Queue


class Cause(IntEnum):
    """Why the head of the queue was not admitted."""

    NOTHING = 0
    """Nobody waits, or nobody was held back."""
    KV = 1
    MAX_NUM_SEQS = 2
    TOKEN_BUDGET = 3


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Plan:
    """One iteration. It is *steady* when every running sequence decodes and nothing else happens."""

    __slots__ = ("chunks", "decodes", "dropped", "held_back", "memory", "preempted", "running", "spare", "waiting")

    def __init__(self, waiting: Queue, running: Batch, memory: Memory) -> None:
        self.waiting = waiting
        self.running = running
        self.memory = memory
        self.decodes = False
        """Do the decoding sequences get their token?"""
        self.chunks: dict[Sequence, int] = {}
        """Tokens for those that get other than a decode, in the order in which they were served."""
        self.preempted: List[Sequence] = ()
        self.dropped: List[Sequence] = ()
        """Taken from the queue and never to be served."""
        self.held_back = Cause.NOTHING
        self.spare = 0
        """Room that further iterations of this plan must leave free, in the memory's own unit."""

    @property
    def steady(self) -> bool:
        return self.decodes and not (self.chunks or self.preempted or self.dropped)

    @property
    def only_decodes(self) -> bool:
        """Is it steady, with nobody held back and no room spared?"""
        return self.decodes and not (self.chunks or self.preempted or self.dropped or self.held_back or self.spare)

    def decode(self, spare: SupportsIndex = 0) -> bool:
        """Room for the next token of every decoding sequence, leaving *spare* free.

        False when somebody would lack room, and then nothing was taken: preempt, and ask again.
        """
        memory: Any = self.memory
        self.decodes = bool(memory.grow(index(spare)))
        return self.decodes

    def unpack(self) -> None:
        """Make every decoding sequence partial for this iteration, to be served one by one in order of admission.

        For iterations in which the order matters: the budget does not cover everybody, or a prompt
        stands before somebody that decodes.
        """
        for sequence in self.running.unpack():
            self.memory.part(sequence)

    def serve(self, sequence: Sequence, tokens: SupportsIndex) -> bool:
        """Compute *tokens* more of a partial running *sequence*; False when there is no room for them."""
        tokens = index(tokens)
        if tokens < 1 or tokens > sequence.known - sequence.computed:
            raise PolicyError(
                f"the policy serves {tokens} tokens to {sequence.id}, which has "
                f"{sequence.known - sequence.computed} to compute. Serve at least one and no more than that."
            )
        memory: Any = self.memory
        if not memory.take(sequence, sequence.computed + tokens):
            return False
        self.chunks[sequence] = tokens
        return True

    def admit(
        self, sequence: Sequence, tokens: SupportsIndex, spare: SupportsIndex = 0, hold: SupportsIndex | None = None
    ) -> bool:
        """Take in a waiting *sequence* and compute *tokens* of it; False when there is no room.

        The memory takes room for *hold* tokens at once (default: just those computed) and must keep *spare* free.
        """
        memory: Any = self.memory
        tokens, found = index(tokens), 0 if sequence.held else index(memory.cached_tokens(sequence))
        if tokens > sequence.known - found:
            tokens = sequence.known - found
        if not memory.take(sequence, found + tokens if hold is None else index(hold), index(spare)):
            return False
        sequence.computed = found
        if sequence.first_scheduled_ps < 0:
            sequence.cached_tokens = found
        self.waiting.remove(sequence)
        self.running.admit(sequence)
        self.chunks[sequence] = tokens
        return True

    def fork(self, leader: Sequence, follower: Sequence) -> None:
        """Seat a waiting *follower* that shares the prompt of *leader*, which this plan computes whole.

        It gets its first token with *leader*, at no work of its own.
        """
        self.waiting.remove(follower)
        self.running.admit(follower)
        self.memory.share(leader, follower)
        follower.computed = follower.known
        self.chunks[follower] = 0

    def drop(self, sequence: Sequence) -> None:
        """Give up on a waiting *sequence*: it can never be scheduled. It counts as refused."""
        self.waiting.remove(sequence)
        self.dropped = [*self.dropped, sequence]

    def preempt(self, sequence: Sequence, put_back: bool = True) -> int:
        """Throw a running *sequence* out: its memory is given back, its outputs are kept, and it waits again.

        Returns the tokens that this plan had already given it. Without *put_back* the policy puts
        it back into the queue itself before the plan is done.
        """
        if sequence not in self.running.members:
            raise PolicyError(f"the policy preempts {sequence!r}, which does not run. Take one of the running ones.")
        if sequence in self.running.partial or sequence in self.running.drained:
            given = self.chunks.pop(sequence, 0)
        else:
            given = int(self.decodes)
        self.running.leave(sequence)
        self.memory.release(sequence)
        sequence.computed = 0
        sequence.preemptions += 1
        sequence.resuming = True
        self.preempted = [*self.preempted, sequence]
        if put_back:
            self.waiting.put_back(sequence)
        return given

    def swap_out(self, sequence: Sequence) -> int:
        """Throw a running *sequence* out, its cache kept elsewhere by the policy.

        Returns what it held, in the memory's own unit.
        """
        self.chunks.pop(sequence, None)
        self.running.leave(sequence)
        sequence.preemptions += 1
        self.preempted = [*self.preempted, sequence]
        return self.memory.release(sequence)

    def swap_in(self, sequence: Sequence, hold: SupportsIndex, spare: SupportsIndex) -> bool:
        """Seat a swapped *sequence* again with room for *hold* tokens, leaving *spare* free; serve it to go on."""
        memory: Any = self.memory
        if not memory.take(sequence, index(hold), index(spare)):
            return False
        self.running.admit(sequence)
        return True
