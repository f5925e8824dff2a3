"""The timing of a profile: its formula, corrected where the very card was measured, and open about the rest."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simbatch.deployment import Deployment
from simbatch.timing.card import RANGES, ProfileCard
from simbatch.timing.formula import FormulaTiming

HERE = "this model on this GPU"
MOVED = "moved to another model"
MOVED_KIND = "moved to another kind of model"
"""A mixture of experts, latent attention, quantised weights or cache, far smaller or larger: no profile was
compared with one. Or several GPUs, by a profile that has seen one and knows nothing of what they exchange."""
MOVED_GPU = "moved to another GPU"
FEW_CONTEXT_TOKENS = 1024
"""In all of a batch: reading so few takes next to no time, so that fewer than were measured is no extrapolation."""
LIKE_PARAMS = (5e9, 90e9)
"""Models of 7 to 70 thousand million parameters are what bundled profiles were made from and compared with."""


class ProfileTiming(FormulaTiming):
    """Iteration times by a `ProfileCard` for a deployment, which need not be the one that was measured.

    For the model and GPU of the card, a table of factors corrects the formula between the batch sizes
    that were measured; for anything else the formula stands alone.
    """

    def __init__(self, deployment: Deployment, card: ProfileCard, *, scale: float = 1.0) -> None:
        super().__init__(deployment, card.values(), scale=scale)
        self.card = card
        self.distance = distance(card, deployment)
        self._lines: list[tuple[float, float]] = []
        if self.distance == HERE and card.table:
            self._lines = self._corrected(card.table["tokens"], card.table["factor"])

    @property
    def spread(self) -> float:
        """Relative error of iteration times to reckon with, for this deployment."""
        error = self.card.error
        far = max(error.moved, error.moved_gpu)
        return {HERE: error.step, MOVED: error.moved, MOVED_KIND: far, MOVED_GPU: far}[self.distance]

    def scaled(self, factor: float) -> ProfileTiming:
        """The same with every iteration longer by a factor."""
        return ProfileTiming(self.deployment, self.card, scale=self.scale * factor)

    def _corrected(self, tokens: Sequence[float], factors: Sequence[float]) -> list[tuple[float, float]]:
        """(seconds by the formula, seconds as measured) at the sizes of the table; neither ever falls."""
        lines: list[tuple[float, float]] = []
        for size, factor in sorted(zip(tokens, factors, strict=True)):
            formula_s = super()._tokens_s(size)
            measured_s = max(formula_s * factor, lines[-1][1] if lines else 0.0)
            if not lines or formula_s > lines[-1][0]:
                lines.append((formula_s, measured_s))
        return lines

    def _tokens_s(self, tokens: float) -> float:
        """The formula, mapped to what was measured: a line between the sizes of the table, in proportion beyond."""
        plain_s, lines = super()._tokens_s(tokens), self._lines
        if not lines:
            return plain_s
        right = bisect_left(lines, (plain_s,))
        if right == 0 or right == len(lines):
            formula_s, measured_s = lines[min(right, len(lines) - 1)]
            return plain_s * measured_s / formula_s
        (low, low_s), (high, high_s) = lines[right - 1], lines[right]
        return low_s + (high_s - low_s) * (plain_s - low) / (high - low)

    def remarks(self, rows: dict[str, NDArray[Any]]) -> list[str]:
        """What a user should know after a run: which share of it lies where the profile was not measured."""
        card = self.card
        iterations = rows["iterations"]
        total = int(iterations.sum())
        outside = np.zeros(len(iterations), bool)
        seen = []
        for name in RANGES:
            if name not in card.measured or name not in rows:
                continue
            low, high = card.measured[name]
            values = rows[name]
            beyond = values > high
            if name != "context_tokens" or low > FEW_CONTEXT_TOKENS:
                beyond |= (values < low) & (values > 0)
            if beyond.any():
                outside |= beyond
                seen.append(
                    f"{name} {values[beyond].min():,} to {values[beyond].max():,} (measured {low:,.0f} to {high:,.0f})"
                )
        if not total or not outside.any():
            return []
        share = float(iterations[outside].sum()) / total
        return [f"{_percent(share)} of the iterations lie outside what profile {card.name} has seen: {'; '.join(seen)}"]

    def describe(self) -> dict[str, Any]:
        card = self.card
        return {
            "kind": "measured" if self.distance == HERE and card.kind == "measured" else "estimated",
            "name": card.name,
            "use": self.distance,
            "error": self.spread,
            "gpu": card.gpu,
            "model": card.model or None,
            "engine": card.engine,
            "source": card.source,
            "coefficients": card.values().as_dict(),
        }


def distance(card: ProfileCard, deployment: Deployment) -> str:
    """How far *deployment* is from what the card was fitted to."""
    if card.gpu != deployment.card.name or card.kind != "measured":
        return MOVED_GPU
    shape = deployment.shape
    same = card.model == shape.name and card.tensor_parallel_size == deployment.tensor_parallel_size
    plain = deployment.weight_format is None and deployment.kv_element_bytes == 2
    if same and plain:
        return HERE
    like = LIKE_PARAMS[0] <= shape.params <= LIKE_PARAMS[1] and not shape.experts and not shape.latent
    exchange = card.coefficients.get("all_reduce_us")
    unseen = deployment.tensor_parallel_size > 1 and exchange is not None and exchange.origin == "absent"
    return MOVED if plain and like and not unseen else MOVED_KIND


def _percent(share: float) -> str:
    return "less than 0.1 %" if share < 0.001 else f"{share:.1%}".replace("%", " %")
