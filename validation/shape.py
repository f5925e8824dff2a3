"""The shape of a model as the job runs it: the simulator's own table, perhaps with fewer layers.

Dense LLaMA-family shapes only: grouped heads, gated feed-forward, no biases. Elements and bytes; the
weights are random, so a shape is all there is to a model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from simbatch.errors import UsageError

ELEMENT_BYTES = 2
"""Weights and cache on a card are fp16 or bf16."""


@dataclass(frozen=True)
class Shape:
    """Widths of a decoder. `layers` are those that are run, `full_layers` those of the published model."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    intermediate: int
    full_layers: int

    @property
    def qkv_width(self) -> int:
        return (self.heads + 2 * self.kv_heads) * self.head_dim

    @property
    def layer_params(self) -> int:
        """Matrices of one layer."""
        attention = self.hidden * (self.qkv_width + self.heads * self.head_dim)
        return attention + 3 * self.hidden * self.intermediate

    @property
    def head_params(self) -> int:
        """The output layer."""
        return self.vocab * self.hidden

    @property
    def weight_bytes(self) -> int:
        """What one iteration reads: all layers and the output layer. The token table is looked up only."""
        return ELEMENT_BYTES * (self.layers * self.layer_params + self.head_params)

    @property
    def memory_bytes(self) -> int:
        """Everything that lies in memory."""
        return self.weight_bytes + ELEMENT_BYTES * self.head_params

    @property
    def kv_bytes_per_token_layer(self) -> int:
        return 2 * ELEMENT_BYTES * self.kv_heads * self.head_dim

    @property
    def kv_bytes_per_token(self) -> int:
        return self.layers * self.kv_bytes_per_token_layer

    def with_layers(self, layers: int | None) -> Shape:
        """The same model cut to *layers*; None leaves it whole."""
        if layers is None:
            return self
        if not 1 <= layers <= self.full_layers:
            raise UsageError(f"layers is {layers}, but {self.name} has {self.full_layers}. Give 1 to that many.")
        return replace(self, layers=layers)


WORKSPACE_BYTES = 4 << 30
"""Activations, partial results and the products' own workspaces."""
MOST_KV_TOKENS = 262_144
LEAST_KV_TOKENS = 32_768


def sized(shape: Shape, memory_bytes: int, kv_tokens: int | None, page_tokens: int) -> tuple[Shape, int]:
    """*shape*, with fewer layers if need be, and the KV tokens that go with it on a card of *memory_bytes*.

    A tenth of the memory and a workspace stay free. Without *kv_tokens*: what is left, up to 262,144.
    Raises UsageError when not even two layers fit.
    """
    room = int(memory_bytes * 0.9) - WORKSPACE_BYTES
    left = (room - shape.memory_bytes) // shape.kv_bytes_per_token
    wanted = LEAST_KV_TOKENS if kv_tokens is None else kv_tokens
    if left < wanted:
        each = ELEMENT_BYTES * shape.layer_params + wanted * shape.kv_bytes_per_token_layer
        layers = (room - 2 * ELEMENT_BYTES * shape.head_params) // each
        if layers < 2:
            raise UsageError(
                f"{shape.name} with {wanted:,} KV tokens does not fit {memory_bytes / 1e9:.0f} GB even with two "
                "layers. Choose a smaller --model or fewer --kv-tokens."
            )
        shape = replace(shape, layers=min(shape.layers, layers))
        left = wanted
    tokens = min(left, MOST_KV_TOKENS) if kv_tokens is None else kv_tokens
    return shape, tokens // page_tokens * page_tokens


TINY = Shape("tiny", 2, 128, 4, 2, 32, 97, 256, 2)
"""For tests and for checks on a CPU: every code path, no weight."""


def find_shape(name: str, layers: int | None = None) -> Shape:
    """The shape that *name* stands for (``tiny``, or a model of the simulator's table), cut to *layers*.

    Raises UsageError for unknown names and for models that are no dense LLaMA.
    """
    if name == TINY.name:
        return TINY.with_layers(layers)
    from simbatch.deployment.catalogue import find_model

    model = find_model(name)
    if model.experts or model.latent is not None or model.local_layers or not model.intermediate:
        raise UsageError(
            f"{model.name} is no dense LLaMA-family model, and the loop runs no other. "
            "Take llama-2-7b, llama-2-13b, llama-3-8b or llama-2-70b."
        )
    shape = Shape(
        model.name,
        model.layers,
        model.hidden,
        model.heads,
        model.kv_heads,
        model.head_dim,
        model.vocab,
        model.intermediate,
        model.layers,
    )
    return shape.with_layers(layers)
