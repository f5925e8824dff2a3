"""What KV memory takes while stretches of equal iterations run: told as it is taken, put together by column later."""

from __future__ import annotations

from array import array
from collections.abc import Sequence as List
from typing import Any

import numpy as np

from simbatch.exact import FITS, Ints, product, summable

_MOST = 1 << 18
"""Entries of what is due: more of them take memory that matters."""


class Growth:
    """Collects what one memory takes. `stretch` is the number of the stretch that it tells about.

    What is held after the first iteration of a stretch need not be told: it is read from the memory.
    """

    def __init__(self) -> None:
        self.stretch = 0
        self._turns: list[int] = []
        """(stretch, entries in `_due`, tokens for each unit in them), one after the other."""
        self._due = array("q")
        self._wasted: list[int] = []
        """(stretch, iterations, tokens), one after the other."""

    def held(self, due: List[int], unit_tokens: int = 1) -> None:
        """After j iterations due[j - 1] units more are held; where *due* ends before the stretch, it begins again."""
        self._turns.extend((self.stretch, len(due), unit_tokens))
        self._due.extend(due)

    @property
    def is_much(self) -> bool:
        """Is it time to put together what was told? Where blocks are large, a stretch may tell of thousands."""
        return len(self._due) > _MOST

    def internal(self, iterations: int, tokens: int) -> None:
        """After so many *iterations*, *tokens* more of what is held will never be filled; `held` tells of them too."""
        self._wasted.extend((self.stretch, iterations, tokens))

    def put_together(
        self, iterations: Ints, took_ps: Ints, first_ps: Ints, increment_ps: Ints
    ) -> dict[str, tuple[Ints, Any, Any]]:
        """What the growth adds to what is `held`, and of it `internal`: (which stretches, tokens, token-picoseconds).

        Stretch i has iterations[i] iterations, the first of first_ps[i], each longer by increment_ps[i], and takes
        took_ps[i] in all. Forgets everything that was told.
        """
        found = {}
        for name, (stretches, tokens, ones, twos) in (("held", self._held(iterations)), ("internal", self._internal())):
            whole = summable(product(tokens, took_ps[stretches]), 2)
            passed = summable(product(ones, first_ps[stretches]), 2)
            passed = passed + summable(product(twos, increment_ps[stretches]), 2)
            found[name] = stretches, tokens, whole - summable(passed, 2)
        self._turns.clear()
        self._wasted.clear()
        del self._due[:]
        return found

    # Taken when j iterations are over, a token is held for the time that is left then: the whole less j·first and
    # j(j-1)/2·increment. So three sums say all: of tokens, of tokens times j, and of tokens times j(j-1)/2.

    def _held(self, iterations: Ints) -> tuple[Ints, Any, Any, Any]:
        stretches, entries, units = np.array(self._turns, np.int64).reshape(-1, 3).T
        due: Any = np.array(self._due, np.int64) * np.repeat(units, entries)
        begins = np.cumsum(entries) - entries
        j: Any = np.arange(1, due.size + 1) - np.repeat(begins, entries)
        period: Any = np.repeat(entries, entries)
        turns = (np.repeat(iterations[stretches], entries) - 1 - j) // period + 1
        if due.size and float(iterations.max()) ** 3 * float(due.sum()) >= FITS:
            due, j, period, turns = (column.astype(object) for column in (due, j, period, turns))
        pairs = turns * (turns - 1) // 2
        squares = pairs * (2 * turns - 1) // 3
        ones = turns * j + period * pairs
        twos = (turns * j * (j - 1) + period * (2 * j - 1) * pairs + period * period * squares) // 2
        tokens, ones, twos = (
            np.add.reduceat(due * times, begins) if due.size else due for times in (turns, ones, twos)
        )
        return stretches, tokens, ones, twos

    def _internal(self) -> tuple[Ints, Any, Any, Any]:
        stretches, j, tokens = np.array(self._wasted, np.int64).reshape(-1, 3).T
        return stretches, tokens, product(tokens, j), product(tokens, j * (j - 1) // 2)
