"""Against real start-up logs: exactly from the printed pool, within 2 % from printed terms, and from names alone.

The rows are public logs of several engines and releases. The tables of `docs/capacity-logs.md` are
written by these tests (SIMBATCH_WRITE_TABLES=1) and compared by them.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import simbatch as sb
from simbatch.deployment.releases import find_release, memory_rules

GIB = 2**30
Row = dict[str, str]

QUANTIZATION = {
    "": None, "compressed-tensors": None, "fp8": "fp8", "fp8 block": "fp8", "w8a8": "int8", "int8 weights": "int8",
    "gptq_marlin": "int4", "gptq-int4": "int4", "bnb-4bit": "int4", "mxfp4": "mxfp4",
}  # fmt: skip
ALIASES = {
    "ibm-granite/granite-vision-3.3-2b": "granite-3.1-2b",
    "OPT-125M (inferred)": "opt-125m",
    "7B (Llama-2 shape)": "llama-2-7b",
    "Llama-3.1-70B w8a8": "llama-3.1-70b",
}
UNKNOWN_GPUS = ("not stated", "RTX 16 GB", "AMD APU (GMK mini PC)")
OTHER_RANK = ("pipeline", "printed rank")
"""The printed GiB are not those of the GPU that sets the number of tokens."""
READS_IMAGES = ("image-text", "Mistral-Small")


@pytest.fixture(scope="module")
def rows(shared: Path) -> list[Row]:
    path = shared / "reference" / "kv-capacity-logs.csv"
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def number(cell: str) -> float | None:
    return float(cell) if cell else None


def arguments(row: Row) -> dict[str, Any]:
    """What the row says of its settings, as arguments of a deployment."""
    found: dict[str, Any] = {
        name: int(row[name])
        for name in ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "block_size")
        if row[name]
    }
    version = re.search(r"\d+\.\d+", row["version"])
    if row["gpu_memory_utilization"]:
        found["gpu_memory_utilization"] = float(row["gpu_memory_utilization"])
    return {
        **found,
        "model": ALIASES.get(row["model"], row["model"]),
        "gpu": "h200" if row["gpu"] in UNKNOWN_GPUS else row["gpu"],
        "tensor_parallel_size": int(row["n_gpus_tp"]),
        "dtype": row["dtype"],
        "kv_cache_dtype": row["kv_dtype"] or "auto",
        "quantization": QUANTIZATION[row["quant"]],
        "vllm_version": version[0] if version and row["engine"] == "vLLM" else None,
    }


def printed_tokens(row: Row) -> float | None:
    """Tokens as printed, or the printed blocks' tokens where layers are alike."""
    blocks, size = number(row["num_gpu_blocks"]), number(row["block_size"]) or 16
    return number(row["kv_tokens"]) or (blocks * size if blocks else None)


def is_of_another_rank(row: Row) -> bool:
    return any(word in row["notes"] for word in OTHER_RANK)


# -- given the pool --------------------------------------------------------------------------------


def test_the_printed_pool_gives_the_printed_counts(rows: list[Row]) -> None:
    """Every row with a pool and a count, whatever the engine: within what rounding the GiB leaves open."""
    checked = {"blocks": 0, "tokens": 0, "concurrency": 0, "hybrid": 0}
    for row in rows:
        pool = number(row["kv_cache_gib"])
        if pool is None or not printed_tokens(row) or is_of_another_rank(row):
            continue
        # SGLang and TensorRT-LLM keep tokens; a block of one is the same arithmetic.
        half = 0.5 * 10 ** -len(row["kv_cache_gib"].partition(".")[2])
        if row["engine"] == "SGLang":
            half *= 2  # the sum of keys and values, each rounded
        low, high = (given_pool(row, (pool + sign * half) * GIB) for sign in (-1, 1))
        if row["num_gpu_blocks"]:
            assert low.num_gpu_blocks.value <= int(row["num_gpu_blocks"]) <= high.num_gpu_blocks.value, row["model"]
            checked["blocks"] += 1
        if row["kv_tokens"]:
            assert low.kv_tokens.value <= int(row["kv_tokens"]) <= high.kv_tokens.value, row["model"]
            checked["tokens"] += 1
        if row["max_concurrency"] and row["max_model_len"]:
            near = float(row["max_concurrency"])
            places = len(row["max_concurrency"].partition(".")[2])
            assert low.max_concurrency.value - 0.51 * 10**-places <= near, row["model"]
            assert near <= high.max_concurrency.value + 0.51 * 10**-places, row["model"]
            checked["concurrency"] += 1
        checked["hybrid"] += low.layout.is_hybrid
    assert checked["blocks"] >= 30
    assert checked["tokens"] >= 30
    assert checked["concurrency"] >= 30
    assert checked["hybrid"] == 3, "Gemma 2, Gemma 3 and gpt-oss"


def given_pool(row: Row, pool_bytes: float) -> sb.Capacity:
    asked = {**arguments(row), "gpu": "h200", "kv_cache_memory_bytes": int(pool_bytes)}
    return sb.capacity(sb.Deployment(**{"block_size": 1 if row["engine"] == "TensorRT-LLM" else 16, **asked}))


# -- given the terms -------------------------------------------------------------------------------


def test_printed_terms_leave_the_printed_pool(rows: list[Row]) -> None:
    """Weights, activations and what lies outside of torch as printed: the pool within 2 % in 90 % of the rows."""
    terms = ("weights_gib", "activation_gib", "non_torch_gib")
    errors = {}
    for index, row in enumerate(rows):
        if not all(row[name] for name in (*terms, "kv_cache_gib")) or row["gpu"] in UNKNOWN_GPUS:
            continue
        found = sb.capacity(sb.Deployment(**arguments(row)), **{name: float(row[name]) for name in terms})
        errors[index, row["model"]] = abs(found.kv_gib.value / float(row["kv_cache_gib"]) - 1)
    missed = {row: error for row, error in errors.items() if error > 0.02}
    assert len(errors) >= 30
    assert len(missed) <= 0.1 * len(errors), missed


# -- from names alone ------------------------------------------------------------------------------


def from_names(row: Row) -> sb.Capacity | None:
    """Names and settings; None where the log does not say which GPU it was, or another engine printed it."""
    if row["engine"] != "vLLM" or row["gpu"] in UNKNOWN_GPUS or "pipeline" in row["notes"]:
        return None
    return sb.capacity(sb.Deployment(**arguments(row)))


def is_counted(row: Row, found: sb.Capacity) -> bool:
    """Text models on cards of 40 GB or more, where a number of tokens was printed."""
    reads_images = any(word in row["notes"] + row["model"] for word in READS_IMAGES)
    return bool(printed_tokens(row)) and found.deployment.card.memory_nominal_gb >= 40 and not reads_images


def test_names_alone_give_the_tokens_within_five_per_cent(rows: list[Row]) -> None:
    errors = {}
    for index, row in enumerate(rows):
        found = from_names(row)
        if found is not None and is_counted(row, found):
            errors[index, row["model"]] = abs(found.kv_tokens.value / (tokens_of(row, found) or 1) - 1)
    missed = {row: error for row, error in errors.items() if error > 0.05}
    assert len(errors) >= 30
    assert len(missed) <= 0.2 * len(errors), missed


def tokens_of(row: Row, found: sb.Capacity) -> float | None:
    """Printed tokens; where only the pool is printed, those that it holds."""
    pool = number(row["kv_cache_gib"])
    return printed_tokens(row) or (pool and pool * GIB / found.deployment.kv_bytes_per_token_per_gpu)


MISSES = {
    "Mistral-Small-3.2-24B-Instruct": "its sequences an iteration are not in the log: at 256, not 1,024, it fits",
    "Llama-3.1-8B-Instruct RTX 3090": "0.35 GiB outside of torch were printed, 0.13 are estimated",
    "Llama-3.1-8B-Instruct L40S": "neither the utilisation nor the limits of an iteration are in the log",
    "Qwen3-235B-A22B-FP8 H100-80GB": "neither utilisation, limits nor release are in the log; its GiB are of one rank",
    "Qwen2.5-7B-Instruct A10G": "neither the utilisation nor the release is in the log",
}


def why(row: Row) -> str:
    return MISSES.get(f"{row['model']} {row['gpu']}") or MISSES[row["model"]]


def test_the_table_of_all_rows(rows: list[Row], doc_table: Callable[[str, str, list[list[str]]], None]) -> None:
    lines = []
    for row in rows:
        found = from_names(row)
        where = re.split(r" \(| docs| nb/", row["source"].replace("public stored file", "a public page"))[0]
        gpus = f"{row['n_gpus_tp']} x {row['gpu'].removesuffix(' SXM')}"
        what = [where, f"{row['engine']} {row['version']}".strip(), row["model"].split("/")[-1], gpus]
        pool = number(row["kv_cache_gib"])
        given = f"{given_pool(row, pool * GIB).kv_tokens.value:,}" if pool and not is_of_another_rank(row) else "-"
        printed = printed_tokens(row)
        shown = "-" if printed is None else f"{printed:,.0f}"
        if row["num_gpu_blocks"] and not row["kv_tokens"]:
            shown += " (blocks)"
        lines.append([*what, shown, given, *_named(row, found)])
    doc_table("capacity-logs.md", "logs", lines)


def _named(row: Row, found: sb.Capacity | None) -> list[str]:
    if found is None:
        reason = "another engine" if row["engine"] != "vLLM" else "GPU not in the table"
        return ["-", "-", "stages of a pipeline" if "pipeline" in row["notes"] else reason]
    tokens = tokens_of(row, found)
    if not tokens:
        return [f"{found.kv_tokens.value:,}", "-", "no count printed"]
    error = found.kv_tokens.value / tokens - 1
    return [f"{found.kv_tokens.value:,}", f"{error:+.1%}".replace("%", " %"), "" if abs(error) <= 0.05 else why(row)]


# -- releases --------------------------------------------------------------------------------------


def test_releases_differ_as_their_logs_do() -> None:
    """Qwen3-14B was logged under 0.15 and 0.17 with the same settings: 3.4 GiB of activations less."""
    old, new = (
        sb.capacity(sb.Deployment("qwen3-14b", vllm_version=version, gpu_memory_utilization=0.95, max_model_len=8192))
        for version in ("0.15.0", "0.17.0")
    )
    assert old.activation_gib.value - new.activation_gib.value == pytest.approx(5.64 - 2.23, abs=0.1)
    assert not old.takes_graphs_off
    assert "CUDA graphs" in repr(old), "shown, though not taken off"
    newest = sb.Deployment("qwen3-14b", max_model_len=8192)
    assert newest.memory.takes_graphs_off
    assert (newest.gpu_memory_utilization, old.deployment.replace(gpu_memory_utilization=None).engine_share) == (
        0.92,
        0.9,
    )


def test_a_share_that_was_given_is_kept_whatever_the_release() -> None:
    here = sb.Deployment("qwen3-8b", vllm_version="0.19", gpu_memory_utilization=0.92)
    assert here.gpu_memory_utilization == 0.92
    assert sb.Deployment(**here.given) == here


def test_v0_profiles_a_whole_longest_prompt() -> None:
    """Activations grow with max_model_len up to 32,768 tokens, and are small above."""
    short, long, longer = (
        sb.Deployment("llama-3.1-8b", gpu="rtx 3090", vllm_version="0.6", max_model_len=length, kv_tokens=9999)
        for length in (20_000, 29_000, 40_000)
    )
    assert short.memory.activation_bytes / GIB == pytest.approx(2.07, abs=0.1)
    assert long.memory.activation_bytes / GIB == pytest.approx(2.99, abs=0.1)
    assert longer.memory.activation_bytes < short.memory.activation_bytes


@pytest.mark.parametrize("version", ["0.1", "0.34", "1.0", "new", "", "0", "0.19.x.y z"])
def test_a_release_that_is_not_known(version: str) -> None:
    if version == "0.19.x.y z":
        assert find_release(version) == (0, 19)
        return
    with pytest.raises(sb.UsageError, match=r"Give one from 0\.2 to 0\.33, such as 0\.19\."):
        sb.Deployment("llama-3.1-8b", vllm_version=version)


def test_a_release_without_a_log_says_which_one_it_is_taken_for() -> None:
    assert "no start-up log of vLLM 0.16 was compared" in sb.Deployment("qwen3-8b", vllm_version="0.16").warnings[0]
    assert memory_rules((0, 16)) == memory_rules((0, 15))
    assert memory_rules((0, 18)) == memory_rules((0, 19))
