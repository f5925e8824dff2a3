"""How much of the prompts has been seen before: what a prefix cache without end could save.

Prompts and answers, in the order of the rows, become paths of a radix tree whose edges are runs of
segments; the longest path that a new prompt shares is what it reuses. Compared token by token, so a
cache of blocks finds a little less.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simbatch.trace.identity import Segment, own

if TYPE_CHECKING:
    from simbatch.trace.trace import Trace


class _Node:
    """What may follow a path: by its first token (stream, index), how long the run is and what follows it."""

    __slots__ = ("edges",)

    def __init__(self) -> None:
        self.edges: dict[tuple[str, int], tuple[int, _Node]] = {}


class PrefixTree:
    """All token rows that have been added."""

    def __init__(self) -> None:
        self._root = _Node()

    def add(self, segments: list[Segment]) -> int:
        """Adds a row of tokens; returns how many of its first ones were there already."""
        node, found, known = self._root, 0, True
        for stream, start, length in segments:
            place, end = start, start + length
            while place < end:
                edge = node.edges.get((stream, place))
                if edge is None:
                    known = False
                    after = _Node()
                    node.edges[stream, place] = (end - place, after)
                    node, place = after, end
                    continue
                run, after = edge
                if run > end - place:
                    middle = _Node()
                    middle.edges[stream, end] = (place + run - end, after)
                    node.edges[stream, place] = (end - place, middle)
                    run, after = end - place, middle
                node, place = after, place + run
                found += run if known else 0
        return found


def reused_tokens(trace: Trace) -> int | None:
    """Prompt tokens that an earlier prompt or its answer begins with; None where nothing is said about identity."""
    if not trace.prefix:
        return None
    tree = PrefixTree()
    total = 0
    prompts, outputs = trace.prompt_tokens.tolist(), trace.output_tokens.tolist()
    for row, (prompt, output) in enumerate(zip(prompts, outputs, strict=True)):
        id = str(row) if trace.ids is None else trace.ids[row]
        segments = list(trace.segments(row) or (own(id, prompt),))
        # The answer is cached too, except for the last token, which is never fed back.
        answer = [(f"o{id}", 0, output - 1)] if output > 1 else []
        total += min(tree.add(segments + answer), prompt)
    return total
