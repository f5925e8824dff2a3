"""Who waits: in order of arrival, or by a key."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any, Protocol

from simbatch.request import Sequence


class Queue(Protocol):
    """Waiting sequences; the head is the next to be admitted."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Sequence]: ...
    def push(self, sequence: Sequence) -> None: ...
    def put_back(self, sequence: Sequence) -> None:
        """A preempted sequence returns."""
        ...

    def head(self) -> Sequence: ...
    def remove(self, sequence: Sequence) -> None: ...


class Fifo(deque[Sequence]):
    """First come, first served; a preempted sequence goes to the front."""

    __slots__ = ()

    push = deque.append
    put_back = deque.appendleft

    def head(self) -> Sequence:
        return self[0]

    def remove(self, sequence: Sequence) -> None:
        if self[0] is sequence:
            self.popleft()
        else:
            super().remove(sequence)


class ByKey:
    """Smallest key first, then earliest arrival; a preempted sequence returns to its rank.

    The key must depend on the request alone: it is taken once, when the sequence begins to wait.
    """

    __slots__ = ("_heap", "_key")

    def __init__(self, key: Callable[[Sequence], Any]) -> None:
        self._key = key
        self._heap: list[tuple[Any, int, int, Sequence]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[Sequence]:
        return (entry[-1] for entry in sorted(self._heap, key=lambda entry: entry[:3]))

    def push(self, sequence: Sequence) -> None:
        heappush(self._heap, (self._key(sequence), sequence.arrival_ps, sequence.index, sequence))

    put_back = push

    def head(self) -> Sequence:
        return self._heap[0][-1]

    def remove(self, sequence: Sequence) -> None:
        if self._heap[0][-1] is sequence:
            heappop(self._heap)
        else:
            self._heap = [entry for entry in self._heap if entry[-1] is not sequence]
            heapify(self._heap)
