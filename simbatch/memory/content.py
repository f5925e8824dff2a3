"""What blocks hold, so that equal content can be found: a key for each full block of a sequence.

A block is identified by the whole prefix up to its end. Tokens are (stream, index) pairs, given as
runs (stream, start, length): the prompt's segments, then the outputs, which are the stream "o" + id.
Keys are interned, so equal prefixes have one key object, and forgotten when nobody holds them.
"""

from __future__ import annotations

from weakref import WeakValueDictionary

from simbatch.request import Sequence

Run = tuple[str, int, int]


class Key:
    """A prefix that ends with a full block."""

    __slots__ = ("__weakref__", "parent")

    def __init__(self, parent: Key | None) -> None:
        self.parent = parent
        """The prefix one block shorter; held, so that its identity stays taken."""


class Contents:
    """The keys of one memory."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self._known: WeakValueDictionary[tuple[int, tuple[Run, ...]], Key] = WeakValueDictionary()

    def of(self, sequence: Sequence) -> Content:
        """The content of *sequence*, read as far as it is asked for."""
        return Content(self, sequence)

    def key(self, parent: Key | None, runs: tuple[Run, ...]) -> Key:
        """The one key for *runs* after *parent*."""
        name = (id(parent), runs)
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = Key(parent)
        return found


class Content:
    """The keys of one sequence's blocks, made as they are asked for."""

    __slots__ = ("_at", "_contents", "_keys", "_run", "_runs")

    def __init__(self, contents: Contents, sequence: Sequence) -> None:
        self._contents = contents
        self._keys: list[Key] = []
        self._run = self._at = 0
        prompt = sequence.segments or ((f"r:{sequence.id}", 0, sequence.prompt_tokens),)
        self._runs: list[Run] = [*prompt, (f"o{sequence.id}", 0, sequence.output_tokens)]

    def key(self, block: int) -> Key:
        """The key of full block number *block*, from 0."""
        while len(self._keys) <= block:
            self._keys.append(self._next())
        return self._keys[block]

    def _next(self) -> Key:
        """The key of the block after the last one made: its tokens as the fewest runs there are."""
        wanted = self._contents.block_size
        pieces: list[Run] = []
        while wanted:
            stream, start, length = self._runs[self._run]
            taken = min(wanted, length - self._at)
            if taken:
                begin = start + self._at
                last = pieces[-1] if pieces else None
                if last is not None and last[0] == stream and last[1] + last[2] == begin:
                    pieces[-1] = (stream, last[1], last[2] + taken)
                else:
                    pieces.append((stream, begin, taken))
            wanted -= taken
            self._at += taken
            if wanted:
                self._run += 1
                self._at = 0
        return self._contents.key(self._keys[-1] if self._keys else None, tuple(pieces))
