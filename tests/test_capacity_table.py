"""What fits side by side, and the flags that stand for what an engine printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result

import simbatch as sb
from simbatch.answers.capacity_table import capacities, parse_comparison

Run = Callable[..., Result]


def test_the_memory_of_an_h200_shows_at_long_context() -> None:
    """61 GB more, all of it for the cache: at 32,768 tokens Llama-3.1-70B in 8 bit fits on the H200 alone."""
    table = capacities("gpu", ["h100", "h200"], model="llama-3.1-70b", quantization="fp8", length_tokens=32_768)
    h100, h200 = table.rows["h100"], table.rows["h200"]
    assert (h100.sequences.value, h200.sequences.value) == (0, 5)
    more_gib = (h200.deployment.card.memory_bytes - h100.deployment.card.memory_bytes) / 2**30
    assert h200.kv_gib.value - h100.kv_gib.value == pytest.approx(0.92 * more_gib, rel=1e-6)


@pytest.mark.parametrize(
    ("varied", "values", "sequences"),
    [
        ("length", ["2048", "4096"], [219, 109]),
        ("tp", [1, 2], [None, None]),
        ("model", ["llama-3.1-8b", "qwen3-8b"], [None, None]),
        ("dtype", ["bfloat16", "float32"], [None, None]),
    ],
)
def test_each_row_is_what_capacity_says(varied: str, values: list[Any], sequences: list[int | None]) -> None:
    asked = {} if varied == "length" else {"length_tokens": 4096}
    table = capacities(varied, values, **asked)
    argument = {"tp": "tensor_parallel_size", "length": "length_tokens"}.get(varied, varied)
    for value, expected in zip(values, sequences, strict=True):
        own: dict[str, Any] = {argument: int(value) if argument != varied else value}
        length = own.pop("length_tokens", 4096)
        alone = sb.capacity(sb.Deployment(**own), length_tokens=length)
        assert table.rows[str(value)].metrics() == alone.metrics()
        assert expected is None or alone.sequences.value == expected
    assert max(map(len, repr(table).splitlines())) <= 110


def test_what_cannot_be_deployed_stands_in_its_place_and_ends_with_1(simbatch: Run) -> None:
    done = simbatch("capacity", "--compare", "gpu=h100,t4", "--model", "llama-13b")
    assert done.exit_code == 1
    assert "failed      t4: Llama-13B needs" in done.stdout
    assert done.stdout.splitlines()[3].startswith("h100 ")
    found = json.loads(simbatch("capacity", "--compare", "gpu=h100,h200", "--json", "-q").stdout)
    assert found["varied"] == "gpu"
    assert list(found["rows"]) == ["h100", "h200"]
    assert found["rows"]["h200"]["config"]["gpu"] == "H200-SXM-141GB"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("cpu=a,b", "unknown thing to compare 'cpu'. Did you mean gpu"),
        ("gpu", "'gpu' names no values to compare. Write for example gpu=A,B."),
        ("gpu=", "'gpu=' names no values to compare."),
        ("tp=1,1", "'tp=1,1' names a value twice."),
        ("tp=one", "tp 'one' is not a whole number. Write for example tp=1,2,4."),
        ("gpu=h1000", "unknown GPU 'h1000'"),
    ],
)
def test_comparisons_that_are_none(simbatch: Run, text: str, says: str) -> None:
    done = simbatch("capacity", "--compare", text)
    assert done.exit_code == 2
    assert says in done.stderr


def test_names_of_what_is_compared_may_be_written_as_flags() -> None:
    assert parse_comparison("kv-cache-dtype=auto,fp8") == ("kv_cache_dtype", ["auto", "fp8"])


def test_flags_for_what_the_engine_printed(simbatch: Run) -> None:
    """A log of vLLM 0.19: 75.23 GiB less 14.99, 1.89 and 0.25 is the printed 58.10."""
    done = simbatch(
        *"capacity --model llama-3.1-8b --vllm-version 0.19.0 --gpu-memory-utilization 0.95 --json -q".split(),
        *"--weights-gib 14.99 --activation-gib 1.89 --non-torch-gib 0.25".split(),
    )
    found = json.loads(done.stdout)
    assert found["kv_gib"]["low"] == found["kv_gib"]["high"] == pytest.approx(58.11, abs=0.01)
    assert found["config"]["vllm_version"] == "0.19.0"
    pool = json.loads(simbatch("capacity", "--kv-cache-memory-bytes", "58.11GiB", "--json", "-q").stdout)
    assert pool["num_gpu_blocks"] == pytest.approx(29_751, abs=3)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--weights-gib -1", "weights_gib is -1. Give what the engine printed, GiB of one GPU, 0 or more."),
        ("--vllm-version 9.9", "the vLLM version '9.9' is not one whose memory accounting is known."),
        ("--kv-cache-memory-bytes 1XB", "'XB' in '1XB' is not a unit of memory."),
        ("--kv-cache-memory-bytes 1GB --kv-tokens 5", "kv_tokens and kv_cache_memory_bytes both say how large"),
    ],
)
def test_wrong_terms(simbatch: Run, flags: str, says: str) -> None:
    done = simbatch("capacity", *flags.split())
    assert done.exit_code == 2
    assert says in done.stderr
