"""What fits: the arithmetic of the label, what vLLM would get, and operations against bytes."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import simbatch as sb
from simbatch.answers.by_label import sequence_bytes
from simbatch.answers.intensity import batch_at, decode_bytes, decode_flop, decode_intensity, intensity_bound

GB, GIB = 10**9, 2**30
KEYS = [
    "config", "weights_gib", "activation_gib", "non_torch_gib", "graph_gib", "kv_gib", "kv_bytes_per_token",
    "num_gpu_blocks", "kv_tokens", "max_concurrency", "sequences", "ridge_flop_per_byte", "warnings",
]  # fmt: skip
ESTIMATED = ["activation_gib", "non_torch_gib", "graph_gib"]
COUNTED = ["kv_gib", "num_gpu_blocks", "kv_tokens", "max_concurrency", "sequences"]


def of(model: str, **more: Any) -> sb.Capacity:
    length = more.pop("length_tokens", None)
    return sb.capacity(sb.Deployment(model, **more), length_tokens=length)


# -- the label -------------------------------------------------------------------------------------


def test_a_sequence_of_llama_13b() -> None:
    """2 x 40 layers x 5,120 x 2 bytes, 2,048 times: 1.6777 GB, which people round to 1.7."""
    here = sb.Deployment("llama-13b", gpu="h100")
    assert here.kv_bytes_per_token == 2 * 40 * 5120 * 2 == 819_200
    assert sequence_bytes(here, 2048) == 1_677_721_600


@pytest.mark.parametrize(
    ("gpu", "share", "sequences"), [("h100", 0.9, [31, 32, 27]), ("h200", 0.9, [67, 68, 60])], ids=["H100", "H200"]
)
def test_the_division_three_times(gpu: str, share: float, sequences: list[int]) -> None:
    """(80 - 26) / 1.7 is 31.8; exactly it is 32.2; with a tenth held back it is 27.4. The H200 has 61 GB more."""
    ways = of("llama-13b", gpu=gpu, gpu_memory_utilization=share).divisions
    assert [way.sequences for way in ways] == sequences
    label = {"h100": 80, "h200": 141}[gpu]
    assert ways[0].quotient == pytest.approx((label - 26) / 1.7)
    assert ways[1].quotient == pytest.approx((label - 2 * 13.0158592) / 1.6777216)
    assert ways[2].quotient == pytest.approx((label * 0.9 - 2 * 13.0158592) / 1.6777216)


def test_the_label_counts_all_gpus_and_the_copies_they_keep() -> None:
    two, sixteen = (of("llama-3.1-8b", tensor_parallel_size=gpus, length_tokens=1000) for gpus in (2, 16))
    assert two.divisions[1].memory_gb == 160
    assert two.divisions[1].sequence_gb == pytest.approx(0.131072)
    assert sixteen.divisions[1].sequence_gb == pytest.approx(2 * 0.131072), "eight KV heads, each of them twice"
    assert sixteen.warnings[-1] == "16 GPUs share 8 KV heads: each head is kept 2 times"


def test_weights_larger_than_the_label_leave_no_sequence() -> None:
    ways = of("llama-3.1-70b", gpu="h100", kv_tokens=4096, max_model_len=2048).divisions
    assert [way.sequences for way in ways] == [0, 0, 0]


# -- what vLLM gets --------------------------------------------------------------------------------


def test_memory_by_part_adds_up() -> None:
    found = of("llama-13b", gpu="h100", gpu_memory_utilization=0.9)
    parts = (found.activation_gib, found.non_torch_gib, found.graph_gib, found.kv_gib)
    assert found.weights_gib + sum(part.value for part in parts) == pytest.approx(79.2 * 0.9, abs=1e-6)
    # All the others at their largest leave the least, and the other way round.
    assert found.weights_gib + sum(part.high for part in parts[:3]) + found.kv_gib.low == pytest.approx(79.2 * 0.9)
    assert found.weights_gib + sum(part.low for part in parts[:3]) + found.kv_gib.high == pytest.approx(79.2 * 0.9)


def test_counts_are_those_of_the_simulator() -> None:
    here = sb.Deployment("llama-13b", gpu="h100")
    found = sb.capacity(here)
    assert found.num_gpu_blocks.value == here.num_gpu_blocks == int(found.kv_gib.value * GIB // found.block_bytes)
    assert found.kv_tokens.value == 16 * found.num_gpu_blocks.value
    assert found.metrics()["usable_kv_tokens"] == here.kv_tokens == found.kv_tokens.value - 16
    assert found.sequences.value == 29
    assert found.sequences.low <= 29 <= found.sequences.high
    assert found.max_concurrency.value == found.num_gpu_blocks.value / 128


def test_as_many_sequences_run_as_are_said_to_fit() -> None:
    """Full-length requests at once: paged memory holds exactly that many, and the next one waits."""
    here = sb.Deployment("llama-13b", gpu="a100-40", num_gpu_blocks=5 * 128 + 100, max_model_len=2048)
    found = sb.capacity(here)
    assert (found.num_gpu_blocks.value, found.sequences.value) == (740, 5)
    trace = sb.Trace.from_lengths([2047] * 8, [1] * 8)
    result = sb.simulate(trace, here, timing="linear:base_ms=1", max_num_batched_tokens=1 << 20)
    assert result.metrics()["batch"]["running_max"] == found.sequences.value


@given(blocks=st.integers(2, 5000), block_size=st.sampled_from([1, 16, 128]), length=st.integers(1, 3000))
def test_sequences_that_fit_fit_and_one_more_does_not(blocks: int, block_size: int, length: int) -> None:
    found = of("llama-13b", num_gpu_blocks=blocks, block_size=block_size, max_model_len=4096, length_tokens=length)
    each = -(-length // block_size)
    assert found.sequences.value * each <= blocks - 1 < (found.sequences.value + 1) * each


def test_a_cache_that_was_given_is_no_estimate() -> None:
    blocks = of("llama-3.1-8b", num_gpu_blocks=1001, max_model_len=4000).metrics()
    assert {name: blocks[name] for name in COUNTED} == {
        "kv_gib": 1001 * 16 * 131_072 / GIB,
        "num_gpu_blocks": 1001,
        "kv_tokens": 16_016,
        "max_concurrency": 1001 / 250,
        "sequences": 4,
    }
    tokens = of("llama-3.1-8b", kv_tokens=16_000, max_model_len=4000).metrics()
    assert [tokens[name] for name in COUNTED] == [16_000 * 131_072 / GIB, 1001, 16_000, 1001 / 250, 4]
    assert tokens["usable_kv_tokens"] == 16_000


def logs(shared: Path) -> list[dict[str, str]]:
    path = shared / "reference" / "kv-capacity-logs.csv"
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def test_printed_blocks_give_the_printed_tokens_and_concurrency(shared: Path) -> None:
    """To the last digit, for every vLLM log with one kind of cache that states blocks, concurrency and length."""
    checked = 0
    for row in logs(shared):
        whole = row["num_gpu_blocks"] and row["max_concurrency"] and row["max_model_len"]
        if not whole or not row["engine"].startswith("vLLM") or "hybrid" in row["notes"] or "Qwen3-30B" in row["model"]:
            continue
        length, block_size = int(row["max_model_len"]), int(row["block_size"])
        size = {"num_gpu_blocks": int(row["num_gpu_blocks"]), "block_size": block_size, "max_model_len": length}
        found = of("llama-3.1-8b", **size)
        if row["kv_tokens"]:
            assert found.kv_tokens.value == int(row["kv_tokens"])
        assert f"{found.max_concurrency.value:.2f}" == f"{float(row['max_concurrency']):.2f}", row["model"]
        checked += 1
    assert checked >= 25


NAMED = {"compressed-tensors": None, "": None, "fp8": "fp8", "gptq_marlin": "int4", "mxfp4": "mxfp4"}


def test_what_was_logged_lies_within_the_ranges(shared: Path) -> None:
    """Those that the ranges were made for: the logs of 0.17 and 0.19 of models known by name, without pipelines."""
    checked = 0
    for row in logs(shared):
        if row["version"] not in ("0.17.0", "0.19.0") or "vision" in row["model"] or "pipeline" in row["notes"]:
            continue
        found = of(
            row["model"],
            gpu=row["gpu"],
            tensor_parallel_size=int(row["n_gpus_tp"]),
            dtype=row["dtype"],
            quantization=NAMED[row["quant"]],
            max_model_len=int(row["max_model_len"]),
            max_num_seqs=int(row["max_num_seqs"]),
            max_num_batched_tokens=int(row["max_num_batched_tokens"]),
        )
        for name in ESTIMATED:
            term = getattr(found, name)
            assert not row[name] or term.low <= float(row[name]) <= term.high, (row["model"], name)
        checked += 1
    assert checked == 23


# -- operations against bytes ----------------------------------------------------------------------


def test_both_ridges_and_the_batch_that_reaches_them() -> None:
    found = of("llama-13b", gpu="h100")
    assert found.ridges["dense"] == pytest.approx(295, abs=0.5)
    assert found.ridges["sparse"] == found.ridges["fp8"] == pytest.approx(591, abs=1)
    alone = found.intensity["weights_only"]
    assert alone["batch_1"] == pytest.approx(1.0), "two operations for a weight of two bytes"
    assert alone["batch_1"] / found.ridges["dense"] == pytest.approx(0.0034, abs=1e-4)
    assert (alone["batch_at_ridge"], alone["batch_at_sparse_ridge"]) == (296, 591)


def test_a_byte_for_a_weight_makes_two_operations_for_a_byte() -> None:
    """Not quite, as the output layer keeps two bytes; and then the 8-bit peak counts, so again about 300 sequences."""
    alone = of("llama-13b", quantization="fp8").intensity["weights_only"]
    assert 1.95 < alone["batch_1"] < 2
    assert alone["batch_at_ridge"] == pytest.approx(295, rel=0.02)


def test_the_fitting_batch_is_an_order_of_magnitude_below_the_ridge() -> None:
    found = of("llama-13b", gpu="h100")
    fitting = found.intensity["fitting_batch"]
    assert fitting == found.sequences.value
    assert found.ridges["dense"] / found.intensity["weights_only"]["fitting"] == pytest.approx(295.2 / 29, rel=1e-3)


def test_with_the_cache_the_ridge_is_never_reached() -> None:
    """Worked by hand: 2 x 12.85e9 operations for the matrices, 4 x 40 x 5,120 for each of 2,048 tokens in the cache."""
    here = sb.Deployment("llama-13b", gpu="h100")
    weights = here.shape.params - 32000 * 5120
    assert decode_flop(here, 3, 2048) == 3 * (2 * weights + 2048 * 4 * 40 * 5120)
    assert decode_bytes(here, 3, 2048) == pytest.approx(2 * weights + 3 * 2048 * 819_200)
    bound = intensity_bound(here, 2048)
    assert bound == pytest.approx(2 * weights / (2048 * 819_200) + 1)
    assert decode_intensity(here, 10**9, 2048) == pytest.approx(bound)
    assert bound < 20 < here.ridge_flop_per_byte


@given(
    model=st.sampled_from(["llama-13b", "qwen3-30b-a3b", "gemma-2-9b", "deepseek-v2-lite"]),
    batch=st.integers(1, 2000),
    length=st.integers(0, 10_000),
)
def test_a_larger_batch_does_more_for_each_byte_up_to_the_bound(model: str, batch: int, length: int) -> None:
    """On weights alone too where they are dense; each further sequence may ask for further experts."""
    here = sb.Deployment(model, gpu="h200")
    if length:
        assert decode_intensity(here, batch, length) <= intensity_bound(here, length) * (1 + 1e-12)
    if not here.shape.experts:
        assert decode_intensity(here, batch, length) < decode_intensity(here, batch + 1, length)
    assert decode_intensity(here, batch, length) > 0


@given(target=st.floats(0.1, 5000))
def test_the_batch_at_a_ridge_is_the_first_to_reach_it(target: float) -> None:
    here = sb.Deployment("llama-13b")
    batch = batch_at(here, target)
    assert decode_intensity(here, batch) >= target
    assert batch == 1 or decode_intensity(here, batch - 1) < target


def test_a_window_bounds_what_a_layer_reads() -> None:
    """Half of Gemma-2's layers look back 4,096 tokens."""
    here = sb.Deployment("gemma-2-9b", gpu="h100")
    more = decode_bytes(here, 1, 8192) - decode_bytes(here, 1, 4096)
    assert more == pytest.approx(4096 * here.kv_bytes_per_token / 2)


def test_cards_without_an_arithmetic_have_no_ridge_for_it() -> None:
    assert of("qwen3-0.6b", gpu="v100").ridges.keys() == {"dense", "sparse", "fp8"}
    assert of("qwen3-0.6b", gpu="v100").ridges["sparse"] is None
    assert of("qwen3-0.6b", gpu="a100-80").ridges["fp8"] is None


# -- what it says ----------------------------------------------------------------------------------


def test_the_json_object_has_the_keys_of_the_interface() -> None:
    found = of("llama-13b", gpu="h100").metrics()
    assert set(KEYS) <= found.keys()
    json.dumps(found, allow_nan=False)
    for name in (*ESTIMATED, *COUNTED):
        assert list(found[name]) == ["low", "value", "high"]
        assert found[name]["low"] <= found[name]["value"] <= found[name]["high"]
    assert found["config"]["length_tokens"] == 2048
    assert found["config"]["model"] == "Llama-13B"
    assert [way["sequences"] for way in found["by_label"]] == [31, 32, 28]


def test_the_text_shows_each_term_with_its_unit() -> None:
    text = repr(of("llama-13b", gpu="h100", gpu_memory_utilization=0.9))
    for line in (
        "Llama-13B (bfloat16) on H100-SXM-80GB. GB are 10^9 bytes, GiB are 2^30 bytes.",
        "KV cache of one token, bytes   819,200  2 x 40 layers x 40 KV heads x 128 x 2 bytes",
        "KV cache of one sequence, GB    1.6777  x 2,048 tokens; 1.5625 GiB",
        "  rounded                           31  (80 - 26) / 1.7 = 31.76",
        "  exact                             32  (80 - 26.03) / 1.6777 = 32.17",
        "  exact, 0.9 of the memory          27  (72 - 26.03) / 1.6777 = 27.40",
        "  memory that a process sees     79.20  85.04 GB",
        "  ridge, 16 bit                  295.2  989 TFLOP/s / 3.35 TB/s",
        "  ridge, 16 bit, 2:4 sparsity    590.4  1,978 TFLOP/s / 3.35 TB/s",
        "  weights alone, batch 1          1.00  0.34 % of 295.2",
    ):
        assert line in text.splitlines()
    assert of("llama-13b")._repr_html_().startswith("<pre")


@pytest.mark.parametrize(
    ("model", "more"),
    [
        ("deepseek-v3", {"gpu": "h200", "tensor_parallel_size": 8}),
        ("qwen3-0.6b", {"gpu": "v100", "length_tokens": 7}),
        ("llama-3.1-405b", {"tensor_parallel_size": 8, "quantization": "int4"}),
        ("gpt-oss-120b", {"gpu": "mi300x"}),
        ("llama-3.1-8b", {"num_gpu_blocks": 10**7}),
    ],
)
def test_the_text_fits_whatever_the_sizes(model: str, more: dict[str, Any]) -> None:
    text = repr(of(model, **more))
    assert max(map(len, text.splitlines())) <= 100
    assert "e+" not in text


def test_a_latent_is_copied_to_every_gpu_and_said_to_be() -> None:
    found = of("deepseek-v2-lite", tensor_parallel_size=4, length_tokens=1000)
    assert "x 1,000 tokens x 4 copies" in repr(found)
    assert found.divisions[1].sequence_gb == pytest.approx(4 * 31_104 * 1000 / GB)
    assert found.warnings[-1] == "each of the 4 GPUs keeps the whole KV cache: a latent is not divided"


def test_warnings_of_lengths_and_seats() -> None:
    long = of("llama-13b", gpu="h200", length_tokens=4096)
    assert long.warnings == ("4,096 tokens exceed max_model_len, 2,048: vLLM would refuse them",)
    short = of("llama-13b", gpu="a100-80", length_tokens=16, max_num_seqs=64)
    assert short.warnings == (f"{short.sequences.value:,} sequences fit, but max_num_seqs lets 64 of them run at once",)
    assert "warning     4,096 tokens exceed" in repr(long)
    assert short.intensity["fitting_batch"] == 64
    small = of("llama-3.1-8b", kv_tokens=10_000)
    assert "a request of 131072 tokens does not fit into 10000 KV tokens" in small.warnings[0]


@pytest.mark.parametrize("length", [0, -5, 2.5, True, "2048"])
def test_a_length_that_is_none(length: Any) -> None:
    with pytest.raises(sb.UsageError) as caught:
        sb.capacity(sb.Deployment("llama-13b"), length_tokens=length)
    assert str(caught.value) == f"length_tokens is {length!r}. Give a whole number of tokens, at least 1."


def test_by_default_it_is_the_default_deployment() -> None:
    assert sb.capacity().deployment == sb.Deployment()
    assert sb.capacity().length_tokens == 131_072
