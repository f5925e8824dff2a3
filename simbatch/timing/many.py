"""The formula for many iterations at once, and how it changes with each coefficient: what fits need.

`simbatch.timing.formula` says what the terms are; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from simbatch.timing.coefficients import Coefficients
from simbatch.timing.work import Floats, Loads

_US = 1e-6
_NS = 1e-9


def formula_s(c: Coefficients, work: Loads) -> Floats:
    """Seconds of each iteration of *work*."""
    kv_efficiency = c.kv_efficiency * work.kv_heads / (work.kv_heads + c.kv_half_heads)
    reads_s = np.maximum(work.kv_s, c.kv_floor_tokens * work.kv_sequence_s)
    decodes_s = (reads_s + c.kv_sequence_tokens * work.kv_sequence_s) / kv_efficiency
    prompts_s = np.maximum(work.prefill_kv_s / kv_efficiency, work.pairs_s / c.prefill_efficiency)
    launch_us = c.step_us + work.layers * (c.layer_us + c.eager_layer_us * (work.tokens > c.graph_tokens))
    total: Floats = (
        (launch_us + work.reduces * c.all_reduce_us + c.sequence_us * work.sequences + c.prompt_us * work.prompts) * _US
        + (c.waiting_ns * work.waiting + c.crowding_ns * work.sequences**2) * _NS
        + _smooth_many(work.read_s / c.weight_efficiency, work.math_s / c.compute_efficiency, c.roof_power)
        + _smooth_many(work.head_read_s / c.weight_efficiency, work.head_math_s / c.compute_efficiency, c.roof_power)
        + decodes_s * (1 + c.mixed_kv_share * work.mixed)
        + prompts_s
        + work.reduce_s / c.link_efficiency
    )
    return total


def _smooth_many(one: Floats, other: Floats, power: float) -> Floats:
    most = np.maximum(np.maximum(one, other), 1e-30)
    smooth: Floats = most * ((one / most) ** power + (other / most) ** power) ** (1 / power)
    return smooth


def formula_slopes(c: Coefficients, work: Loads, names: Sequence[str]) -> list[Floats]:
    """How the seconds of each iteration change with each of the coefficients *names*, one array each."""
    heads = work.kv_heads / (work.kv_heads + c.kv_half_heads)
    kv_efficiency = c.kv_efficiency * heads
    floors = c.kv_floor_tokens * work.kv_sequence_s
    above = work.kv_s >= floors
    mixed = 1 + c.mixed_kv_share * work.mixed
    decodes_s = (np.where(above, work.kv_s, floors) + c.kv_sequence_tokens * work.kv_sequence_s) / kv_efficiency
    cached_s, pairs_s = work.prefill_kv_s / kv_efficiency, work.pairs_s / c.prefill_efficiency
    cached = cached_s > pairs_s
    kv_s = decodes_s * mixed + np.where(cached, cached_s, 0.0)
    eager = work.tokens > c.graph_tokens
    layers = _Corner(work.read_s / c.weight_efficiency, work.math_s / c.compute_efficiency, c.roof_power)
    head = _Corner(work.head_read_s / c.weight_efficiency, work.head_math_s / c.compute_efficiency, c.roof_power)
    slopes: dict[str, Callable[[], Floats]] = {
        "step_us": lambda: np.full(len(work), _US),
        "layer_us": lambda: work.layers * _US,
        "eager_layer_us": lambda: work.layers * eager * _US,
        "weight_efficiency": lambda: -(layers.by_one() + head.by_one()) / c.weight_efficiency,
        "compute_efficiency": lambda: -(layers.by_other() + head.by_other()) / c.compute_efficiency,
        "roof_power": lambda: layers.by_power() + head.by_power(),
        "kv_efficiency": lambda: -kv_s / c.kv_efficiency,
        "kv_half_heads": lambda: kv_s / (work.kv_heads + c.kv_half_heads),
        "kv_floor_tokens": lambda: np.where(above, 0.0, work.kv_sequence_s) / kv_efficiency * mixed,
        "kv_sequence_tokens": lambda: work.kv_sequence_s / kv_efficiency * mixed,
        "mixed_kv_share": lambda: decodes_s * work.mixed,
        "prefill_efficiency": lambda: -np.where(cached, 0.0, pairs_s) / c.prefill_efficiency,
        "sequence_us": lambda: work.sequences * _US,
        "crowding_ns": lambda: work.sequences**2 * _NS,
        "prompt_us": lambda: work.prompts * _US,
        "waiting_ns": lambda: work.waiting * _NS,
        "all_reduce_us": lambda: work.reduces * _US,
        "link_efficiency": lambda: -work.reduce_s / c.link_efficiency**2,
    }
    return [slopes[name]() for name in names]


class _Corner:
    """A rounded maximum of two times, and what each contributes to it."""

    def __init__(self, one: Floats, other: Floats, power: float) -> None:
        most = np.maximum(np.maximum(one, other), 1e-30)
        self._one, self._other, self._power = one / most, other / most, power
        self._of_one, self._of_other = self._one**power, self._other**power
        self._sum = self._of_one + self._of_other
        self._total = most * self._sum ** (1 / power)

    def by_one(self) -> Floats:
        return self._total * self._of_one / self._sum

    def by_other(self) -> Floats:
        return self._total * self._of_other / self._sum

    def by_power(self) -> Floats:
        logs = self._of_one * np.log(np.maximum(self._one, 1e-30))
        logs += self._of_other * np.log(np.maximum(self._other, 1e-30))
        slope: Floats = self._total * (logs / self._sum - np.log(self._sum) / self._power) / self._power
        return slope
