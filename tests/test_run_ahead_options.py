"""Running ahead equals stepping under every option of vLLM V1, alone and together.

Requests share prefixes, quote nobody, have priorities, stop by length or by a token that nobody
foresees; every count is recomputed after every plan and every iteration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import simbatch as sb
from simbatch.memory import OwnPrefixMemory, PrefixCachingMemory
from simbatch.testing.contracts import Audit


@dataclass(frozen=True)
class Asked:
    arrival_ms: int
    prompt_tokens: int
    output_tokens: int
    surplus: int
    """By how much max_tokens exceeds the output; 0: it ends by length."""
    priority: int
    group: str
    shared: int

    def segments(self, row: int) -> tuple[tuple[str, int, int], ...]:
        shared = min(self.shared, self.prompt_tokens)
        runs = ((self.group, 0, shared), (f"r:{row}", 0, self.prompt_tokens - shared))
        return tuple(run for run in runs if run[2])


asked = st.builds(
    Asked,
    arrival_ms=st.sampled_from([0, 0, 3, 6, 9, 12, 20, 40]),
    prompt_tokens=st.integers(1, 14),
    output_tokens=st.integers(1, 12),
    surplus=st.sampled_from([0, 0, 1, 5]),
    priority=st.integers(0, 2),
    group=st.sampled_from("ab"),
    shared=st.sampled_from([0, 3, 4, 8, 12]),
)
engines = st.fixed_dictionaries(
    {
        "block_size": st.sampled_from([1, 2, 4]),
        "kv_tokens": st.sampled_from([28, 32, 48, 400]),
        "max_num_seqs": st.sampled_from([1, 2, 4, 8]),
        "max_num_batched_tokens": st.sampled_from([8, 12, 64]),
        "enable_chunked_prefill": st.booleans(),
        "scheduler_reserve_full_isl": st.booleans(),
        "watermark": st.sampled_from([0.0, 0.2]),
        "scheduling_policy": st.sampled_from(["fcfs", "priority"]),
        "long_prefill_token_threshold": st.sampled_from([0, 3]),
        "prefill_schedule_interval": st.sampled_from([1, 1, 3]),
        "enable_prefix_caching": st.booleans(),
        "async_scheduling": st.booleans(),
        "vllm_version": st.sampled_from(["0.11", "0.33"]),
    }
)
SAME: dict[str, Any] = {"max_model_len": 64, "timing": "linear:base_ms=2,token_us=500,context_ns=250000"}


def trace_of(requests: list[Asked], shares: bool) -> sb.Trace:
    requests = sorted(requests, key=lambda request: request.arrival_ms)
    columns: dict[str, Any] = {
        "arrival_ps": [request.arrival_ms * 10**9 for request in requests],
        "prompt_tokens": [request.prompt_tokens for request in requests],
        "output_tokens": [request.output_tokens for request in requests],
        "max_tokens": [request.output_tokens + request.surplus for request in requests],
        "priority": [request.priority for request in requests],
    }
    if shares:
        columns["segments"] = [request.segments(row) for row, request in enumerate(requests)]
    return sb.Trace.from_columns(name="world", **columns)


def run(trace: sb.Trace, step: bool, **options: Any) -> sb.Result | None:
    """None for a world in which the real rules livelock: equal ranks preempt each other for ever."""
    try:
        result = sb.simulate(trace, step=step, log=Audit() if step else None, **SAME, **options)
    except sb.PolicyError as error:
        if "livelocks" in str(error):
            return None
        raise
    result.check()
    return result


def assert_equal(one: sb.Result | None, other: sb.Result | None) -> None:
    assert (one is None) == (other is None)
    if one is None or other is None:
        return
    for what in ("requests", "rows", "extra_gaps", "stays"):
        for column, values in getattr(one.facts, what).items():
            assert np.array_equal(values, getattr(other.facts, what)[column]), (what, column)
    assert one.facts.peak_held_tokens == other.facts.peak_held_tokens


@settings(max_examples=600, deadline=None)
@given(requests=st.lists(asked, min_size=1, max_size=9), engine=engines, shares=st.booleans())
def test_equal_under_all_options(requests: list[Asked], engine: dict[str, Any], shares: bool) -> None:
    trace = trace_of(requests, shares)
    assert_equal(run(trace, True, **engine), run(trace, False, **engine))


@settings(max_examples=200, deadline=None)
@given(requests=st.lists(asked, min_size=1, max_size=9), engine=engines)
def test_counting_own_blocks_equals_keeping_every_block(requests: list[Asked], engine: dict[str, Any]) -> None:
    """Without prefix identity the cheap cache and the one that keeps tables decide the same, hashes included."""
    trace = trace_of(requests, shares=False)
    rules = {"lag": int(engine["async_scheduling"]), "unhashed_first": engine["vllm_version"] != "0.11"}
    size = engine["kv_tokens"] // engine["block_size"], engine["block_size"]
    runs = [
        run(trace, True, **{**engine, "enable_prefix_caching": True}, memory=memory(*size, **rules))
        for memory in (OwnPrefixMemory, PrefixCachingMemory)
    ]
    assert_equal(*runs)
    if runs[0] is not None and runs[1] is not None:
        assert runs[0].decisions == runs[1].decisions


def test_the_general_cache_is_used_where_prompts_are_shared() -> None:
    trace = sb.Trace.from_columns(
        arrival_s=[0, 1], prompt_tokens=[40, 40], output_tokens=[2, 2], prefix_group=["a", "a"], prefix_tokens=[32, 32]
    )
    result = sb.simulate(trace, kv_tokens=400, max_model_len=64, timing="linear:base_ms=2")
    assert result.requests["cached_tokens"].tolist() == [0, 32]
    assert result.metrics()["requests"]["cached_tokens"] == 32
    off = sb.simulate(trace, kv_tokens=400, max_model_len=64, timing="linear:base_ms=2", enable_prefix_caching=False)
    assert off.requests["cached_tokens"].tolist() == [0, 0]


def test_who_arrives_in_a_batch_of_nobody_is_let_in_together() -> None:
    """A stop by token costs one batch more; the next plan is made when it ends, and not at the first arrival in it."""
    trace = sb.Trace.from_columns(
        arrival_ps=[0, 35 * 10**9, 37 * 10**9],
        prompt_tokens=[4, 4, 4],
        output_tokens=[3, 2, 2],
        max_tokens=[9, 2, 2],
    )
    for step in (True, False):
        result = sb.simulate(trace, step=step, kv_tokens=400, max_model_len=64, timing="linear:base_ms=10")
        assert (result.facts.requests["first_scheduled_ps"] // 10**9).tolist() == [0, 40, 40]
        assert result.facts.rows["running"].tolist() == [1, 1, 0, 2, 2]
