"""Which request follows which: the turns of a session, in the order of the rows; a row alone is a chain of one."""

from __future__ import annotations

from array import array
from collections.abc import Sequence


def chains(sessions: Sequence[str] | None, rows: int) -> tuple[array[int], array[int]]:
    """(first row of each chain, for every row the next of its chain or -1), of *rows* rows labelled *sessions*.

    >>> chains(["a", "", "a"], 3)
    (array('q', [0, 1]), array('q', [2, -1, -1]))
    """
    following = array("q", [-1]) * rows
    if sessions is None:
        return array("q", range(rows)), following
    first = array("q")
    latest: dict[str, int] = {}
    for row, session in enumerate(sessions):
        before = latest.get(session) if session else None
        if before is None:
            first.append(row)
        else:
            following[before] = row
        latest[session] = row
    return first, following
