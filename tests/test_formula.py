"""The formula of fitted timings: one iteration and many agree, slopes are slopes, more work never takes less."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simbatch as sb
from simbatch.deployment import Deployment
from simbatch.errors import UsageError
from simbatch.timing.base import FOREVER, Iteration
from simbatch.timing.coefficients import UNITS, Coefficients
from simbatch.timing.formula import FormulaTiming
from simbatch.timing.many import formula_s, formula_slopes
from simbatch.timing.work import FEATURES, loads

EVERYTHING = Coefficients(
    step_us=800,
    layer_us=30,
    eager_layer_us=20,
    kv_half_heads=1,
    kv_floor_tokens=40,
    kv_sequence_tokens=20,
    mixed_kv_share=0.3,
    sequence_us=4,
    crowding_ns=3,
    prompt_us=15,
    waiting_ns=900,
    all_reduce_us=6,
)
DEPLOYMENTS = {
    "dense": Deployment("llama-3.1-8b"),
    "tensor parallel": Deployment("llama-2-70b", tensor_parallel_size=4),
    "windows": Deployment("gemma-2-9b"),
    "all windows": Deployment("mistral-7b-v0.1", gpu="a100-40"),
    "experts": Deployment("qwen3-30b-a3b"),
    "latent": Deployment("deepseek-v2-lite"),
    "fp8": Deployment("llama-3.1-8b", quantization="fp8", kv_cache_dtype="fp8"),
}
TIMINGS = {name: FormulaTiming(here, EVERYTHING) for name, here in DEPLOYMENTS.items()}


def iteration(
    decoding: int, context: int, prompts: int = 0, tokens: int = 0, past: int = 0, waiting: int = 0
) -> Iteration:
    """*decoding* sequences over *context* tokens in all, and *prompts* of *tokens* each on *past* cached ones."""
    one = Iteration()
    one.tokens, one.sequences = decoding + prompts * tokens, decoding + prompts
    one.prefill_tokens, one.prefill_sequences = prompts * tokens, prompts
    one.prefill_context_tokens = prompts * (tokens + past)
    one.context_tokens = context + one.prefill_context_tokens
    one.prefill_pairs = prompts * (tokens * past + tokens * (tokens + 1) // 2)
    one.waiting = waiting
    return one


iterations = st.builds(
    iteration,
    st.integers(1, 600),
    st.integers(1, 400_000),
    st.integers(0, 4),
    st.integers(2, 2000),
    st.integers(0, 4000),
    st.integers(0, 2000),
)


def rows(ones: list[Iteration]) -> dict[str, np.ndarray]:
    return {name: np.array([float(getattr(one, name)) for one in ones]) for name in FEATURES}


@settings(max_examples=200, deadline=None)
@given(name=st.sampled_from(sorted(TIMINGS)), one=iterations)
def test_one_iteration_and_many_agree(name: str, one: Iteration) -> None:
    """Rounding to whole picoseconds for each token of context is all that differs."""
    many = formula_s(EVERYTHING, loads(DEPLOYMENTS[name], rows([one])))[0]
    assert TIMINGS[name].progression(one)[0] / 1e12 == pytest.approx(many, rel=2e-5)


@pytest.mark.parametrize("name", sorted(DEPLOYMENTS))
def test_slopes_are_slopes(name: str) -> None:
    """Analytic derivatives against differences, each coefficient by itself."""
    rng = np.random.default_rng(1)
    ones = [
        iteration(int(n), int(n * c), int(p), int(t), int(k), int(w))
        for n, c, p, t, k, w in rng.integers((1, 1, 0, 2, 0, 0), (500, 3000, 3, 1500, 3000, 900), (60, 6))
    ]
    work = loads(DEPLOYMENTS[name], rows(ones))
    names = [key for key in UNITS if key != "graph_tokens"]
    for key, slope in zip(names, formula_slopes(EVERYTHING, work, names), strict=True):
        value = getattr(EVERYTHING, key)
        move = max(abs(value), 0.1) * 1e-6
        ends = [formula_s(replace(EVERYTHING, **{key: value + sign * move}), work) for sign in (-1, 1)]
        numeric = (ends[1] - ends[0]) / (2 * move)
        assert slope == pytest.approx(numeric, rel=1e-3, abs=1e-9 * np.abs(numeric).max() + 1e-12), key


@settings(max_examples=300, deadline=None)
@given(name=st.sampled_from(sorted(TIMINGS)), one=iterations, more=st.integers(1, 300))
def test_more_work_never_takes_less(name: str, one: Iteration, more: int) -> None:
    timing = TIMINGS[name]
    before = timing.progression(one)[0]
    for change in ("context_tokens", "waiting"):
        longer = Iteration()
        for feature in FEATURES:
            setattr(longer, feature, getattr(one, feature))
        setattr(longer, change, getattr(one, change) + more)
        assert timing.progression(longer)[0] >= before, change
    decoding = one.sequences - one.prefill_sequences
    larger = iteration(decoding + more, one.context_tokens - one.prefill_context_tokens)
    assert timing.progression(larger)[0] >= timing.progression(iteration(decoding, larger.context_tokens))[0]


@settings(max_examples=300, deadline=None)
@given(
    name=st.sampled_from(sorted(TIMINGS)),
    decoding=st.integers(1, 300),
    each=st.integers(1, 9000),
    extra=st.integers(0, 299),
    later=st.integers(0, 6000),
)
def test_a_progression_continues_exactly(name: str, decoding: int, each: int, extra: int, later: int) -> None:
    timing = TIMINGS[name]
    context = decoding * each + extra
    first, increment, holds = timing.progression(iteration(decoding, context))
    assert first >= 1
    assert holds >= 1
    assert increment >= 0
    for ahead in {min(later, holds - 1), min(holds - 1, 10_000)}:
        again = timing.progression(iteration(decoding, context + ahead * decoding))
        assert again == (first + ahead * increment, increment, FOREVER if holds == FOREVER else holds - ahead)


def test_the_contract_of_timings() -> None:
    for timing in TIMINGS.values():
        sb.testing.check_timing(timing)


def test_perfect_efficiencies_are_the_roof() -> None:
    """Everything at peak, nothing of the host: weights and cache over bandwidth."""
    perfect = Coefficients(weight_efficiency=1, compute_efficiency=1, kv_efficiency=1, roof_power=50, all_reduce_us=0)
    here = Deployment("llama-13b", gpu="h100")
    read = here.weights_bytes - here.weights.token_table + 1000 * here.kv_bytes_per_token
    got = FormulaTiming(here, perfect).progression(iteration(1, 1000))[0] / 1e12
    assert got == pytest.approx(read / 3350e9, rel=1e-6)


def test_a_factor_makes_every_iteration_longer() -> None:
    longer = FormulaTiming(DEPLOYMENTS["dense"], EVERYTHING, scale=1.1)
    for one in (iteration(8, 800), iteration(100, 90_000), iteration(8, 900, 2, 300)):
        ratio = longer.progression(one)[0] / TIMINGS["dense"].progression(one)[0]
        assert ratio == pytest.approx(1.1, rel=1e-4)


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({"step_us": -1.0}, "step_us is -1"),
        ({"kv_efficiency": 0.0}, "kv_efficiency is 0"),
        ({"compute_efficiency": 70.0}, "share of a peak"),
        ({"roof_power": 0.5}, "roof_power is 0.5"),
        ({"waiting_ns": float("nan")}, "waiting_ns is nan"),
        ({"layer_ms": 1.0}, "unknown timing coefficient 'layer_ms'. Did you mean layer_us"),
    ],
)
def test_errors(given_: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Coefficients.of(given_)
