"""Where the measurements lie, and what the files here have in common."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from simbatch.timing.base import Iteration
from simbatch.timing.work import FEATURES, Floats

ROOT = Path(__file__).resolve().parent.parent


def shared() -> Path:
    """The folder with the data: SIMBATCH_SHARED, or `shared` beside the repository."""
    return Path(os.environ.get("SIMBATCH_SHARED", ROOT.parent / "shared"))


def measured(*parts: str) -> Path:
    """A file of measurements."""
    return shared().joinpath("data", "measured", *parts)


def table(*parts: str) -> pd.DataFrame:
    """A csv of measurements as a frame."""
    return pd.read_csv(measured(*parts))


@dataclass(frozen=True)
class Section:
    """A table of the document: its mark, heads and rows."""

    name: str
    heads: list[str]
    rows: list[list[str]]


def signed(error: float, places: int = 1) -> str:
    """A relative error in per cent."""
    return f"{100 * error:+.{places}f}"


def size(error: float, places: int = 1) -> str:
    """Its size in per cent."""
    return f"{100 * abs(error):.{places}f}"


class Watched:
    """A timing that remembers what it was asked; with *durations_s* it answers with those, one after the other."""

    def __init__(self, timing: Any, durations_s: Floats | None = None) -> None:
        self.timing = timing
        self.durations_s = durations_s
        self.asked: list[tuple[int, ...]] = []

    def __deepcopy__(self, memo: Any) -> Watched:
        return self

    def progression(self, iteration: Iteration) -> tuple[int, int, int]:
        at = len(self.asked)
        self.asked.append(tuple(getattr(iteration, name) for name in FEATURES))
        if self.durations_s is not None and at < len(self.durations_s):
            return max(1, round(self.durations_s[at] * 1e12)), 0, 1
        return self.timing.progression(iteration)[0], 0, 1

    def describe(self) -> dict[str, Any]:
        return {"kind": "estimated", "name": "watched"}

    def frame(self) -> pd.DataFrame:
        return pd.DataFrame(np.array(self.asked, dtype=np.float64), columns=list(FEATURES))
