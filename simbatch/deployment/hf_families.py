"""Architectures that a config.json may name, and what each leaves unsaid.

A configuration leaves out what equals its architecture's default. Only defaults that belong to
the published architecture stand here; where one cannot be sure, the key is required.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Family:
    """How to read the configuration of one architecture."""

    tied_embeddings: bool = False
    """Whether the output layer is the token table when the file does not say."""
    gated: bool = True
    """Three matrices in the feed-forward, not two."""
    kv_heads_as_heads: bool = False
    """Without num_key_value_heads, every attention head has its own keys and values."""
    head_dim_required: bool = False
    """The heads' width is not hidden size ÷ heads."""
    local: str = ""
    """Which layers keep to a window: ``all``, ``alternate``, ``five-of-six``, ``chunked``, or none."""
    experts: str = ""
    """Key of the number of routed experts; empty for dense models."""
    expert_width: str = "moe_intermediate_size"
    latent: bool = False
    learned_positions: bool = False
    scale_context: bool = True
    """Whether a rope scaling factor lengthens max_position_embeddings."""
    aliases: tuple[tuple[str, str], ...] = ()
    """(our key, this architecture's key) where they differ."""


_GPT2_KEYS = (
    ("hidden_size", "n_embd"),
    ("num_hidden_layers", "n_layer"),
    ("num_attention_heads", "n_head"),
    ("intermediate_size", "n_inner"),
    ("max_position_embeddings", "n_positions"),
)
_LLAMA = Family(kv_heads_as_heads=True)

FAMILIES = {
    "LlamaForCausalLM": _LLAMA,
    "InternLM2ForCausalLM": Family(),
    "GraniteForCausalLM": Family(kv_heads_as_heads=True),
    "MistralForCausalLM": Family(local="all"),
    "Qwen2ForCausalLM": Family(),
    "Qwen3ForCausalLM": Family(head_dim_required=True),
    "Phi3ForCausalLM": Family(kv_heads_as_heads=True, local="all"),
    "PhiForCausalLM": Family(gated=False, kv_heads_as_heads=True),
    "Olmo2ForCausalLM": Family(kv_heads_as_heads=True),
    "Starcoder2ForCausalLM": Family(gated=False, tied_embeddings=True, local="all"),
    "GPTNeoXForCausalLM": Family(gated=False, kv_heads_as_heads=True),
    "OPTForCausalLM": Family(
        gated=False,
        tied_embeddings=True,
        kv_heads_as_heads=True,
        learned_positions=True,
        aliases=(("intermediate_size", "ffn_dim"),),
    ),
    "GPT2LMHeadModel": Family(
        gated=False, tied_embeddings=True, kv_heads_as_heads=True, learned_positions=True, aliases=_GPT2_KEYS
    ),
    "GemmaForCausalLM": Family(tied_embeddings=True, head_dim_required=True),
    "Gemma2ForCausalLM": Family(tied_embeddings=True, head_dim_required=True, local="alternate"),
    "Gemma3ForCausalLM": Family(tied_embeddings=True, head_dim_required=True, local="five-of-six", scale_context=False),
    "MixtralForCausalLM": Family(local="all", experts="num_local_experts", expert_width="intermediate_size"),
    "Qwen2MoeForCausalLM": Family(experts="num_experts"),
    "Qwen3MoeForCausalLM": Family(head_dim_required=True, experts="num_experts"),
    "MiniMaxM2ForCausalLM": Family(
        head_dim_required=True, experts="num_local_experts", expert_width="intermediate_size"
    ),
    "GptOssForCausalLM": Family(
        head_dim_required=True, local="alternate", experts="num_local_experts", expert_width="intermediate_size"
    ),
    "Llama4ForCausalLM": Family(
        head_dim_required=True, local="chunked", experts="num_local_experts", expert_width="intermediate_size"
    ),
    "DeepseekV2ForCausalLM": Family(latent=True, experts="n_routed_experts"),
    "DeepseekV3ForCausalLM": Family(latent=True, experts="n_routed_experts"),
}

TEXT_PARTS = {
    "Gemma3ForConditionalGeneration": "Gemma3ForCausalLM",
    "Mistral3ForConditionalGeneration": "MistralForCausalLM",
    "Llama4ForConditionalGeneration": "Llama4ForCausalLM",
    "Qwen2VLForConditionalGeneration": "Qwen2ForCausalLM",
    "Qwen2_5_VLForConditionalGeneration": "Qwen2ForCausalLM",
}
"""Models that read images too, and the architecture of their text part."""
