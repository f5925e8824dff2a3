"""A folder with a config.json gives the same shape as the table, or an error that says what is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simbatch.deployment import Deployment, find_model, read_model_folder
from simbatch.errors import UsageError


def folder(tmp_path: Path, config: object) -> Path:
    (tmp_path / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    return tmp_path


def dense(architecture: str, layers: int, hidden: int, heads: int, kv: int, wide: int, vocab: int) -> dict[str, Any]:
    return {
        "architectures": [architecture],
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "intermediate_size": wide,
        "vocab_size": vocab,
    }


LLAMA = {**dense("LlamaForCausalLM", 32, 4096, 32, 8, 14336, 128256), "max_position_embeddings": 131072}
KIMI = {
    **dense("DeepseekV3ForCausalLM", 61, 7168, 64, 64, 18432, 163840),
    "n_routed_experts": 384,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 2048,
    "moe_layer_freq": 1,
    "first_k_dense_replace": 1,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "max_position_embeddings": 131072,
    "quantization_config": {"quant_method": "fp8"},
}
CONFIGS = {
    "Llama-3.1-8B": LLAMA,
    "Llama-2-7B": dense("LlamaForCausalLM", 32, 4096, 32, 32, 11008, 32000),
    "Qwen3-8B": {**dense("Qwen3ForCausalLM", 36, 4096, 32, 8, 12288, 151936), "head_dim": 128},
    "Gemma-2-9B": {
        **dense("Gemma2ForCausalLM", 42, 3584, 16, 8, 14336, 256000),
        "head_dim": 256,
        "sliding_window": 4096,
    },
    "Gemma-3-12B": {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "text_config": {
            **dense("", 48, 3840, 16, 8, 15360, 262208),
            "head_dim": 256,
            "sliding_window": 1024,
            "sliding_window_pattern": 6,
        },
    },
    "Mistral-7B-v0.1": {**dense("MistralForCausalLM", 32, 4096, 32, 8, 14336, 32000), "sliding_window": 4096},
    "Mixtral-8x7B": {
        **dense("MixtralForCausalLM", 32, 4096, 32, 8, 14336, 32000),
        "sliding_window": None,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    },
    "Qwen1.5-MoE-A2.7B": {
        **dense("Qwen2MoeForCausalLM", 24, 2048, 16, 16, 5632, 151936),
        "num_experts": 60,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 1408,
        "shared_expert_intermediate_size": 5632,
        "decoder_sparse_step": 1,
    },
    "Qwen3-30B-A3B": {
        **dense("Qwen3MoeForCausalLM", 48, 2048, 32, 4, 6144, 151936),
        "head_dim": 128,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
        "mlp_only_layers": [],
    },
    "DeepSeek-V2-Lite": {
        **dense("DeepseekV2ForCausalLM", 27, 2048, 16, 16, 10944, 102400),
        "n_routed_experts": 64,
        "n_shared_experts": 2,
        "num_experts_per_tok": 6,
        "moe_intermediate_size": 1408,
        "moe_layer_freq": 1,
        "first_k_dense_replace": 1,
        "kv_lora_rank": 512,
        "q_lora_rank": None,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
    },
    "Kimi-K2": KIMI,
    "Llama-4-Maverick-17B-128E": {
        "architectures": ["Llama4ForConditionalGeneration"],
        "text_config": {
            **dense("", 48, 5120, 40, 8, 8192, 202048),
            "head_dim": 128,
            "intermediate_size_mlp": 16384,
            "num_local_experts": 128,
            "num_experts_per_tok": 1,
            "interleave_moe_layer_step": 2,
            "attention_chunk_size": 8192,
        },
    },
    "OPT-13B": {
        "architectures": ["OPTForCausalLM"],
        "num_hidden_layers": 40,
        "hidden_size": 5120,
        "num_attention_heads": 40,
        "ffn_dim": 20480,
        "vocab_size": 50272,
        "max_position_embeddings": 2048,
        "torch_dtype": "float16",
        "word_embed_proj_dim": 5120,
    },
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_folder_has_the_shape_of_the_table(tmp_path: Path, name: str) -> None:
    read, known = read_model_folder(folder(tmp_path, CONFIGS[name])), find_model(name)
    assert read.params == pytest.approx(known.params, rel=1e-5)
    assert read.active_params == pytest.approx(known.active_params, rel=1e-5)
    assert read.kv_elements_per_token(8) == known.kv_elements_per_token(8)
    assert (read.local_layers, read.window_tokens) == (known.local_layers, known.window_tokens)
    assert read.prefill_flop_per_pair() == known.prefill_flop_per_pair()
    assert read.quantization == known.quantization


def test_a_deployment_of_a_folder(tmp_path: Path) -> None:
    path = folder(tmp_path, LLAMA)
    here, named = Deployment(str(path)), Deployment("llama-3.1-8b")
    assert (here.kv_tokens, here.max_model_len) == (named.kv_tokens, named.max_model_len)
    assert here.shape.name == tmp_path.name
    assert Deployment(path / "config.json").kv_tokens == named.kv_tokens


def test_a_part_that_reads_images_is_said_to_be_left_out(tmp_path: Path) -> None:
    shape = read_model_folder(folder(tmp_path, CONFIGS["Gemma-3-12B"]))
    assert any("images" in note for note in shape.notes)


@pytest.mark.parametrize(
    ("scaling", "length"),
    [
        (None, 32768),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}, 131072),
        ({"type": "linear", "factor": 2}, 65536),
        ({"rope_type": "llama3", "factor": 8.0}, 32768),
    ],
)
def test_the_longest_request(tmp_path: Path, scaling: object, length: int) -> None:
    config = {**LLAMA, "max_position_embeddings": 32768, "rope_scaling": scaling}
    assert read_model_folder(folder(tmp_path, config)).max_model_len == length


@pytest.mark.parametrize(
    ("stored", "quantization"),
    [
        ({"quant_method": "awq", "bits": 4}, "int4"),
        ({"quant_method": "gptq", "bits": 8}, "int8"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}}},
            },
            "fp8",
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int"}}},
            },
            "int4",
        ),
    ],
)
def test_stored_weights(tmp_path: Path, stored: object, quantization: str) -> None:
    config = {**LLAMA, "quantization_config": stored}
    assert read_model_folder(folder(tmp_path, config)).quantization == quantization


def without(config: dict[str, Any], key: str) -> dict[str, Any]:
    return {k: v for k, v in config.items() if k != key}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "no list 'architectures'"),
        ({}, "no list 'architectures'"),
        ({"architectures": []}, "no list 'architectures'"),
        ({**LLAMA, "architectures": ["LlamaForCausalLN"]}, "Did you mean LlamaForCausalLM"),
        ({**LLAMA, "architectures": ["MambaForCausalLM"]}, "unknown architecture 'MambaForCausalLM'"),
        (without(LLAMA, "hidden_size"), "has no hidden_size"),
        (without(LLAMA, "vocab_size"), "has no vocab_size"),
        (without(CONFIGS["Qwen3-8B"], "head_dim"), "has no head_dim"),
        (without(CONFIGS["Qwen3-8B"], "num_key_value_heads"), "has no num_key_value_heads"),
        (without(KIMI, "kv_lora_rank"), "has no kv_lora_rank"),
        (without(KIMI, "num_experts_per_tok"), "has no num_experts_per_tok"),
        ({**LLAMA, "num_hidden_layers": -1}, "num_hidden_layers is -1"),
        ({**LLAMA, "num_hidden_layers": "32"}, "num_hidden_layers is '32'"),
        ({**LLAMA, "hidden_size": 4097}, "does not divide by 32 heads"),
        ({**LLAMA, "tie_word_embeddings": 1}, "neither true nor false"),
        ({**KIMI, "first_k_dense_replace": "one"}, "first_k_dense_replace is 'one'"),
        ({**LLAMA, "layer_types": ["linear_attention", "full_attention"]}, "linear_attention are not modelled"),
        ({**LLAMA, "quantization_config": {"quant_method": "aqlm", "bits": 2}}, "'aqlm' with 2 bits"),
        ({**LLAMA, "quantization_config": {"quant_method": "compressed-tensors"}}, "not known"),
        ({**LLAMA, "num_key_value_heads": 0}, "num_key_value_heads is 0, but a whole number of at least 1 is expected"),
        ({**LLAMA, "num_key_value_heads": 5}, "num_key_value_heads is 5, which does not divide the 32 attention heads"),
        ({**LLAMA, "num_key_value_heads": 64}, "num_key_value_heads is 64, which does not divide the 32 attention"),
        (
            {**KIMI, "n_routed_experts": 8, "num_experts_per_tok": 9},
            "num_experts_per_tok is 9, but there are 8 experts",
        ),
        ({**LLAMA, "torch_dtype": "int7"}, "torch_dtype is 'int7', but one of bfloat16, float16, float32 is expected"),
        ({**LLAMA, "torch_dtype": 5}, "torch_dtype is 5, but one of bfloat16"),
        ({**LLAMA, "dtype": ["bfloat16"]}, r"torch_dtype is \['bfloat16'\], but one of bfloat16"),
        ({**LLAMA, "quantization_config": "x"}, "quantization_config is 'x', not an object"),
        ({**LLAMA, "max_position_embeddings": 0}, "max_position_embeddings is 0, but a whole number of at least 1"),
        ({**LLAMA, "num_hidden_layers": 10**13}, "num_hidden_layers is 10000000000000, but a whole number"),
        ({**LLAMA, "rope_scaling": 4}, "rope_scaling is 4, not an object"),
        ({**LLAMA, "rope_scaling": {"rope_type": "yarn", "factor": "4"}}, "factor of rope_scaling is '4', not above 0"),
        (json.dumps({**LLAMA, "rope_scaling": {"type": "yarn", "factor": "?"}}).replace('"?"', "NaN"), "is nan, not"),
        ({**LLAMA, "architectures": ["MistralForCausalLM"], "sliding_window": "4k"}, "sliding_window is '4k', not a"),
        ('{"architectures":' * 100_000, "nested too deeply"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_nothing_is_guessed(tmp_path: Path, config: object, message: str) -> None:
    path = folder(tmp_path, config)
    with pytest.raises(UsageError, match=message) as caught:
        read_model_folder(path)
    assert "config.json" in str(caught.value)


@pytest.mark.parametrize(
    ("stated", "dtype"),
    [({}, "bfloat16"), ({"torch_dtype": None}, "bfloat16"), ({"torch_dtype": "float32"}, "float16"),
     ({"dtype": "float16"}, "float16"), ({"torch_dtype": "torch.bfloat16"}, "bfloat16")],
)  # fmt: skip
def test_the_arithmetic_that_a_file_states(tmp_path: Path, stated: dict[str, Any], dtype: str) -> None:
    assert read_model_folder(folder(tmp_path, {**LLAMA, **stated})).dtype == dtype


def test_a_folder_that_may_not_be_looked_into(locked: str) -> None:
    with pytest.raises(UsageError, match="unknown model 'locked'"):
        Deployment(locked)
    with pytest.raises(UsageError, match=r"locked/config\.json cannot be read"):
        Deployment(f"./{locked}")
    with pytest.raises(UsageError, match="unknown model"):
        Deployment("m" * 300)
    with pytest.raises(UsageError, match=r"~nobody-at-all/config\.json cannot be read"):
        Deployment("~nobody-at-all")


def test_a_folder_without_a_configuration(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_model_folder(tmp_path)
