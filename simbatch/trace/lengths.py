"""How long requests are: distributions of token counts, at least 1 each.

Prompt and output are drawn apart from one another. Where their correlation matters, draw whole rows
of a recorded trace (`Trace.sample`), which keeps it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from simbatch.errors import UsageError
from simbatch.trace.columns import MAX_TOKENS, Ints

_Z99 = 2.3263478740408408
"""99 % point of the standard normal distribution."""


class Lengths(Protocol):
    """A distribution of token counts. Frozen, so that its repr repeats it."""

    def draw(self, count: int, random: np.random.Generator) -> Ints:
        """*count* lengths in tokens."""


@dataclass(frozen=True)
class Fixed:
    """Always the same."""

    tokens: int

    def __post_init__(self) -> None:
        _check(self.tokens)

    def draw(self, count: int, random: np.random.Generator) -> Ints:
        """See `Lengths`."""
        return np.full(count, self.tokens, dtype=np.int64)


@dataclass(frozen=True)
class Uniform:
    """Every whole number from *low* to *high*, both included, equally often."""

    low: int
    high: int

    def __post_init__(self) -> None:
        _check(self.low)
        _check(self.high)
        if self.low > self.high:
            raise UsageError(f"a uniform length from {self.low} to {self.high} has no room. Put the smaller one first.")

    def draw(self, count: int, random: np.random.Generator) -> Ints:
        """See `Lengths`."""
        return random.integers(self.low, self.high, count, endpoint=True)


@dataclass(frozen=True)
class LogNormal:
    """The logarithm is normal; rounded to whole tokens, at least 1; draws above *most* are drawn again."""

    median: float
    sigma: float
    """Standard deviation of the logarithm."""
    most: int = MAX_TOKENS

    SETTINGS: ClassVar[frozenset[str]] = frozenset({"median", "mean", "p99", "sigma", "cv", "max"})

    def __post_init__(self) -> None:
        if not (1 <= self.median <= self.most <= MAX_TOKENS and 0 <= self.sigma < 10):
            raise UsageError(
                f"a log-normal length has a median of {self.median:g}, a sigma of {self.sigma:g} and at most "
                f"{self.most:g} tokens. Give a median from 1 up to the most, and a spread below sigma 10."
            )

    @classmethod
    def of(cls, **settings: float) -> LogNormal:
        """By one centre (median or mean) and one spread (sigma, cv or p99), and perhaps max.

        >>> LogNormal.of(median=200, p99=2000).sigma
        0.989785...
        """
        most = int(settings.pop("max", MAX_TOKENS))
        centre = {key: settings[key] for key in ("median", "mean") if key in settings}
        spread = {key: settings[key] for key in ("sigma", "cv", "p99") if key in settings}
        if len(centre) != 1 or len(spread) != 1 or ("mean" in centre and "p99" in spread):
            raise UsageError(
                f"a log-normal length is given by {', '.join(settings) or 'nothing'}. Give median and p99, "
                "or one of median and mean with one of sigma and cv."
            )
        value, wide = next(iter(centre.values())), next(iter(spread.values()))
        if not value > 0 or not wide >= 0 or ("p99" in spread and wide < value):
            given = ", ".join(f"{key}={number:g}" for key, number in settings.items())
            raise UsageError(f"a log-normal length has {given}. Give a positive centre, and a spread that is one.")
        sigma = wide
        if "p99" in spread:
            sigma = math.log(wide / value) / _Z99
        elif "cv" in spread:
            sigma = math.sqrt(math.log1p(wide**2))
        return cls(value if "median" in centre else value * math.exp(-(sigma**2) / 2), sigma, most)

    def draw(self, count: int, random: np.random.Generator) -> Ints:
        """See `Lengths`."""
        lengths = self._draw(count, random)
        while (over := lengths > self.most).any():
            lengths[over] = self._draw(int(over.sum()), random)
        return lengths

    def _draw(self, count: int, random: np.random.Generator) -> Ints:
        values = np.rint(random.lognormal(math.log(self.median), self.sigma, count))
        return np.clip(values, 1, 2.0**62).astype(np.int64)


@dataclass(frozen=True)
class Mixture:
    """Each length from one of several distributions, as often as its weight says."""

    weights: tuple[float, ...]
    parts: tuple[Lengths, ...]

    def __post_init__(self) -> None:
        if not all(weight > 0 and math.isfinite(weight) for weight in self.weights):
            raise UsageError(f"the weights of a mixture are {', '.join(map(str, self.weights))}. Give positive ones.")

    def draw(self, count: int, random: np.random.Generator) -> Ints:
        """See `Lengths`."""
        shares = np.array(self.weights) / sum(self.weights)
        which = random.choice(len(self.parts), count, p=shares)
        lengths = np.empty(count, dtype=np.int64)
        for place, part in enumerate(self.parts):
            chosen = which == place
            lengths[chosen] = part.draw(int(chosen.sum()), random)
        return lengths


def _check(tokens: int) -> None:
    if not 1 <= tokens <= MAX_TOKENS:
        raise UsageError(f"a length is {tokens} tokens. Give a whole number from 1 to {MAX_TOKENS}.")
