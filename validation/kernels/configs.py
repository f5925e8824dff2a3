"""Tile, warps and stages of the attention kernel: a plain table, picked in Python.

Autotuning would time kernels inside a measurement, and cannot run without a GPU at all. The entries
are those that compile for sm_90 without spills and leave room for at least two programs on a
multiprocessor; `python -m validation measure` times them and writes down which was best.
"""

from __future__ import annotations

from typing import NamedTuple


class Config(NamedTuple):
    """How the attention kernel is cut. Tokens, warps, pipeline stages, programs wanted on a multiprocessor."""

    tile_tokens: int
    warps: int
    stages: int
    programs: int
    """How many find room on one multiprocessor: registers and shared memory, as compiled."""

    @property
    def name(self) -> str:
        return f"{self.tile_tokens}x{self.warps}x{self.stages}"


CONFIGS = (Config(64, 4, 5, 3), Config(64, 4, 2, 5), Config(32, 4, 5, 5), Config(128, 8, 5, 1), Config(128, 8, 2, 3))
"""Candidates for a paged cache, the default first. Behind a block table stages count double: 5 is the first that
holds two tiles of K and V, 3 and 4 hold one, and with 2 only the other programs hide the wait."""
CONTIGUOUS = Config(64, 4, 3, 3)
"""Two tiles in flight where no table is read."""
LEAST_SPLIT_TOKENS = 256
"""Shorter splits cost more in starting and merging than they gain."""
BLOCK_H = 16
"""Rows of a query block: the smallest that the tensor cores take. A group must fit."""


def find_config(name: str) -> Config:
    """The candidate of that `Config.name`; raises KeyError with the names there are."""
    named = {config.name: config for config in CONFIGS}
    if name not in named:
        raise KeyError(f"no kernel config {name!r}; there are {', '.join(named)}")
    return named[name]
