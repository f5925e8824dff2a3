"""Iterations put together from timings of kernels or layers, with nothing fitted.

Where only parts were timed, an iteration is their sum over all layers, and the host's time is added
as an assumption. `KernelParts` builds the layers of any model from kernels by size, `LayerParts`
(`simbatch.timing.layers`) takes the layers of the one model that was profiled.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Protocol

from simbatch.deployment import Deployment
from simbatch.timing.base import FOREVER, Iteration
from simbatch.timing.coefficients import Coefficients
from simbatch.timing.formula import FormulaTiming
from simbatch.timing.kernels import Kernels
from simbatch.units import PS_PER_US

_ELEMENT_BYTES = 2
SMALL_KERNELS = 6
"""In a layer: two norms, rotation, cache write, activation, residual."""
SMALL_KERNEL_US = 1.3
"""Each at least, inside a recorded graph."""
SMALL_BANDWIDTH_SHARE = 0.8
SAMPLING_US = 25.0
SAMPLING_SEQUENCE_US = 0.35
"""From a profile of vLLM's sampler on an RTX PRO 6000: 25 µs for one sequence, 64 µs for 128."""
CONTEXTS = (1, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
"""Between these a decode's attention is taken as linear in its context."""


class Parts(Protocol):
    """The GPU's time of one iteration by part, in microseconds, all layers counted."""

    def tokens_us(self, tokens: int) -> float:
        """Everything but attention and the output layer."""
        ...

    def sequences_us(self, sequences: int) -> float:
        """The output layer and sampling."""
        ...

    def decodes_us(self, sequences: int, context: float) -> float:
        """Attention of decodes over *context* tokens each."""
        ...

    def mixed_us(self, prompt_tokens: int, sequences: int, context: float) -> float:
        """By how much decodes make attention longer beside prompts of *prompt_tokens* in all."""
        ...

    def prompts_us(self, prompts: int, tokens: float, past: float) -> float:
        """Attention of *prompts* chunks of *tokens* on *past* cached ones each."""
        ...


class KernelParts:
    """Layers of a deployment built from `Kernels`."""

    def __init__(self, kernels: Kernels, deployment: Deployment) -> None:
        self.kernels = kernels
        shape, self._gpus = deployment.shape, deployment.tensor_parallel_size
        self._layers, self._hidden, self._vocab = shape.layers, shape.hidden, shape.vocab
        self._head_dim, self._inner = shape.head_dim, shape.intermediate // self._gpus
        self._query_heads = shape.heads // self._gpus
        self._kv_heads = -(-shape.kv_heads // self._gpus)
        self._bandwidth = deployment.card.bandwidth_bytes_per_s

    def tokens_us(self, tokens: int) -> float:
        kernels, hidden = self.kernels, self._hidden
        heads, both = self._query_heads * self._head_dim, (self._query_heads + 2 * self._kv_heads) * self._head_dim
        products = (
            kernels.product_us(tokens, both, hidden)
            + kernels.product_us(tokens, hidden, heads)
            + kernels.product_us(tokens, 2 * self._inner, hidden)
            + kernels.product_us(tokens, hidden, self._inner)
        )
        # Small kernels read and write activations: norms and residuals about 8 times the width, the activation 3.
        moved_bytes = tokens * (8 * hidden + 3 * self._inner + 2 * both) * _ELEMENT_BYTES
        small = SMALL_KERNELS * SMALL_KERNEL_US + moved_bytes / (self._bandwidth * SMALL_BANDWIDTH_SHARE) * 1e6
        exchange = 2 * kernels.exchange_us(self._gpus, tokens * hidden)
        return self._layers * (products + small + exchange)

    def sequences_us(self, sequences: int) -> float:
        head = self.kernels.product_us(sequences, self._vocab / self._gpus, self._hidden)
        return head + SAMPLING_US + SAMPLING_SEQUENCE_US * sequences

    def decodes_us(self, sequences: int, context: float) -> float:
        return self._layers * self.kernels.decodes_us(self._query_heads, self._kv_heads, sequences, context)

    def mixed_us(self, prompt_tokens: int, sequences: int, context: float) -> float:
        return self.decodes_us(sequences, context)

    def prompts_us(self, prompts: int, tokens: float, past: float) -> float:
        """Pairs decide: a chunk on a past costs what a prompt with as many pairs does."""
        whole = (tokens * (tokens + 2 * past)) ** 0.5
        return self._layers * self.kernels.prompts_us(self._query_heads, self._kv_heads, prompts, whole)


class PartsTiming(FormulaTiming):
    """Iteration times from `Parts`; *coefficients* give the host's part alone (step, sequence, prompt, waiting)."""

    def __init__(
        self, deployment: Deployment, parts: Parts, coefficients: Coefficients | None = None, *, scale: float = 1.0
    ) -> None:
        super().__init__(deployment, coefficients or Coefficients(), scale=scale)
        self.parts = parts
        self._lines: dict[int, list[tuple[int, int, int]]] = {}

    def _tokens_s(self, tokens: float) -> float:
        return (self.coefficients.step_us + self.parts.tokens_us(round(tokens))) * 1e-6

    def sequences_ps(self, sequences: int) -> int:
        known = self._head_ps.get(sequences)
        if known is None:
            whole = self._whole_ps(self.parts.sequences_us(sequences))
            known = self._head_ps[sequences] = whole + self._sequence_ps * sequences
        return known

    def decodes(self, sequences: int, context: int) -> tuple[int, int, int]:
        if not sequences:
            return 0, 0, FOREVER
        line = self._lines.get(sequences)
        if line is None:
            line = self._lines[sequences] = self._line(sequences)
        for end, offset, slope in line:
            if context <= end:
                return offset + slope * context, slope * sequences, (end - context) // sequences + 1
        _, offset, slope = line[-1]
        return offset + slope * context, slope * sequences, FOREVER

    def _line(self, sequences: int) -> list[tuple[int, int, int]]:
        """(last total context, offset, ps for a token) of each piece, each beginning where the last one ends."""
        times = [self._whole_ps(self.parts.decodes_us(sequences, context)) for context in CONTEXTS]
        pieces, at_ps = [], times[0]
        for (left, right), (early, late) in zip(pairwise(CONTEXTS), pairwise(times), strict=True):
            slope = max(0, round((late - early) / (sequences * (right - left))))
            pieces.append((sequences * right, at_ps - slope * sequences * left, slope))
            at_ps += slope * sequences * (right - left)
        return pieces

    def mixed_ps(self, iteration: Iteration, decoding: int, context: int) -> int:
        return self._whole_ps(self.parts.mixed_us(iteration.prefill_tokens, decoding, context / decoding))

    def prompts_ps(self, iteration: Iteration) -> int:
        prompts, tokens = iteration.prefill_sequences, iteration.prefill_tokens
        past = (iteration.prefill_context_tokens - tokens) / prompts
        return self._whole_ps(self.parts.prompts_us(prompts, tokens / prompts, past))

    def _whole_ps(self, time_us: float) -> int:
        return round(time_us * self.scale * PS_PER_US)

    def describe(self) -> dict[str, Any]:
        host = {
            name: getattr(self.coefficients, name) for name in ("step_us", "sequence_us", "prompt_us", "waiting_ns")
        }
        return {"kind": "measured", "name": f"parts:{type(self.parts).__name__}", **host}
