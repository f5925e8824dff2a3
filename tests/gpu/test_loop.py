"""The whole loop against a dense recomputation: slots, positions, writes, paging, padding, chunks, all at once."""

from __future__ import annotations

import math

import pytest
import torch

import simbatch as sb
from simbatch.memory import ContiguousMemory
from validation.dense import greedy
from validation.executor import ModelExecutor
from validation.kv import Cache, ContiguousCache, PagedCache
from validation.loop_check import LIMITS, loop
from validation.model import Model
from validation.on_gpu import OnGPU
from validation.shape import TINY
from validation.tables import BlockTables
from validation.work import Row, Work

PAGE = 8


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def poisoned(cache: Cache) -> Cache:
    cache.k.fill_(math.nan)
    cache.v.fill_(math.nan)
    return cache


@pytest.mark.parametrize("dtype", LIMITS, ids=str)
@pytest.mark.parametrize("paged", [True, False], ids=["paged", "contiguous"])
def test_logits_of_prefills_chunks_mixed_steps_and_decodes(dtype: torch.dtype, paged: bool) -> None:
    found = list(loop(dtype, "cpu", paged))
    assert len(found) == 5
    assert [check for check in found if not check.ok] == []


def prompt(index: int, tokens: int) -> list[int]:
    return [(7919 * (index + 1) + 104_729 * i + i * i) % TINY.vocab for i in range(tokens)]


def test_tokens_of_a_served_trace_survive_chunks_and_preemption() -> None:
    """vLLM's scheduler on six blocks: chunks, padding rows, one preemption with recomputation, blocks used again."""
    memory = BlockTables(6, PAGE)
    cache = poisoned(PagedCache(TINY, 6, PAGE, torch.float32, "cpu"))
    model = Model(TINY, torch.float32, "cpu", longest_tokens=64)
    clock = OnGPU(ModelExecutor(model, cache, most_rows=8, most_tokens=64, processors=4), TINY.vocab)
    lengths, outputs = [9, 14, 5, 12], [9, 7, 10, 4]
    trace = sb.Trace.from_columns(arrival_s=[0] * 4, prompt_tokens=lengths, output_tokens=outputs)
    limits = {"max_model_len": 32, "max_num_seqs": 4, "max_num_batched_tokens": 10, "kv_tokens": 48}
    limits |= {"enable_prefix_caching": False, "async_scheduling": False}
    result = sb.simulate(trace, memory=memory, timing=clock, step=True, **limits)
    assert result.metrics()["requests"]["preemptions"] >= 1
    for i in range(4):
        assert clock.outputs[str(i)] == greedy(model, prompt(i, lengths[i]), outputs[i])
    assert len(clock.log) == result.facts.iterations
    assert [step["tok"] for step in result.decisions or []] == [row["T"] for row in clock.log]


@pytest.mark.parametrize("system", ["naive", "orca-oracle", "static"])
def test_contiguous_systems_run_and_give_the_same_tokens(system: str) -> None:
    """Static pads prompts in front, so only those of full length can be compared."""
    lengths, outputs = [6, 6, 6], [2, 4, 3]
    memory = ContiguousMemory(64, "limit" if system == "naive" else "oracle", "first-fit", 16)
    if system == "static":
        memory = ContiguousMemory(64, "max", "first-fit", 16)
    cache = poisoned(ContiguousCache(TINY, 64, torch.float32, "cpu"))
    model = Model(TINY, torch.float32, "cpu", longest_tokens=64)
    clock = OnGPU(ModelExecutor(model, cache, most_rows=4, most_tokens=64, processors=4), TINY.vocab)
    trace = sb.Trace.from_columns(arrival_s=[0] * 3, prompt_tokens=lengths, output_tokens=outputs, max_tokens=[8] * 3)
    result = sb.simulate(trace, system=system, memory=memory, timing=clock, step=True, kv_tokens=64, max_model_len=16)
    assert result.metrics()["requests"]["finished"] == 3
    for i in range(3):
        assert clock.outputs[str(i)][: outputs[i]] == greedy(model, prompt(i, 6), outputs[i])
    computed_on = len(clock.outputs["0"]) - outputs[0]
    assert computed_on == (max(outputs) - outputs[0] if system == "static" else 0)


def test_a_piece_that_is_full_is_not_written_past() -> None:
    """A member of a static batch that has ended computes on; its neighbour's tokens stay what they are."""
    cache = ContiguousCache(TINY, 40, torch.float32, "cpu")
    model = Model(TINY, torch.float32, "cpu", longest_tokens=64)
    executor = ModelExecutor(model, cache, most_rows=1, most_tokens=8, processors=4)
    before = cache.k.clone()
    logits = executor.logits(Work(decodes=[Row([3], 12, (4, 10))]))
    assert torch.isfinite(logits).all()
    assert torch.equal(cache.k, before)
