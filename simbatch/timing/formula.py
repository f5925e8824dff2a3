"""The formula: seconds at peak over the shares that are reached, plus times that no peak explains.

    t = step + layers · layer
      + smax(reading weights, arithmetic of T tokens) + smax(reading the output layer, arithmetic of N sequences)
      + attention of decodes (a floor below, longer beside a prompt) + attention of prompts
      + exchanges between GPUs + N · sequence + prompts · prompt + waiting requests · waiting

smax is (r^p + m^p)^(1/p). `FormulaTiming` answers the engine in whole picoseconds; `simbatch.timing.many`
gives the same for many iterations at once, for fits. The coefficients are in `simbatch.timing.coefficients`,
what an iteration has to do in `simbatch.timing.work`.
"""

from __future__ import annotations

from typing import Any

from simbatch.deployment import Deployment
from simbatch.timing.base import FOREVER, Iteration
from simbatch.timing.coefficients import Coefficients
from simbatch.timing.work import peaks
from simbatch.units import PS_PER_S

_US = 1e-6
_NS = 1e-9


class FormulaTiming:
    """Iteration times of a `Deployment` by `Coefficients`; *scale* makes every iteration longer by a factor.

    Each part is rounded to whole picoseconds once for each number of tokens or sequences.
    """

    def __init__(self, deployment: Deployment, coefficients: Coefficients, *, scale: float = 1.0) -> None:
        self.deployment = deployment
        self.coefficients = c = coefficients
        self.scale = scale
        self.peaks = p = peaks(deployment)
        self._ps = scale * PS_PER_S
        kv_efficiency = c.kv_efficiency * p.kv_heads / (p.kv_heads + c.kv_half_heads)
        kv_ps = max(p.kv_token_s, p.decode_pair_s) / kv_efficiency * self._ps
        self._kv_local_ps = round(kv_ps * p.local_share)
        self._kv_full_ps = round(kv_ps * (1 - p.local_share))
        self._kv_floor_ps = round(kv_ps * c.kv_floor_tokens)
        self._kv_sequence_ps = round(kv_ps * c.kv_sequence_tokens)
        self._prefill_kv_s = p.kv_token_s / kv_efficiency
        self._pair_s = p.prefill_pair_s / c.prefill_efficiency
        self._sequence_ps = round(c.sequence_us * _US * self._ps)
        self._prompt_ps = round(c.prompt_us * _US * self._ps)
        self._waiting_ps = round(c.waiting_ns * _NS * self._ps)
        self._tokens_ps: dict[int, int] = {}
        self._head_ps: dict[int, int] = {}

    def progression(self, iteration: Iteration) -> tuple[int, int, int]:
        prompts, sequences = iteration.prefill_sequences, iteration.sequences
        first = self.tokens_ps(iteration.tokens) + self.sequences_ps(sequences) + self._waiting_ps * iteration.waiting
        if not prompts:
            decodes_ps, increment, holds = self.decodes(sequences, iteration.context_tokens)
            first += decodes_ps
            return first if first > 1 else 1, increment, holds
        decoding = sequences - prompts
        if decoding:
            first += self.mixed_ps(iteration, decoding, iteration.context_tokens - iteration.prefill_context_tokens)
        return max(1, first + self._prompt_ps * prompts + self.prompts_ps(iteration)), 0, 1

    # -- parts, each in picoseconds ----------------------------------------------------------------

    def tokens_ps(self, tokens: int) -> int:
        """What depends on the number of *tokens* alone: the layers without attention, exchanges, launches."""
        if tokens not in self._tokens_ps:
            self._tokens_ps[tokens] = round(self._tokens_s(tokens) * self._ps)
        return self._tokens_ps[tokens]

    def _tokens_s(self, tokens: float) -> float:
        c, p = self.coefficients, self.peaks
        launch_us = c.step_us + p.layers * c.layer_us + p.reduces * c.all_reduce_us
        if tokens > c.graph_tokens:
            launch_us += p.layers * c.eager_layer_us
        products_s = _smooth(
            p.layers_read_s(tokens) / c.weight_efficiency,
            tokens * p.token_math_s / c.compute_efficiency,
            c.roof_power,
        )
        return launch_us * _US + products_s + tokens * p.reduce_token_s / c.link_efficiency

    def sequences_ps(self, sequences: int) -> int:
        """What depends on the number of *sequences*: the output layer, sampling, the host."""
        known = self._head_ps.get(sequences)
        if known is None:
            c, p = self.coefficients, self.peaks
            head_s = _smooth(
                p.head_read_s / c.weight_efficiency, sequences * p.sequence_math_s / c.compute_efficiency, c.roof_power
            )
            crowd_ps = round((head_s + c.crowding_ns * _NS * sequences**2) * self._ps)
            known = self._head_ps[sequences] = crowd_ps + self._sequence_ps * sequences
        return known

    def decodes(self, sequences: int, context: int) -> tuple[int, int, int]:
        """Attention of *sequences* decodes over *context* tokens: (ps, ps more each iteration, iterations)."""
        each, both = self._kv_sequence_ps * sequences, self._kv_full_ps + self._kv_local_ps
        floor = self._kv_floor_ps * sequences
        edge = sequences * self.peaks.window_tokens if self._kv_local_ps else 0
        if not edge or context <= edge:
            if both * context <= floor:
                return each + floor, 0, _until(floor // both, context, sequences)
            holds = _until(edge, context, sequences) if edge else FOREVER
            return each + both * context, both * sequences, holds
        reads = self._kv_full_ps * context + self._kv_local_ps * edge
        if reads < floor:
            return each + floor, 0, 1
        return each + reads, self._kv_full_ps * sequences, FOREVER

    def mixed_ps(self, iteration: Iteration, decoding: int, context: int) -> int:
        """Attention of *decoding* sequences beside prompts."""
        return round(self.decodes(decoding, context)[0] * (1 + self.coefficients.mixed_kv_share))

    def prompts_ps(self, iteration: Iteration) -> int:
        """Attention of prompts: their cache read or their pairs computed, whichever is longer."""
        p = self.peaks
        context, pairs, tokens = iteration.prefill_context_tokens, iteration.prefill_pairs, iteration.prefill_tokens
        full_s = local_s = max(context * self._prefill_kv_s, pairs * self._pair_s)
        if p.local_share:
            # A query of a windowed layer meets at most `window` keys, and those of a chunk share most of them.
            near = min(context, iteration.prefill_sequences * p.window_tokens + tokens)
            local_s = max(near * self._prefill_kv_s, min(pairs, tokens * p.window_tokens) * self._pair_s)
        return round((full_s * (1 - p.local_share) + local_s * p.local_share) * self._ps)

    def describe(self) -> dict[str, Any]:
        return {"kind": "estimated", "name": "formula", **self.coefficients.as_dict()}


def _until(edge: int, context: int, sequences: int) -> int:
    """Iterations from *context* on, growing by *sequences*, that stay at or below *edge*."""
    return max(1, (edge - context) // sequences + 1) if sequences else FOREVER


def _smooth(one: float, other: float, power: float) -> float:
    """A maximum with a rounded corner; scaled by the larger, so that no power leaves the range of floats."""
    most = max(one, other)
    return most * ((one / most) ** power + (other / most) ** power) ** (1 / power) if most else 0.0
