"""Rows: stretches of equal iterations, put away as columns in their canonical form.

A steady row goes on for as long as the same sequences decode, the queue is as long, has the same head and is held
back for the same reason, and the iteration times continue the same progression; so one iteration at a time or a
thousand at once give the same rows, to the last bit.

Stretches are gathered as they come, as bare numbers; some hundreds at a time are joined and put into columns, so
that nothing that is derived from them costs the engine anything.
"""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simbatch.exact import FITS, Ints, over, product, summable
from simbatch.facts import KV_SHARES
from simbatch.growth import Growth

STRETCH = (
    "start_ps",
    "first_ps",
    "increment_ps",
    "holds",
    "running",
    "waiting",
    "tokens",
    "sequences",
    "prefill_tokens",
    "context_tokens",
    "gaps",
    "live",
    "held",
    "internal",
    "external",
    "cause",
    "head",
    "iterations",
)
"""What is noted of a stretch. `holds`: iterations for which its progression is good, the first included; 0 where it is
not steady."""
_KEPT = tuple(name for name in STRETCH if name not in ("holds", "held"))
_DERIVED = ("reserved", "free")
_EQUAL = ("running", "waiting", "cause", "head", "gaps", "external", "increment_ps")
"""In these a row and a stretch that continues it do not differ."""
_MOST = 2048 * len(STRETCH)
"""Numbers of stretches that are gathered."""

Columns = dict[str, Any]


class Rows:
    """The rows of one engine with *capacity_tokens* of KV memory."""

    def __init__(self, capacity_tokens: int) -> None:
        self.capacity_tokens = capacity_tokens
        self.noted: list[int] = []
        """Of the stretches gathered, `STRETCH` after `STRETCH`."""
        self.growth = Growth()
        """What the memory takes while they run."""
        self.most = _MOST
        """Put them away when `noted` is as long as this."""
        self._open: list[int] = []
        """Integrals of the first row gathered, if it was put together before."""
        self.peak_held_tokens = 0
        self.iterations = 0
        self._columns: dict[str, array[Any]] = {name: array("q") for name in (*_KEPT, *_DERIVED)}
        self._columns |= {f"{share}_mean": array("d") for share in KV_SHARES}

    def put_away(self, last: bool = False) -> None:
        """Join what was gathered and keep it by column. The last row may go on, and is gathered anew unless *last*."""
        if not self.noted:
            return
        table = np.fromiter(self.noted, np.int64, len(self.noted)).reshape(-1, len(STRETCH))
        rows: Columns = {name: table[:, i] for i, name in enumerate(STRETCH)}
        took = _took_ps(rows)
        integrals = self._integrals(rows, took)
        joins = _continues(rows, took)
        if joins.any():
            starts = np.flatnonzero(~np.concatenate(([False], joins)))
            integrals = {name: np.add.reduceat(summable(of, len(took)), starts) for name, of in integrals.items()}
            iterations = np.add.reduceat(rows["iterations"], starts)
            rows = {name: column[starts] for name, column in rows.items()} | {"iterations": iterations}
            took = _took_ps(rows)
        self.noted.clear()
        self.most = _MOST
        if not last:
            self.noted.extend(int(rows[name][-1]) for name in STRETCH)
            self._open = [int(of[-1]) for of in integrals.values()]
            rows = {name: column[:-1] for name, column in rows.items()}
            took, integrals = took[:-1], {name: of[:-1] for name, of in integrals.items()}
        self._keep(rows, took, integrals)

    def _integrals(self, rows: Columns, took: Ints) -> dict[str, Any]:
        """Token-picoseconds live, held and internal of each stretch."""
        integrals = {"live": _live_integral(rows, took)}
        grown = self.growth.put_together(rows["iterations"], took, rows["first_ps"], rows["increment_ps"])
        for name, (stretches, tokens, integral) in grown.items():
            integrals[name] = _added(product(rows[name], took), stretches, integral)
            if name == "held":
                held = int(_added(rows["held"], stretches, tokens).max())
                self.peak_held_tokens = max(self.peak_held_tokens, held)
        for name, whole in zip(integrals, self._open, strict=False):
            if abs(whole) >= FITS:
                integrals[name] = integrals[name].astype(object)
            integrals[name][0] = whole
        return integrals

    def _keep(self, rows: Columns, took: Ints, integrals: Columns) -> None:
        rows["increment_ps"] = np.where(rows["holds"] > 0, rows["increment_ps"], 0)
        rows["reserved"] = rows["held"] - rows["live"] - rows["internal"]
        rows["free"] = self.capacity_tokens - rows["external"] - rows["held"]
        self.iterations += int(rows["iterations"].sum())
        for name in (*_KEPT, *_DERIVED):
            self._columns[name].frombytes(rows[name].tobytes())
        means = {name: rows[name].astype(np.float64) for name in KV_SHARES}
        long = np.flatnonzero(rows["iterations"] > 1)
        if long.size:
            took = took[long]
            live, held, internal = (of[long] for of in integrals.values())
            available = product((self.capacity_tokens - rows["external"])[long], took)
            means["live"][long] = over(live, took)
            means["reserved"][long] = over(held - live - internal, took)
            means["internal"][long] = over(internal, took)
            means["free"][long] = over(available - held, took)
        for name in KV_SHARES:
            self._columns[f"{name}_mean"].frombytes(means[name].tobytes())

    def columns(self) -> Columns:
        """All rows, where they lie: nothing may be gathered after this."""
        self.put_away(last=True)
        return {name: np.frombuffer(column, dtype=column.typecode) for name, column in self._columns.items()}


def _continues(rows: Columns, took: Ints) -> NDArray[np.bool_]:
    """Does each stretch but the first go on with the one before?"""
    before = {name: column[:-1] for name, column in rows.items()}
    after = {name: column[1:] for name, column in rows.items()}
    iterations = before["iterations"]
    joins: NDArray[np.bool_] = (after["holds"] > 0) & (before["holds"] - iterations >= after["iterations"])
    joins &= before["start_ps"] + took[:-1] == after["start_ps"]
    joins &= before["context_tokens"] + before["tokens"] * iterations == after["context_tokens"]
    joins &= before["first_ps"] + before["increment_ps"] * iterations == after["first_ps"]
    for name in _EQUAL:
        joins &= before[name] == after[name]
    return joins


# Integrals need more than 64 bits now and then. All is done in whole numbers, so that how stretches were cut or
# gathered makes no difference, and divided at the end.


def _took_ps(rows: Columns) -> Ints:
    iterations = rows["iterations"]
    took: Ints = iterations * rows["first_ps"] + rows["increment_ps"] * (iterations * (iterations - 1) // 2)
    return took


def _live_integral(rows: Columns, took: Ints) -> Any:
    """Each of `gaps` sequences has one token more after each iteration."""
    iterations, gaps = rows["iterations"], rows["gaps"]
    indices = iterations * (iterations - 1) // 2
    squares = product(indices, 2 * iterations - 1) // 3
    grown = summable(product(rows["first_ps"], indices), 2) + summable(product(rows["increment_ps"], squares), 2)
    return summable(product(rows["live"], took), 2) + summable(product(gaps, grown), 2)


def _added(column: Any, places: Ints, numbers: Any) -> Any:
    """*column* with *numbers* added at *places*, of which some may be the same."""
    column, numbers = summable(column, 2), summable(numbers, 2 + numbers.size)
    column = column.astype(object if numbers.dtype == object else column.dtype)
    np.add.at(column, places, numbers)
    return column
