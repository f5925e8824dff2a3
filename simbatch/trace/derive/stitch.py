"""Whole conversations out of pieces: ``id_0``, ``id_11``, …, each with the number of its first message.

ShareGPT's long conversations were split by whoever cleaned the file. A piece that begins one message
before the end of the last one repeats its answer, which is then taken once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Piece = tuple[tuple[str, int] | None, Sequence[Item]]
"""(conversation and its message that the piece begins with, or None where the record is whole; its messages)."""


def stitched(pieces: Iterable[Piece[Item]]) -> Iterator[tuple[str | None, list[Item]]]:
    """(name, or None where it has none; messages) of each conversation; its pieces follow each other.

    A piece that does not go on where the last one ended begins a conversation of its own.

    >>> list(stitched([(("a", 0), "xyz"), (("a", 2), "zu"), (None, "v")]))
    [('a', ['x', 'y', 'z', 'u']), (None, ['v'])]
    """
    whole: list[Item] = []
    base: str | None = None
    end = 0
    for name, messages in pieces:
        if name is not None and name[0] == base and name[1] in (end, end - 1):
            whole.extend(messages[end - name[1] :])
        else:
            if whole:
                yield base, whole
            whole = list(messages)
        base, end = (None, 0) if name is None else (name[0], name[1] + len(messages))
    if whole:
        yield base, whole
