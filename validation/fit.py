"""From a table of measurements to a profile: the formula that moves, and the table for the card that was measured.

Relative errors are minimised, with a robust loss. What one model on one card cannot tell apart is pinned
and said so: a constant and the reading of weights are both the same in every iteration, so the share of
bandwidth that products reach comes from products measured alone (or is 0.85).

The same rows go through the package's own fit as well: see `validation.package_fit`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from simbatch.deployment import GPU
from simbatch.errors import UsageError
from validation.form import Coefficients, Features, Floats, features
from validation.measurements import Row
from validation.shape import Shape
from validation.work import Counts, Load

PINNED_WEIGHT_EFFICIENCY = 0.85
LEAST_POINTS = 12
MOST_KNOTS = 15
_POWERS = (1.2, 1.4, 1.7, 2.0, 2.5, 3.5)
_KNOTS = (1, 4, 8, 16, 32, 64, 96, 128, 192, 256, 320, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 8192)


@dataclass(frozen=True)
class Piecewise:
    """Linear in tokens between knots, plus context and pairs: t = base(T) + context·K + pair·pairs. Seconds."""

    knots_tokens: tuple[int, ...]
    base_s: tuple[float, ...]
    context_s: float
    pair_s: float

    def seconds(self, loads: Sequence[Load]) -> Floats:
        """Beyond the last knot the last slope goes on."""
        tokens = np.array([_tokens(c) for c in loads], dtype=np.float64)
        context = np.array([c.context_tokens for c in loads], dtype=np.float64)
        pairs = np.array([c.pairs for c in loads], dtype=np.float64)
        base: Floats = _hats(tokens, self.knots_tokens) @ np.array(self.base_s)
        return base + self.context_s * context + self.pair_s * pairs


@dataclass(frozen=True)
class Errors:
    """Relative errors of a prediction, as shares."""

    median: float
    mean: float
    p95: float
    worst: float
    worst_at: str
    n: int


@dataclass(frozen=True)
class Fit:
    """What `fit` gives."""

    coefficients: Coefficients
    piecewise: Piecewise
    fitted: dict[str, Errors]
    """By form, on the rows that were fitted."""
    held_back: dict[str, Errors]
    """By form, on rows that no fit has seen; empty where there are none."""
    pinned: dict[str, str]
    """Coefficients that the data could not give, and where their values come from."""
    host_s: float
    """Median host time of a step of the real loop: no part of either form."""
    range: dict[str, tuple[float, float]]
    n: int


def fit(rows: Sequence[Row], shape: Shape, card: GPU, also: Sequence[tuple[Sequence[Row], Shape]] = ()) -> Fit:
    """Both forms from the steps among *rows*. Raises UsageError with fewer than 12 of them.

    *also*: steps of other depths or models on the same card, for the formula: with two depths it can tell
    what each layer costs beside its weights, and so speak for a model that is deeper than what fits the card.
    """
    steps = [row for row in rows if row.stage == "step"]
    seen = [row for row in steps if not row.held_back]
    if len(seen) < LEAST_POINTS:
        raise UsageError(
            f"{len(seen)} steps are measured, and a fit needs at least {LEAST_POINTS}. "
            "Let python -m validation measure run longer; it goes on where it stopped."
        )
    counts = [row.counts for row in seen]
    measured = np.array([row.duration_s for row in seen])
    efficiency, source = weight_efficiency(rows, card)
    loads, all_measured = features(counts, shape, card), measured
    for other_rows, other_shape in also:
        others = [row for row in other_rows if row.stage == "step" and not row.held_back]
        loads = loads.and_then(features([row.counts for row in others], other_shape, card))
        all_measured = np.concatenate([all_measured, [row.duration_s for row in others]])
    coefficients, pinned = fit_formula(loads, all_measured, efficiency)
    table = fit_piecewise(counts, measured)
    forms = {
        "formula": lambda c: features(c, shape, card).seconds(coefficients),
        "piecewise": table.seconds,
    }
    unseen = [row for row in steps if row.held_back]
    return Fit(
        coefficients,
        table,
        fitted={name: errors(form(counts), seen) for name, form in forms.items()},
        held_back={name: errors(form([r.counts for r in unseen]), unseen) for name, form in forms.items()}
        if unseen
        else {},
        pinned={"weight_efficiency": source} | pinned,
        host_s=float(np.median([row.host_s for row in seen])),
        range={
            "tokens": _span(c.tokens for c in counts),
            "rows": _span(c.rows for c in counts),
            "context_tokens": _span(c.context_tokens for c in counts),
            "prefill_tokens": _span(c.prefill_tokens for c in counts),
        },
        n=len(seen),
    )


def errors(predicted: Floats, rows: Sequence[Row]) -> Errors:
    """Of *predicted* seconds against the medians of *rows*."""
    measured = np.array([row.duration_s for row in rows])
    share = np.abs(predicted / measured - 1)
    worst = int(share.argmax())
    return Errors(
        float(np.median(share)),
        float(share.mean()),
        float(np.quantile(share, 0.95)),
        float(share[worst]),
        rows[worst].key,
        len(rows),
    )


def weight_efficiency(rows: Sequence[Row], card: GPU) -> tuple[float, str]:
    """(share of bandwidth that products reach, where it comes from): latency + bytes / (η·BW) over products."""
    products = [row for row in rows if row.stage == "product"]
    if len({row.bytes for row in products}) < 4:
        return PINNED_WEIGHT_EFFICIENCY, "pinned: too few products were measured"
    size = np.array([row.bytes for row in products], dtype=np.float64)
    seconds = np.array([row.duration_s for row in products])
    matrix = np.stack([1 / seconds, size / card.bandwidth_bytes_per_s / seconds], 1)
    (_, per_byte) = _nnls(matrix, np.ones(len(products)))
    if not per_byte:
        return PINNED_WEIGHT_EFFICIENCY, "pinned: the time of products does not grow with their bytes"
    return float(min(1.0, 1 / per_byte)), f"{len(products)} products measured alone"


def fit_formula(f: Features, measured: Floats, efficiency: float) -> tuple[Coefficients, dict[str, str]]:
    """Coefficients with *efficiency* pinned, by least squares on relative errors, and what else was pinned."""
    from scipy.optimize import least_squares

    depths = np.unique(f.layers)
    has_chunks = bool(f.pair_s.any())
    has_rows = bool(f.rows.any())
    start = replace(Coefficients(), weight_efficiency=efficiency, layer_us=0.0)

    def unpack(x: Floats, power: float) -> Coefficients:
        return replace(
            start,
            overhead_us=float(x[0]),
            layer_us=float(x[5]) if len(depths) > 1 else 0.0,
            row_ns=float(x[1]) if has_rows else 0.0,
            flop_efficiency=float(1 / x[2]),
            kv_efficiency=float(1 / x[3]) if has_rows else start.kv_efficiency,
            pair_efficiency=float(1 / x[4]) if has_chunks else start.pair_efficiency,
            smooth_power=power,
        )

    def residuals(x: Floats, power: float) -> Floats:
        return f.seconds(unpack(x, power)) / measured - 1

    best: tuple[float, Coefficients] | None = None
    for power in _POWERS:
        found = least_squares(
            residuals,
            args=(power,),
            x0=[1000.0, 50.0, 1.4, 1.1, 2.5, 10.0],
            bounds=([0, 0, 1.0, 1.0, 1.0, 0], [1e5, 1e5, 20.0, 20.0, 100.0, 1e4]),
            x_scale=[500.0, 30.0, 0.3, 0.2, 1.0, 10.0],
            loss="soft_l1",
            f_scale=0.01,
        )
        if best is None or found.cost < best[0]:
            best = float(found.cost), unpack(found.x, power)
    assert best is not None
    pinned = {}
    if len(depths) == 1:
        pinned["layer_us"] = f"0: one depth was measured, so overhead_us holds the gaps of all {depths[0]:.0f} layers"
    if not has_rows:
        pinned |= dict.fromkeys(("row_ns", "kv_efficiency"), "default: no decodes were measured")
    if not has_chunks:
        pinned["pair_efficiency"] = "default: no prefills were measured"
    return best[1], pinned


def fit_piecewise(counts: Sequence[Counts], measured: Floats) -> Piecewise:
    """Knots where there are measurements, at most 15; non-negative, least relative error."""
    tokens = np.array([_tokens(c) for c in counts], dtype=np.float64)
    knots = _knots(tokens)
    hats = _hats(tokens, knots)
    context = np.array([c.context_tokens for c in counts], dtype=np.float64)
    pairs = np.array([c.pairs for c in counts], dtype=np.float64)
    # nnls wants columns of one size: context and pairs are scaled to their largest, and back.
    scale = np.array([max(1.0, context.max()), max(1.0, pairs.max())])
    matrix = np.column_stack([hats, context / scale[0], pairs / scale[1]])
    weights = np.ones(len(measured))
    for _ in range(5):
        rows = weights[:, None] * matrix / measured[:, None]
        x = _nnls(rows, weights)
        share = np.abs(matrix @ x / measured - 1)
        # Huber: what is far off counts by its distance, not by its square.
        weights = np.sqrt(np.minimum(1.0, 0.02 / np.maximum(share, 1e-9)))
    base = [float(s) for s in x[:-2]]
    return Piecewise(knots, tuple(base), float(x[-2] / scale[0]), float(x[-1] / scale[1]))


def _tokens(load: Load) -> int:
    """As they are computed, padding included."""
    return load.bucket + load.prefill_tokens


def _knots(tokens: Floats) -> tuple[int, ...]:
    """Those between which there is something measured, thinned to the most that are kept."""
    low, high = int(tokens.min()), int(tokens.max())
    inner = [k for k in _KNOTS if low < k < high and bool((tokens == k).any())]
    knots = sorted({low, high, *inner})
    while len(knots) > MOST_KNOTS:
        gaps = [knots[i + 1] / knots[i - 1] for i in range(1, len(knots) - 1)]
        del knots[1 + gaps.index(min(gaps))]
    return tuple(knots)


def _hats(tokens: Floats, knots: Sequence[int]) -> Floats:
    """[tokens, knots]: weights of the knots in a linear interpolation, the last slope going on beyond the end."""
    if len(knots) == 1:
        return np.ones((len(tokens), 1))
    at = np.clip(np.searchsorted(knots, tokens, side="right") - 1, 0, len(knots) - 2)
    left = np.array(knots, dtype=np.float64)[at]
    right = np.array(knots, dtype=np.float64)[at + 1]
    share = (tokens - left) / (right - left)
    hats = np.zeros((len(tokens), len(knots)))
    index = np.arange(len(tokens))
    hats[index, at] = 1 - share
    hats[index, at + 1] = share
    return hats


def _nnls(matrix: Floats, target: Floats) -> Floats:
    from scipy.optimize import nnls

    answer: Floats = nnls(matrix, target)[0]
    return answer


def _span(values: Any) -> tuple[float, float]:
    listed = list(values)
    return float(min(listed)), float(max(listed))
