"""Which request follows which: the turns of a session, in the order of the rows; a row alone is a chain of one.

Parallel samples of one request are one turn: they stand in rows that follow each other, and the
first of them stands for all.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence


def chains(
    sessions: Sequence[str] | None, rows: int, sample_of: Sequence[int] | None = None
) -> tuple[array[int], array[int]]:
    """(first row of each chain, for every row the next turn of its chain or -1).

    *rows* rows are labelled *sessions*; *sample_of* says for each row which request it is a sample of, -1 for none.

    >>> chains(["a", "", "a"], 3)
    (array('q', [0, 1]), array('q', [2, -1, -1]))
    """
    following = array("q", [-1]) * rows
    if sessions is None and sample_of is None:
        return array("q", range(rows)), following
    first = array("q")
    latest: dict[str, int] = {}
    request = -1
    for row in range(rows):
        if sample_of is not None:
            if sample_of[row] == request >= 0:
                continue
            request = sample_of[row]
        session = "" if sessions is None else sessions[row]
        before = latest.get(session) if session else None
        if before is None:
            first.append(row)
        else:
            following[before] = row
        latest[session] = row
    return first, following
