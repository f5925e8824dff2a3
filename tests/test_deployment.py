"""Models, cards and what fits on them: names, arithmetic of published rows, start-up logs, errors."""

from __future__ import annotations

import csv
import json
import pickle
from importlib.resources import files
from pathlib import Path

import pytest

import simbatch as sb
from simbatch.deployment import (
    Deployment,
    default_limits,
    engine_limits,
    find_gpu,
    find_model,
    list_gpus,
    list_models,
)
from simbatch.deployment.gpu import GIB
from simbatch.deployment.memory_budget import activation_bytes
from simbatch.deployment.weights import dtype_bytes, resolve_quantization, weight_bytes
from simbatch.errors import UsageError


def rows(name: str) -> list[dict[str, str]]:
    text = files("simbatch.deployment").joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


@pytest.mark.parametrize("name", ["model-shapes.csv", "gpus.csv"])
def test_the_packaged_tables_are_the_collected_ones(shared: Path, name: str) -> None:
    packaged = files("simbatch.deployment").joinpath(name).read_bytes()
    assert packaged == (shared / "reference" / name).read_bytes()


# Shapes


@pytest.mark.parametrize("row", rows("model-shapes.csv"), ids=lambda row: row["model"])
def test_every_row_has_its_kv_bytes_and_its_parameters(row: dict[str, str]) -> None:
    shape = {s.name: s for s in list_models()}[row["model"]]
    if not row["kv_bytes_per_token_bf16"] or not row["params_b"]:
        assert shape.unusable
        with pytest.raises(UsageError, match="cannot be deployed"):
            Deployment(shape)
        return
    assert shape.kv_elements_per_token() * 2 == int(row["kv_bytes_per_token_bf16"])
    assert shape.params == pytest.approx(float(row["params_b"]) * 1e9, rel=2e-4, abs=5e6)
    assert shape.rest_params > 0
    if row["active_params_b"] and "nominal" not in row["params_note"]:
        assert shape.active_params == pytest.approx(float(row["active_params_b"]) * 1e9, rel=2e-3)
    if "hybrid" not in row["window_note"]:
        assert shape.kv_layers == shape.layers
    assert bool(shape.local_layers) == (bool(row["sliding_window"]) or "chunked" in row["window_note"])


@pytest.mark.parametrize(
    ("name", "shape", "quantization"),
    [
        ("llama-3.1-8b", "Llama-3.1-8B", None),
        ("Llama-3-8B", "Llama-3-8B", None),
        ("llama_3.1_8b", "Llama-3.1-8B", None),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "Llama-3.1-8B", None),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16", "Llama-3.1-8B", "int4"),
        ("RedHatAI/Llama-3.3-70B-Instruct-fp8-dynamic", "Llama-3.3-70B", "fp8"),
        ("redhatai/Llama-3.3-70B-Instruct-quantized.w8a8", "Llama-3.3-70B", "int8"),
        ("TheBloke/Llama-2-7B-Chat-AWQ", "Llama-2-7B", "int4"),
        ("Llama-2-7b-chat-hf", "Llama-2-7B", None),
        ("google/gemma-2-9b-it", "Gemma-2-9B", None),
        ("mistralai/Mistral-7B-Instruct-v0.3", "Mistral-7B-v0.3", None),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "Mixtral-8x7B", None),
        ("mistralai/Mistral-Small-3.1-24B-Instruct-2503", "Mistral-Small-3.1-24B", None),
        ("mistralai/Mistral-Nemo-Instruct-2407", "Mistral-Nemo", None),
        ("mistralai/Mistral-Large-Instruct-2407", "Mistral-Large-2407-123B", None),
        ("microsoft/phi-4", "Phi-4-14B", None),
        ("deepseek-ai/DeepSeek-R1-0528", "DeepSeek-R1", "fp8"),
        ("deepseek-ai/DeepSeek-V3.2", "DeepSeek-V3.2", "fp8"),
        ("openai/gpt-oss-20b", "gpt-oss-20b", "mxfp4"),
        ("Qwen3-235B-A22B-FP8", "Qwen3-235B-A22B", "fp8"),
        ("Kimi-VL-A3B", "Kimi-VL-A3B (text)", None),
    ],
)
def test_a_model_answers_to_what_people_paste(name: str, shape: str, quantization: str | None) -> None:
    found = find_model(name)
    assert (found.name, found.quantization) == (shape, quantization)


def test_every_part_of_a_row_answers_to_its_own_name() -> None:
    for shape in list_models():
        for part in shape.name.split(" / "):
            assert find_model(part).layers == shape.layers
            assert find_model(f"somebody/{part.upper()}-Instruct").name == part


def test_parts_of_one_row_have_their_own_longest_request() -> None:
    assert (find_model("llama-3-8b").max_model_len, find_model("llama-3.1-8b").max_model_len) == (8192, 131072)


@pytest.mark.parametrize("name", ["DeepSeek-V2.5", "Mistral-7B-v0.2", "llama", "deepseek", "gpt-5", "", "phi-4-mini"])
def test_a_model_that_is_not_in_the_table_is_not_guessed(name: str) -> None:
    with pytest.raises(UsageError, match="unknown model"):
        find_model(name)


def test_an_unknown_model_names_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        find_model("lama-3.1-8b")
    assert "Did you mean Llama-3.1-8B" in str(caught.value)
    assert "config.json" in str(caught.value)
    assert caught.value.exit_code == 2


def test_an_ambiguous_model_names_the_candidates() -> None:
    with pytest.raises(UsageError, match=r"may be Mistral-7B-v0\.1 or Mistral-7B-v0\.3"):
        find_model("mistralai/Mistral-7B")


# Cards


@pytest.mark.parametrize(
    ("name", "card"),
    [
        ("h100", "H100-SXM-80GB"),
        ("h100-80gb", "H100-SXM-80GB"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM-80GB"),
        ("H100-80GB SXM", "H100-SXM-80GB"),
        ("NVIDIA H100 PCIe", "H100-PCIe-80GB"),
        ("h200", "H200-SXM-141GB"),
        ("NVIDIA H200", "H200-SXM-141GB"),
        ("a100-80", "A100-SXM-80GB"),
        ("a100-40", "A100-SXM-40GB"),
        ("NVIDIA A100-SXM4-40GB", "A100-SXM-40GB"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM-80GB"),
        ("NVIDIA A100 80GB PCIe", "A100-PCIe-80GB"),
        ("Tesla T4", "T4"),
        ("Tesla V100-SXM2-32GB", "V100-SXM2-32GB"),
        ("NVIDIA A10G", "A10G"),
        ("NVIDIA L40S", "L40S"),
        ("A40-48GB", "A40"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("rtx4090", "RTX 4090"),
        ("RTXA6000", "RTX A6000"),
        ("NVIDIA RTX A6000", "RTX A6000"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000 Server"),
        ("NVIDIA B200", "B200-180GB"),
        ("gb200", "GB200 (per GPU)"),
        ("AMD Instinct MI300X", "MI300X"),
        ("NVIDIA GB10", "GB10 (DGX Spark)"),
    ],
)
def test_a_card_answers_to_what_tools_print(name: str, card: str) -> None:
    assert find_gpu(name).name == card


def test_every_card_answers_to_its_own_name() -> None:
    assert [find_gpu(card.name.lower()).name for card in list_gpus()] == [card.name for card in list_gpus()]


@pytest.mark.parametrize(
    "name", ["NVIDIA H100 NVL", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "GH200", "A100-PCIE-40GB", "h100-96gb", "", "rtx"]
)
def test_a_card_that_is_not_in_the_table_is_not_guessed(name: str) -> None:
    with pytest.raises(UsageError, match="unknown GPU"):
        find_gpu(name)


def test_an_ambiguous_card_names_the_candidates() -> None:
    with pytest.raises(UsageError, match="may be A100-SXM-40GB or A100-SXM-80GB"):
        find_gpu("a100")


def test_both_ridges_of_the_h100() -> None:
    h100 = find_gpu("h100")
    assert h100.ridge_flop_per_byte() == pytest.approx(295, abs=0.5)
    assert h100.ridge_flop_per_byte("sparse") == pytest.approx(591, abs=1)
    assert h100.ridge_flop_per_byte("fp8") == pytest.approx(591, abs=1)
    assert Deployment("llama-3.1-8b", quantization="fp8").ridge_flop_per_byte == h100.ridge_flop_per_byte("fp8")
    with pytest.raises(UsageError, match="no fp8 units"):
        find_gpu("a100-80").ridge_flop_per_byte("fp8")
    with pytest.raises(UsageError, match="unknown kind of peak"):
        h100.ridge_flop_per_byte("spares")


# Published arithmetic


@pytest.mark.parametrize(
    ("model", "kv_bytes", "pool_gib", "slots"),
    [("opt-13b", 819_200, 12, 15_728), ("opt-66b", 2_359_296, 21, 9_557), ("opt-175b", 4_718_592, 264, 60_074)],
)
def test_table_1_of_the_paged_attention_paper(model: str, kv_bytes: int, pool_gib: int, slots: int) -> None:
    shape = find_model(model)
    assert shape.kv_elements_per_token() * 2 == kv_bytes
    assert pool_gib * GIB // kv_bytes == pytest.approx(slots, abs=1)


def test_sequences_of_the_13b_model_on_80_gb() -> None:
    shape = find_model("llama-13b")
    sequence_gb = 2048 * shape.kv_elements_per_token() * 2 / 1e9
    assert sequence_gb == pytest.approx(1.678, abs=5e-4)
    weights_gb = shape.params * 2 / 1e9
    assert weights_gb == pytest.approx(26, abs=0.05)
    assert int((80 - 26) / 1.7) == 31
    assert int((80 - 26) / sequence_gb) == 32
    assert int((72 - 26) / 1.7) == 27
    assert int((141 - 26) / 1.7) == 67


def logs(shared: Path) -> list[dict[str, str]]:
    with (shared / "reference" / "kv-capacity-logs.csv").open(encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["engine"] == "vLLM" and row["version"] == "0.19.0"]


FORMAT = {"fp8": "fp8", "float32": None}


def test_weights_and_activations_of_start_up_logs(shared: Path) -> None:
    checked = 0
    for row in logs(shared):
        if "pipeline" in row["notes"] or "granite-vision" in row["model"]:
            continue
        shape = find_model(row["model"])
        gpus = int(row["n_gpus_tp"])
        stored = resolve_quantization(FORMAT.get(row["quant"]), shape.quantization)
        weights_gib = weight_bytes(shape, row["dtype"], stored, gpus).total / GIB
        activation_gib = (
            activation_bytes(
                shape,
                dtype_bytes(row["dtype"]),
                gpus,
                int(row["max_num_batched_tokens"]),
                int(row["max_num_seqs"]),
            )
            / GIB
        )
        sees_images = "gemma-3" in row["model"] or "Mistral-Small" in row["model"]
        # gpt-oss pads its experts when it loads them.
        slack = 0.07 if sees_images or "gpt-oss" in row["model"] else 0.01
        assert weights_gib == pytest.approx(float(row["weights_gib"]), rel=slack), row["model"]
        assert activation_gib == pytest.approx(float(row["activation_gib"]), rel=0.07), row["model"]
        checked += 1
    assert checked >= 18


def test_kv_tokens_from_names_alone(shared: Path) -> None:
    """Text models of the logs, on the whole chain; those logs took no graph memory from the pool."""
    checked = 0
    for row in logs(shared):
        if "pipeline" in row["notes"] or "vision" in row["model"] or row["dtype"] == "float32" or not row["kv_tokens"]:
            continue
        if row["kv_dtype"] != "auto" or "gemma-3" in row["model"] or "Mistral-Small" in row["model"]:
            continue
        here = Deployment(
            row["model"],
            quantization=FORMAT.get(row["quant"]),
            dtype=row["dtype"],
            tensor_parallel_size=int(row["n_gpus_tp"]),
            gpu_memory_utilization=0.95,
            max_model_len=8192,
        )
        pool_bytes = here.memory.kv_cache_bytes + here.memory.graph_bytes
        tokens = pool_bytes / here.kv_bytes_per_token_per_gpu
        if "gpt-oss" in row["model"]:
            continue
        assert tokens == pytest.approx(float(row["kv_cache_gib"]) * GIB / here.kv_bytes_per_token_per_gpu, rel=0.02)
        checked += 1
    assert checked >= 14


# Deployments


def test_the_default_deployment() -> None:
    here = Deployment("llama-3.1-8b", gpu="h100")
    assert here.kv_bytes_per_token == 131_072
    assert here.weights_bytes == pytest.approx(16.06e9, rel=1e-3)
    assert (here.dtype, here.max_model_len, here.warnings) == ("bfloat16", 131_072, ())
    assert (here.limits.max_num_batched_tokens, here.limits.max_num_seqs) == (8192, 1024)
    assert here.num_gpu_blocks is not None
    assert here.kv_tokens == (here.num_gpu_blocks - 1) * 16
    assert 400_000 < here.kv_tokens < 480_000
    memory = here.memory
    assert memory.budget_bytes == memory.weights_bytes + memory.reserve_bytes + memory.kv_cache_bytes
    assert 0 <= memory.kv_cache_bytes - here.num_gpu_blocks * 16 * 131_072 < 16 * 131_072


def test_kv_memory_can_be_said_exactly() -> None:
    blocks = Deployment("llama-3.1-8b", num_gpu_blocks=1001)
    assert (blocks.num_gpu_blocks, blocks.kv_tokens) == (1001, 16_000)
    tokens = Deployment("opt-13b", gpu="a100-40", kv_tokens=15_728)
    assert (tokens.kv_tokens, tokens.num_gpu_blocks) == (15_728, 984)
    assert tokens.kv_cache_bytes == 15_728 * 819_200
    with pytest.raises(UsageError, match="Give one of them"):
        Deployment("llama-3.1-8b", num_gpu_blocks=1001, kv_tokens=16_000)
    with pytest.raises(UsageError, match="num_gpu_blocks is 1"):
        Deployment("llama-3.1-8b", num_gpu_blocks=1)


def test_kv_memory_as_given_is_a_warning_where_it_cannot_be() -> None:
    here = Deployment("llama-3.1-70b", kv_tokens=200_000)
    assert any("taken as given" in warning for warning in here.warnings)


def test_heads_are_copied_beyond_their_number() -> None:
    per_gpu = [Deployment("llama-3.1-8b", tensor_parallel_size=n).kv_bytes_per_token_per_gpu for n in (1, 2, 4, 8, 16)]
    assert per_gpu == [131_072, 65_536, 32_768, 16_384, 16_384]
    whole = [Deployment("llama-3.1-8b", tensor_parallel_size=n).weights_bytes for n in (1, 8, 16)]
    assert whole[1] == pytest.approx(whole[0], rel=1e-6)
    # Each of the 8 KV heads is projected twice.
    assert whole[2] - whole[0] == pytest.approx(32 * 2 * 4096 * 1024 * 2, rel=1e-3)


def test_a_latent_is_copied_to_every_gpu() -> None:
    one, eight = (find_model("deepseek-v3").kv_elements_per_token(n) for n in (1, 8))
    assert one == eight == 61 * 576


def test_small_numbers_in_the_cache_and_in_the_weights() -> None:
    plain, fp8, int4 = (Deployment("llama-3.1-8b", quantization=q) for q in (None, "fp8", "awq"))
    assert plain.weights_bytes > fp8.weights_bytes > int4.weights_bytes
    assert fp8.weights_bytes / GIB == pytest.approx(8.46, abs=0.01)
    assert Deployment("llama-3.1-8b", kv_cache_dtype="fp8").kv_bytes_per_token == 65_536
    assert Deployment("llama-3.1-8b", dtype="float32").kv_bytes_per_token == 262_144
    assert int4.peak_flop_per_s == plain.peak_flop_per_s == fp8.peak_flop_per_s / 2
    assert Deployment("gpt-oss-20b").weights_bytes < Deployment("gpt-oss-20b", quantization="none").weights_bytes / 2
    ampere = Deployment("llama-3.1-8b", gpu="a100-80", quantization="fp8")
    assert ampere.peak_flop_per_s == 312e12
    assert any("arithmetic is 16 bit" in warning for warning in ampere.warnings)


def test_a_card_without_bfloat16() -> None:
    assert Deployment("llama-3.2-3b", gpu="t4").dtype == "float16"
    with pytest.raises(UsageError, match="Use dtype float16"):
        Deployment("llama-3.2-3b", gpu="t4", dtype="bfloat16")


def test_the_longest_request() -> None:
    cut = Deployment("llama-3.1-8b", kv_tokens=10_000)
    assert cut.max_model_len == 10_000
    assert any("131072 tokens does not fit into 10000" in warning for warning in cut.warnings)
    kept = Deployment("llama-3.1-8b", kv_tokens=10_000, max_model_len=20_000)
    assert kept.max_model_len == 20_000
    assert any("would not start" in warning for warning in kept.warnings)
    unknown = Deployment("phi-3-mini-3.8b")
    assert unknown.max_model_len == 8192
    assert any("not known" in warning for warning in unknown.warnings)
    assert Deployment("phi-3-mini-3.8b", max_model_len=4096).warnings == ()


def test_layers_with_a_window_are_said() -> None:
    assert any("21 of 42 layers" in warning for warning in Deployment("gemma-2-9b").warnings)


def test_weights_that_do_not_fit_say_by_how_much_and_what_would() -> None:
    with pytest.raises(UsageError) as caught:
        Deployment("llama-3.1-70b", gpu="h100")
    text = str(caught.value)
    assert "131.4 GiB of weights" in text
    assert "GiB too much" in text
    assert "tensor_parallel_size 2 would fit" in text
    Deployment("llama-3.1-70b", gpu="h100", tensor_parallel_size=2)
    with pytest.raises(UsageError, match="larger GPUs"):
        Deployment("llama-3.1-405b", gpu="t4")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tensor_parallel_size": 3}, r"does not divide the 32 attention heads.*1, 2, 4, 8, 16, 32"),
        ({"tensor_parallel_size": 0}, "Give a whole number of at least 1"),
        ({"dtype": "bf61"}, "unknown dtype 'bf61'. Did you mean bf16"),
        ({"quantization": "fp9"}, "Did you mean fp8"),
        ({"quantization": "compressed-tensors"}, "Say what the weights are"),
        ({"kv_cache_dtype": "fp7"}, "unknown kv_cache_dtype"),
        ({"gpu": "h1000"}, "unknown GPU 'h1000'"),
        ({"gpu_memory_utilization": 92}, "share of the card's memory"),
        ({"block_size": 0}, "block_size is 0"),
        ({"max_model_len": 0}, "max_model_len is 0"),
        ({"kv_tokens": 0}, "kv_tokens is 0"),
        ({"price_usd_per_hour": -1}, "dollars per GPU"),
        ({"gpu": "gb10", "tensor_parallel_size": 2}, "no link"),
        ({"max_num_seqs": 4096, "max_num_batched_tokens": 512}, "Set max_num_batched_tokens to 4096"),
        ({"max_num_seqs": 0}, "max_num_seqs is 0"),
        ({"model": "no/such/folder/config.json"}, "cannot be read"),
        ({"model": "./nowhere"}, "cannot be read"),
    ],
)
def test_errors(given: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Deployment(**given)  # type: ignore[arg-type]


def test_default_limits_by_device() -> None:
    known = {name: default_limits(find_gpu(name)) for name in ("b200", "h100", "h200", "a100-80", "l4", "mi300x")}
    assert {name: (x.max_num_batched_tokens, x.max_num_seqs) for name, x in known.items()} == {
        "b200": (16384, 1024),
        "h100": (8192, 1024),
        "h200": (8192, 1024),
        "a100-80": (2048, 256),
        "l4": (2048, 256),
        "mi300x": (16384, 1024),
    }


def test_limits_are_fitted_to_each_other() -> None:
    h100 = find_gpu("h100")

    def limits(length: int, **given: object) -> tuple[int, int]:
        found = engine_limits(h100, length, **given)  # type: ignore[arg-type]
        return found.max_num_batched_tokens, found.max_num_seqs

    assert limits(4096) == (8192, 1024)
    assert limits(4) == (4096, 1024)
    assert limits(4096, max_num_batched_tokens=512) == (512, 512)
    assert limits(1000, max_num_seqs=2) == (2000, 2)
    assert limits(32_768, enable_chunked_prefill=False) == (32_768, 1024)


def test_it_can_be_repeated_stored_and_changed() -> None:
    here = Deployment("meta-llama/Llama-3.3-70B-Instruct", tensor_parallel_size=4, price_usd_per_hour=2.5)
    described = json.loads(json.dumps(here.describe()))
    assert described["model"] == "Llama-3.3-70B"
    assert described["kv_tokens"] == here.kv_tokens
    again = Deployment(**described["given"])
    assert again.describe() == here.describe()
    assert pickle.loads(pickle.dumps(here)).describe() == here.describe()
    assert here.replace(tensor_parallel_size=8).kv_tokens > 2 * here.kv_tokens
    assert here.usd_per_hour == 10.0
    assert Deployment("llama-3.1-8b").usd_per_hour is None
    assert "Llama-3.3-70B on 4 x H100-SXM-80GB" in repr(here)


def test_a_shape_of_ones_own_keeps_the_cache_in_every_layer_unless_it_says_otherwise() -> None:
    """Without the number of such layers there was no KV cache at all, and profiles divided by zero."""
    sizes = {"layers": 80, "hidden": 10240, "heads": 80, "kv_heads": 80, "head_dim": 128, "vocab": 51200}
    shape = sb.ModelShape("GPT-3 101B", params=101_000_000_000, **sizes)
    assert shape.kv_layers == 80
    assert sb.ModelShape("hybrid", params=1, kv_layers=10, **sizes).kv_layers == 10
    here = sb.Deployment(shape, "a100-40", tensor_parallel_size=8, max_model_len=2048)
    assert here.kv_bytes_per_token == 2 * 80 * 10240 * 2
    trace = sb.Trace.from_lengths([100], [5])
    assert sb.simulate(trace, here, timing="a100-80gb").metrics()["requests"]["finished"] == 1
