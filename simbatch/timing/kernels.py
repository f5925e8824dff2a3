"""Timings of kernels and layers, looked up between the sizes that were measured.

A model's matrix products, its attention and its exchange between GPUs, each by size, as vendors and
profilers publish them. Between sizes times are interpolated on logarithms, since kernels are timed
at powers of two; beyond the last size they grow in proportion. All times are microseconds of
one kernel on one GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simbatch.timing.work import Floats


class Grid:
    """Times on a grid of sizes, of which any may be missing; along *rising* axes noise is averaged until they do."""

    def __init__(self, axes: Sequence[Floats], times_us: Floats, rising: Sequence[int] | None = None) -> None:
        self._logs = [np.log2(axis) for axis in axes]
        self._edges = [(float(axis[0]), float(axis[-1])) for axis in axes]
        values = _filled(np.log2(times_us))
        for axis in range(values.ndim) if rising is None else rising:
            values = np.apply_along_axis(_rising, axis, values)
        self._values = values

    @classmethod
    def of(cls, columns: Sequence[NDArray[np.float64]], times_us: Floats, rising: Sequence[int] | None = None) -> Grid:
        """From rows: one column for each axis. All axes rise unless *rising* names those that do."""
        axes, places = zip(*(np.unique(column, return_inverse=True) for column in columns), strict=True)
        grid = np.full([len(axis) for axis in axes], np.nan)
        order = np.argsort(-times_us, kind="stable")  # of repeated points the quickest stays
        grid[tuple(place[order] for place in places)] = times_us[order]
        return cls(axes, grid, rising)

    def at(self, *sizes: float) -> float:
        """µs at *sizes*; below the first size as there, beyond the last in proportion."""
        values, beyond = self._values, 1.0
        for logs, (low, high), size in zip(self._logs, self._edges, sizes, strict=True):
            beyond *= max(1.0, size / high)
            place = np.log2(min(max(size, low), high))
            right = min(max(int(np.searchsorted(logs, place)), 1), len(logs) - 1)
            if len(logs) == 1:
                values = values[0]
                continue
            share = (place - logs[right - 1]) / (logs[right] - logs[right - 1])
            values = values[right - 1] * (1 - share) + values[right] * share
        return float(2.0**values) * beyond


def _rising(line: Floats) -> Floats:
    """The nearest line that never falls: neighbours in the wrong order are averaged."""
    from scipy.optimize import isotonic_regression

    return np.asarray(isotonic_regression(line).x, dtype=np.float64)


def _filled(grid: Floats) -> Floats:
    """Missing points, along the last axis, then along the others: in a line with their neighbours."""
    for axis in reversed(range(grid.ndim)):
        lines = np.moveaxis(grid, axis, -1)
        for place in np.ndindex(lines.shape[:-1]):
            line = lines[place]
            known = np.flatnonzero(~np.isnan(line))
            if 0 < len(known) < len(line):
                line[:] = _line(line, known)
    return grid


def _line(line: Floats, known: NDArray[np.intp]) -> Floats:
    at = np.arange(len(line), dtype=np.float64)
    filled: Floats = np.interp(at, at[known], line[known])
    if len(known) > 1:  # go on with the last slope, which for large sizes is proportion
        last, before = known[-1], known[-2]
        slope = (line[last] - line[before]) / (last - before)
        filled[last + 1 :] = line[last] + slope * (at[last + 1 :] - last)
    return filled


@dataclass(frozen=True)
class Kernels:
    """What was timed on one kind of GPU. None: not there."""

    products: Grid | None = None
    """(m, n, k): rows of tokens, width of the result, width of what is summed."""
    decodes: dict[tuple[int, int], Grid] | None = None
    """By (query heads, KV heads) on a GPU: (sequences, context)."""
    prompts: dict[tuple[int, int], Grid] | None = None
    """By (query heads, KV heads): (prompts, tokens of each), nothing cached before."""
    exchange: dict[int, Grid] | None = None
    """By GPUs: (elements), inside a recorded graph."""

    def product_us(self, m: float, n: float, k: float) -> float:
        assert self.products is not None
        return self.products.at(m, n, k)

    def decodes_us(self, query_heads: int, kv_heads: int, sequences: float, context: float) -> float:
        """One layer. Heads that were not timed are taken as several sequences with fewer heads each."""
        assert self.decodes is not None
        times, grid = _split(self.decodes, query_heads, kv_heads)
        return grid.at(sequences * times, max(context, 1))

    def prompts_us(self, query_heads: int, kv_heads: int, prompts: float, tokens: float) -> float:
        assert self.prompts is not None
        times, grid = _split(self.prompts, query_heads, kv_heads)
        return grid.at(prompts * times, tokens)

    def exchange_us(self, gpus: int, elements: float) -> float:
        if gpus == 1:
            return 0.0
        assert self.exchange is not None
        return self.exchange[gpus].at(elements)


def _split(grids: dict[tuple[int, int], Grid], query_heads: int, kv_heads: int) -> tuple[int, Grid]:
    """(parts, grid of one part) for heads that may have to be taken in equal parts."""
    for parts in range(1, kv_heads + 1):
        key = (query_heads // parts, kv_heads // parts)
        if key in grids and query_heads % parts == 0 and kv_heads % parts == 0:
            return parts, grids[key]
    # The nearest number of query heads over the same KV heads: reading the cache decides.
    nearest = min(grids, key=lambda key: (abs(np.log2(key[1] / kv_heads)), abs(np.log2(key[0] / query_heads))))
    return 1, grids[nearest]
