"""Roofline times: the published line, the arithmetic of the roof, and progressions that continue exactly."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simbatch.deployment import Deployment
from simbatch.errors import UsageError
from simbatch.timing.base import FOREVER, Iteration
from simbatch.timing.roofline import RooflineTiming
from simbatch.units import PS_PER_MS

LLAMA = RooflineTiming(Deployment("llama-3.1-8b"))
TIMINGS = {
    "dense": LLAMA,
    "windows": RooflineTiming(Deployment("gemma-2-9b")),
    "all windows": RooflineTiming(Deployment("mistral-7b-v0.1", gpu="a100-40")),
    "experts": RooflineTiming(Deployment("qwen3-30b-a3b")),
    "tensor parallel": RooflineTiming(Deployment("llama-3.3-70b", tensor_parallel_size=4)),
    "latent": RooflineTiming(Deployment("deepseek-v2-lite")),
    "experts and windows": RooflineTiming(Deployment("gpt-oss-20b", kv_cache_dtype="fp8")),
}


def decode(sequences: int, context: int) -> Iteration:
    it = Iteration()
    it.tokens = it.sequences = sequences
    it.context_tokens = context
    return it


def prefill(tokens: int, sequences: int = 1) -> Iteration:
    """Prompts of equal length, computed whole."""
    it = Iteration()
    it.tokens = it.prefill_tokens = it.context_tokens = it.prefill_context_tokens = tokens
    it.sequences = it.prefill_sequences = sequences
    length = tokens // sequences
    it.prefill_pairs = sequences * length * (length + 1) // 2
    return it


def first_ps(timing: RooflineTiming, iteration: Iteration) -> int:
    return timing.progression(iteration)[0]


@pytest.mark.parametrize("context", [256, 8_000, 125_000])
def test_the_published_line_of_one_sequence(context: int) -> None:
    measured_ms = 6.44 + 4.37e-5 * context
    assert first_ps(LLAMA, decode(1, context)) / PS_PER_MS == pytest.approx(measured_ms, rel=0.005)


def test_what_the_published_line_implies() -> None:
    here = LLAMA.deployment
    assert here.weights_bytes / 6.44e-3 / here.card.bandwidth_bytes_per_s == pytest.approx(0.74, abs=0.005)
    assert here.kv_bytes_per_token / 4.37e-8 / here.card.bandwidth_bytes_per_s == pytest.approx(0.90, abs=0.006)


def test_a_perfect_card_reaches_the_roof() -> None:
    perfect = RooflineTiming(
        Deployment("llama-13b", gpu="h100"),
        overhead_us=0,
        bandwidth_efficiency=1,
        kv_bandwidth_efficiency=1,
        compute_efficiency=1,
        attention_efficiency=1,
    )
    here = perfect.deployment
    streamed = here.weights_bytes - here.weights.token_table
    alone_s = (streamed + 1000 * here.kv_bytes_per_token) / 3350e9
    assert first_ps(perfect, decode(1, 1000)) == pytest.approx(alone_s * 1e12, rel=1e-6)
    # One operation a byte at batch 1 in 16 bit: 0.34 % of the dense ridge.
    flop_per_byte = 2 * here.shape.params / here.weights_bytes
    assert flop_per_byte == pytest.approx(1)
    assert flop_per_byte / here.ridge_flop_per_byte == pytest.approx(0.0034, abs=1e-4)
    # Layers turn from reading to arithmetic where the batch reaches the ridge.
    ridge = here.ridge_flop_per_byte
    assert perfect.layers_ps(int(ridge) - 1) == perfect.layers_ps(1)
    assert perfect.layers_ps(int(ridge) + 2) > perfect.layers_ps(1)


def test_a_large_prefill_is_arithmetic() -> None:
    shape = LLAMA.deployment.shape
    flop = 2 * 8192 * (shape.params - shape.embedding_params)
    pairs = 4 * 512 * 513 // 2 * 4 * 4096 * 32 * 4
    slowest_s = flop / (0.70 * 989e12) + pairs / (0.5 * 989e12) + 2e-3
    got_s = first_ps(LLAMA, prefill(8192, sequences=16)) / 1e12
    assert flop / (0.70 * 989e12) < got_s < slowest_s


def test_mixed_iterations_are_not_progressions() -> None:
    assert LLAMA.progression(prefill(100))[1:] == (0, 1)


def test_experts_are_read_as_tokens_touch_them() -> None:
    timing = TIMINGS["experts"]
    weights = timing.deployment.weights
    one = timing.layers_bytes(1)
    assert one == pytest.approx(weights.rest + 48 * 8 * weights.expert)
    assert timing.layers_bytes(10_000) == pytest.approx(weights.rest + weights.experts)
    # Two tokens share an expert now and then: 128 x (1 - (120/128)^2) of 128.
    assert timing.layers_bytes(2) == pytest.approx(weights.rest + weights.experts * (1 - (120 / 128) ** 2))


def test_more_gpus_pay_for_their_exchange() -> None:
    here = Deployment("llama-3.1-8b")
    free = {"all_reduce_us": 0.0, "link_efficiency": 1.0}
    one = first_ps(LLAMA, decode(8, 8000))
    two = first_ps(RooflineTiming(here.replace(tensor_parallel_size=2)), decode(8, 8000))
    two_free = first_ps(RooflineTiming(here.replace(tensor_parallel_size=2), **free), decode(8, 8000))
    assert one / 2 < two_free < two < one
    assert two - two_free == pytest.approx(2 * 32 * 5e6, rel=0.05)


def test_fp8_cache_halves_the_slope() -> None:
    fp8 = RooflineTiming(Deployment("llama-3.1-8b", kv_cache_dtype="fp8"))
    assert fp8.progression(decode(10, 10_000))[1] * 2 == pytest.approx(
        LLAMA.progression(decode(10, 10_000))[1], rel=1e-3
    )


def test_windows_never_cost_more_than_full_attention() -> None:
    timing = TIMINGS["all windows"]
    inside, beyond = timing.progression(decode(1, 100)), timing.progression(decode(1, 5000))
    assert inside[1] > 0
    assert inside[2] == 4096 - 100 + 1
    assert beyond[1:] == (0, FOREVER)
    assert first_ps(timing, decode(1, 9000)) == first_ps(timing, decode(1, 4096))
    chunks = []
    for context in (2000, 5000, 9000):
        chunk = prefill(16)
        chunk.context_tokens = chunk.prefill_context_tokens = context
        chunk.prefill_pairs = 16 * context
        chunks.append(first_ps(timing, chunk))
    assert chunks[0] < chunks[1] == chunks[2]


@settings(max_examples=300, deadline=None)
@given(
    name=st.sampled_from(sorted(TIMINGS)),
    sequences=st.integers(1, 300),
    mean_context=st.integers(1, 9000),
    extra=st.integers(0, 299),
    later=st.integers(0, 6000),
)
def test_a_progression_continues_exactly(name: str, sequences: int, mean_context: int, extra: int, later: int) -> None:
    timing = TIMINGS[name]
    context = sequences * mean_context + extra
    first, increment, holds = timing.progression(decode(sequences, context))
    assert first >= 1
    assert holds >= 1
    assert increment >= 0
    for ahead in {min(later, holds - 1), min(holds - 1, 10_000), holds // 2 if holds < FOREVER else 1}:
        again = timing.progression(decode(sequences, context + ahead * sequences))
        assert again == (first + ahead * increment, increment, FOREVER if holds == FOREVER else holds - ahead)


@settings(max_examples=200, deadline=None)
@given(
    name=st.sampled_from(sorted(TIMINGS)),
    sequences=st.integers(1, 500),
    context=st.integers(1, 400_000),
    more=st.integers(0, 500),
    tokens=st.integers(1, 8192),
)
def test_more_work_never_takes_less_time(name: str, sequences: int, context: int, more: int, tokens: int) -> None:
    timing = TIMINGS[name]
    alone = first_ps(timing, decode(sequences, context))
    assert first_ps(timing, decode(sequences + more, context)) >= alone
    assert first_ps(timing, decode(sequences, context + more)) >= alone
    assert first_ps(timing, prefill(tokens + more)) >= first_ps(timing, prefill(tokens))


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({"overhead_us": -1}, "overhead_us is -1"),
        ({"bandwidth_efficiency": 74}, "share of a peak"),
        ({"compute_efficiency": 0}, "share of a peak"),
        ({"all_reduce_us": float("inf")}, "all_reduce_us is inf"),
    ],
)
def test_errors(given_: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        RooflineTiming(Deployment("llama-3.1-8b"), **given_)


def test_it_says_what_it_is() -> None:
    described = RooflineTiming(Deployment("llama-3.1-8b"), overhead_us=100).describe()
    assert (described["kind"], described["name"], described["overhead_us"]) == ("estimated", "roofline", 100)
