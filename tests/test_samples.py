"""Parallel samples: shared prompts, groups that come and go together, and the copy on the first write."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simbatch as sb
from simbatch.testing.contracts import Audit

TIMING = "linear:base_ms=2,token_us=500,context_ns=250000"
V0 = {"system": "vllm-v0", "block_size": 4, "max_model_len": 64, "timing": TIMING, "step": True}
SAMPLED = st.tuples(
    st.sampled_from([0, 0, 3, 6, 12, 40]), st.integers(1, 12), st.integers(1, 10), st.sampled_from([1, 1, 2, 3])
)
"""(arrival in ms, prompt tokens, output tokens, samples)"""


def asked(**columns: Any) -> sb.Trace:
    return sb.Trace.from_columns(name="samples", **columns)


def test_v0_computes_the_prompt_once_and_copies_its_last_block() -> None:
    """10 tokens in blocks of 4: two full blocks are shared for good, the third is copied for two of three samples."""
    trace = asked(id=["a"], arrival_s=[0], prompt_tokens=[10], output_tokens=[4], n=[3])
    result = sb.simulate(
        trace, system="vllm-v0", kv_tokens=400, block_size=4, max_model_len=64, timing=TIMING, step=True
    )
    steps = result.decisions or []
    assert [step["sched"] for step in steps] == [
        [["a/0", 10, 0]],
        *([[f"a/{k}", 1, before] for k in range(3)] for before in (10, 11, 12)),
    ]
    # Prompt 3 blocks; first decode 2 copies; tokens 11 and 12 fill them; token 13 needs a block for each sample.
    assert [step["kv"] for step in steps] == [3, 5, 5, 8]
    assert [step["nout"] for step in steps] == [3, 3, 3, 3]
    assert result.requests["output_tokens"].tolist() == [4, 4, 4]
    result.check()


def test_v0_prompt_of_whole_blocks_needs_no_copy() -> None:
    trace = asked(arrival_s=[0], prompt_tokens=[8], output_tokens=[2], n=[3])
    result = sb.simulate(
        trace, system="vllm-v0", kv_tokens=400, block_size=4, max_model_len=64, timing=TIMING, step=True
    )
    assert [step["kv"] for step in result.decisions or []] == [2, 5]


def test_v1_samples_meet_in_the_prefix_cache() -> None:
    """Three requests with one prompt of 10: the later two find its two full blocks in the very step that fills them."""
    trace = asked(arrival_s=[0], prompt_tokens=[10], output_tokens=[2], n=[3])
    result = sb.simulate(trace, kv_tokens=400, block_size=4, max_model_len=64, timing=TIMING, step=True)
    assert (result.decisions or [])[0]["sched"] == [["0/0", 10, 0], ["0/1", 2, 8], ["0/2", 2, 8]]
    assert result.requests["cached_tokens"].tolist() == [0, 8, 8]


def test_contiguous_systems_share_nothing() -> None:
    trace = asked(arrival_s=[0], prompt_tokens=[10], output_tokens=[2], n=[3])
    result = sb.simulate(trace, system="orca-oracle", kv_tokens=400, max_model_len=64, timing=TIMING, step=True)
    assert [tokens for _, tokens, _ in (result.decisions or [])[0]["sched"]] == [10, 10, 10]


def test_a_group_is_preempted_and_comes_back_as_one() -> None:
    trace = asked(id=["a", "b"], arrival_s=[0, 0], prompt_tokens=[8, 8], output_tokens=[9, 9], n=[2, 2])
    result = sb.simulate(
        trace, system="vllm-v0", kv_tokens=48, block_size=4, max_model_len=64, timing=TIMING, step=True
    )
    thrown_out = [step["pre"] for step in result.decisions or [] if step["pre"]]
    assert thrown_out
    assert all(sorted(together) == ["b/0", "b/1"] for together in thrown_out)
    assert result.requests["recomputed_tokens"].sum() == 0, "several samples are swapped, not computed again"
    result.check()


def test_v0_says_that_more_samples_than_seats_never_start() -> None:
    trace = asked(id=["a"], arrival_s=[0], prompt_tokens=[8], output_tokens=[2], n=[3])
    with pytest.raises(sb.SimbatchError, match=r"a/0 is one of 3 samples .* max_num_seqs is 2"):
        sb.simulate(trace, system="vllm-v0", kv_tokens=400, max_model_len=64, max_num_seqs=2, timing=TIMING)


@pytest.mark.parametrize("system", ["vllm-v0", "vllm", "sarathi", "orca-oracle", "orca-pow2"])
@settings(max_examples=60, deadline=None)
@given(
    requests=st.lists(SAMPLED, min_size=1, max_size=6),
    block_size=st.sampled_from([1, 2, 4]),
    kv_tokens=st.sampled_from([40, 48, 64, 400]),
    seats=st.sampled_from([3, 4, 8]),
)
def test_stepping_equals_running_ahead(
    system: str, requests: list[tuple[int, int, int, int]], block_size: int, kv_tokens: int, seats: int
) -> None:
    arrivals, prompts, outputs, samples = zip(*sorted(requests), strict=True)
    trace = asked(arrival_ps=[ms * 10**9 for ms in arrivals], prompt_tokens=prompts, output_tokens=outputs, n=samples)
    options = {"block_size": block_size, "kv_tokens": kv_tokens, "max_num_seqs": seats, "max_model_len": 32}
    stepped = sb.simulate(trace, system=system, step=True, log=Audit(), timing=TIMING, **options)
    ahead = sb.simulate(trace, system=system, timing=TIMING, **options)
    stepped.check()
    ahead.check()
    assert len(stepped.requests) == sum(samples)
    for what in ("requests", "rows", "extra_gaps", "stays"):
        for column, values in getattr(stepped.facts, what).items():
            assert np.array_equal(values, getattr(ahead.facts, what)[column]), (what, column)
    assert (stepped.facts.rows["reserved"] >= 0).all()


def test_memory_saved_is_the_share_of_the_prompt() -> None:
    """Published: 6.09, 8.53 and 9.79 % of blocks are saved with 2, 4 and 6 samples; about s·(n-1)/n of a share s."""
    prompt, output = 20, 59
    held = {}
    for n in (1, 2, 4, 6):
        trace = asked(arrival_s=[0], prompt_tokens=[prompt], output_tokens=[output], n=[n])
        result = sb.simulate(trace, system="vllm-v0", kv_tokens=4096, block_size=1, max_model_len=128, timing=TIMING)
        held[n] = result.facts.peak_held_tokens
    share = prompt / held[1]
    for n in (2, 4, 6):
        assert 1 - held[n] / (n * held[1]) == pytest.approx(share * (n - 1) / n, abs=1e-9)
