"""Running ahead equals stepping, to the last bit: requests, rows, gaps and peak.

Worlds are tiny, times coarse and memory tight, so that arrivals tie with each other and with the
ends of iterations, and preemption is common.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simbatch as sb
from simbatch.progression import iterations_by, span
from simbatch.testing.contracts import World, fault

POLICIES: dict[str, Callable[[], sb.Scheduler]] = {
    "vllm": sb.VllmV1,
    "first-come": sb.Continuous,
    "shortest-first": lambda: sb.Continuous(order=lambda sequence: sequence.prompt_tokens + sequence.output_tokens),
}

worlds = st.builds(
    lambda requests, block_size, tokens, seqs, budget, chunked, gate, watermark: World(
        requests=tuple(sorted(requests)),
        num_blocks=tokens // block_size,
        block_size=block_size,
        max_num_seqs=seqs,
        max_num_batched_tokens=budget,
        enable_chunked_prefill=chunked,
        scheduler_reserve_full_isl=gate,
        watermark=watermark,
    ),
    st.lists(
        st.tuples(st.sampled_from([0, 0, 0, 2, 3, 6, 9, 10, 20, 50]), st.integers(1, 14), st.integers(1, 14)),
        min_size=1,
        max_size=9,
    ),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([16, 28, 32, 48, 400]),
    st.sampled_from([1, 2, 3, 8]),
    st.sampled_from([8, 16, 64]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0.0, 0.25]),
)


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=250, deadline=None)
@given(world=worlds)
def test_equal_in_every_world(policy: str, world: World) -> None:
    assert fault(world, POLICIES[policy]) is None


def test_a_larger_world_with_many_preemptions() -> None:
    rng = np.random.default_rng(7)
    trace = sb.Trace.from_columns(
        arrival_ps=np.sort(rng.integers(0, 4000, 400)) * 10**9,
        prompt_tokens=rng.integers(1, 120, 400),
        output_tokens=rng.integers(1, 90, 400),
    )
    options = {
        "async_scheduling": False,
        "kv_tokens": 1600,
        "max_model_len": 400,
        "max_num_seqs": 40,
        "max_num_batched_tokens": 128,
        "timing": "linear:base_ms=5,token_us=100,context_ns=1000",
    }
    stepped, ahead = (sb.simulate(trace, step=step, **options) for step in (True, False))
    stepped.check()
    ahead.check()
    assert stepped.facts.requests["preemptions"].sum() > 100
    for what in ("requests", "rows", "extra_gaps", "stays"):
        for column, values in getattr(stepped.facts, what).items():
            assert np.array_equal(values, getattr(ahead.facts, what)[column]), (what, column)
    assert ahead.facts.events < stepped.facts.events / 2


@settings(max_examples=300, deadline=None)
@given(
    first=st.integers(1, 10**12),
    increment=st.integers(0, 10**9),
    iterations=st.integers(1, 10**6),
    offset=st.integers(-1, 1),
)
def test_the_iteration_in_flight_is_found_exactly(first: int, increment: int, iterations: int, offset: int) -> None:
    elapsed = max(0, span(iterations, first, increment) + offset)
    n = iterations_by(elapsed, first, increment)
    assert n >= 1
    assert span(n, first, increment) >= elapsed
    assert n == 1 or span(n - 1, first, increment) < elapsed


def test_shrinking_iterations_are_found_too() -> None:
    # 10, 8, 6, 4, 2: a progression may fall as long as every duration stays positive.
    ends = [10, 18, 24, 28, 30]
    for elapsed in range(31):
        expected = next(n for n, end in enumerate(ends, 1) if end >= elapsed)
        assert iterations_by(elapsed, 10, -2) == expected
