"""The shape of a model: what its weights and its KV cache weigh, and what a token costs.

Everything follows from three sums: the embedding tables, the routed experts, and the rest, which
every token passes through. So a model is known as soon as its total and its experts are. Norms,
biases and routers are too small to matter and count as part of the rest. Where a shape comes
from: `simbatch.deployment.catalogue` (named models), `simbatch.deployment.hf_config` (a folder).
"""

from __future__ import annotations

from dataclasses import dataclass

from simbatch.errors import UsageError


@dataclass(frozen=True)
class LatentAttention:
    """Multi-head latent attention: one compressed vector a token stands for all heads' keys and values."""

    kv_lora_rank: int
    q_lora_rank: int
    """0 where queries are not compressed."""
    rope_dim: int
    nope_dim: int
    v_dim: int


@dataclass(frozen=True)
class ModelShape:
    """What a simulation needs to know of a model. Sizes in elements, windows and lengths in tokens."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    params: int
    """All parameters, text part."""
    intermediate: int = 0
    """Width of the dense feed-forward layers, shared experts included; 0 where unknown."""
    tied_embeddings: bool = False
    position_params: int = 0
    """Learned position embeddings."""
    experts: int = 0
    experts_per_token: int = 0
    moe_intermediate: int = 0
    moe_layers: int = 0
    latent: LatentAttention | None = None
    kv_layers: int = 0
    """Layers that keep keys and values for every token; fewer than *layers* in hybrids, all of them where not given."""
    local_layers: int = 0
    """Those of the *kv_layers* that attend to the last *window_tokens* only."""
    window_tokens: int = 0
    dtype: str = "bfloat16"
    quantization: str | None = None
    """How the published weights are stored, if not in *dtype*."""
    max_model_len: int | None = None
    """Longest request the model was made for; None where it is not known for certain."""
    notes: tuple[str, ...] = ()
    """What the numbers leave out."""
    unusable: str = ""
    """Why no deployment can be made of this shape; empty where one can."""
    source: str = ""

    def __post_init__(self) -> None:
        if not self.kv_layers:
            object.__setattr__(self, "kv_layers", self.layers)

    @property
    def embedding_params(self) -> int:
        """The token table, the output layer unless they share one, and learned positions."""
        return self.vocab * self.hidden * (1 if self.tied_embeddings else 2) + self.position_params

    @property
    def expert_params(self) -> int:
        """One routed expert of one layer (three matrices)."""
        return 3 * self.hidden * self.moe_intermediate

    @property
    def routed_params(self) -> int:
        """All routed experts of all layers."""
        return self.moe_layers * self.experts * self.expert_params

    @property
    def rest_params(self) -> int:
        """What every token passes through besides the embeddings: attention, dense layers, shared experts."""
        return self.params - self.embedding_params - self.routed_params

    @property
    def active_params(self) -> int:
        """Parameters that one token uses; equals *params* for dense models."""
        return self.params - self.routed_params + self.moe_layers * self.experts_per_token * self.expert_params

    @property
    def replicated_params(self) -> int:
        """Attention parameters that every GPU holds whole: the down-projections of latent attention."""
        if self.latent is None:
            return 0
        return self.layers * self.hidden * (self.latent.q_lora_rank + self.latent.kv_lora_rank + self.latent.rope_dim)

    @property
    def kv_projection_params(self) -> int:
        """Projections to keys and values: copied once *tensor_parallel_size* exceeds the KV heads."""
        return 0 if self.latent else self.kv_layers * 2 * self.hidden * self.kv_heads * self.head_dim

    def kv_elements_per_token(self, tensor_parallel_size: int = 1) -> int:
        """Cache elements that one GPU of *tensor_parallel_size* keeps for a token, all layers counted.

        A GPU has at least one KV head, so beyond that number heads are copied; a latent is
        copied to every GPU.
        """
        if self.latent is not None:
            return self.kv_layers * (self.latent.kv_lora_rank + self.latent.rope_dim)
        heads_per_gpu = -(-self.kv_heads // tensor_parallel_size)
        return self.kv_layers * 2 * heads_per_gpu * self.head_dim

    def decode_flop_per_pair(self) -> int:
        """Arithmetic for one query against one cached token, all layers: scores, then values."""
        if self.latent is not None:
            width = 2 * self.latent.kv_lora_rank + self.latent.rope_dim
            return 2 * self.kv_layers * self.heads * width
        return 4 * self.kv_layers * self.heads * self.head_dim

    def prefill_flop_per_pair(self) -> int:
        """The same in a prefill, where latent attention unfolds its vectors to full heads."""
        if self.latent is not None:
            width = self.latent.nope_dim + self.latent.rope_dim + self.latent.v_dim
            return 2 * self.kv_layers * self.heads * width
        return self.decode_flop_per_pair()

    def check_tensor_parallel(self, tensor_parallel_size: int) -> None:
        """Raise UsageError, naming the values that would do, unless heads split evenly over the GPUs."""
        if tensor_parallel_size < 1 or not self.splits_over(tensor_parallel_size):
            fits = ", ".join(str(n) for n in range(1, min(self.heads, 64) + 1) if self.splits_over(n))
            raise UsageError(
                f"tensor_parallel_size is {tensor_parallel_size}, which does not divide the {self.heads} attention "
                f"heads and {self.kv_heads} KV heads of {self.name}. Values that do: {fits}."
            )

    def splits_over(self, gpus: int) -> bool:
        """Whether *gpus* share the heads evenly; fewer KV heads than GPUs are copied, if evenly."""
        if self.heads % gpus:
            return False
        return self.latent is not None or self.kv_heads % gpus == 0 or gpus % self.kv_heads == 0


def count_params(
    *,
    layers: int,
    hidden: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    vocab: int,
    tied_embeddings: bool,
    intermediate: int,
    gated: bool = True,
    shared_intermediate: int = 0,
    experts: int = 0,
    moe_intermediate: int = 0,
    moe_layers: int = 0,
    latent: LatentAttention | None = None,
    position_params: int = 0,
) -> int:
    """Parameters of a decoder with these widths; biases left out (below 0.1 %).

    *intermediate* is the width of the layers without experts, *shared_intermediate* that of the
    shared experts in the others. A *gated* feed-forward has three matrices, a plain one two.
    """
    if latent is not None:
        queries = latent.q_lora_rank * (hidden + heads * (latent.nope_dim + latent.rope_dim))
        if not latent.q_lora_rank:
            queries = hidden * heads * (latent.nope_dim + latent.rope_dim)
        keys = hidden * (latent.kv_lora_rank + latent.rope_dim)
        keys += latent.kv_lora_rank * heads * (latent.nope_dim + latent.v_dim)
        attention = queries + keys + heads * latent.v_dim * hidden
    else:
        attention = 2 * hidden * head_dim * (heads + kv_heads)
    matrices = 3 if gated else 2
    norms = 2 * hidden
    dense = (layers - moe_layers) * matrices * hidden * intermediate
    sparse = moe_layers * hidden * (3 * (experts * moe_intermediate + shared_intermediate) + experts)
    embeddings = vocab * hidden * (1 if tied_embeddings else 2) + position_params
    return embeddings + layers * (attention + norms) + dense + sparse
