"""Profile cards: read and written, found for a deployment, used inside and outside of what was measured."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import simbatch as sb
from simbatch.deployment import Deployment, find_gpu
from simbatch.errors import UsageError
from simbatch.timing.base import Iteration
from simbatch.timing.bundled import best_card, find_card, list_cards
from simbatch.timing.card import ORIGINS, CardError, Estimate, ProfileCard, card_text, parse_card, read_card
from simbatch.timing.formula import FormulaTiming
from simbatch.timing.profile import HERE, MOVED, MOVED_GPU, MOVED_KIND, ProfileTiming, distance

CARDS = {card.name: card for card in list_cards()}


def small_card(**changes: object) -> ProfileCard:
    card = ProfileCard(
        name="mine",
        about='a card "of mine"',
        gpu="H100-SXM-80GB",
        engine="none",
        date="2026",
        source="made up",
        coefficients={"step_us": Estimate(1000.0, 900.0, 1100.0), "layer_us": Estimate(30.0, 30.0, 30.0, "pinned")},
        error=CardError(median=0.01, p95=0.03, worst=0.05, worst_at="nowhere", how="made up", step=0.02),
        model="Llama-3.1-8B",
        tensor_parallel_size=1,
        measured={"tokens": (1.0, 512.0), "sequences": (1.0, 100.0)},
    )
    return replace(card, **changes)  # type: ignore[arg-type]


def decode(sequences: int, context: int) -> Iteration:
    one = Iteration()
    one.tokens = one.sequences = sequences
    one.context_tokens = context
    return one


@pytest.mark.parametrize("name", sorted(CARDS))
def test_bundled_cards_are_whole(name: str) -> None:
    card = CARDS[name]
    find_gpu(card.gpu)
    if card.model:
        here = Deployment(card.model, gpu=card.gpu, tensor_parallel_size=card.tensor_parallel_size)
        assert distance(card, here) == HERE
    for key, found in card.coefficients.items():
        assert found.low <= found.value <= found.high, key
        assert found.origin in ORIGINS
    assert 0 < card.error.median <= card.error.p95
    assert card.error.step < card.error.moved * 1.5
    assert card.error.moved <= card.error.moved_gpu
    assert card.source
    assert card.date
    assert card.measured["tokens"][1] >= 100
    assert parse_card(card_text(card), name) == card, "written and read it is the same"


def test_the_gpus_asked_for_have_cards() -> None:
    by_gpu = {card.gpu for card in CARDS.values()}
    assert {"H100-SXM-80GB", "H100-SXM-64GB", "A100-SXM-80GB", "RTX PRO 6000 Server", "H200-SXM-141GB"} <= by_gpu
    assert CARDS["h200-141gb"].kind == "estimated"


@pytest.mark.parametrize(
    ("model", "gpu", "gpus", "name", "use"),
    [
        ("llama-3.1-8b", "h100", 1, "h100-80gb", MOVED),
        ("llama-2-70b", "h100", 4, "h100-80gb-llama-2-70b-tp4", HERE),
        ("llama-2-70b", "h100", 8, "h100-80gb", MOVED),
        ("codellama-34b", "h100", 2, "h100-80gb-codellama-34b-tp2", HERE),
        ("llama-3.1-8b", "h100-64", 1, "h100-64gb-llama-3.1-8b", HERE),
        ("llama-2-7b", "h100-64", 1, "h100-64gb-llama-3.1-8b", MOVED),
        ("llama-3.1-8b", "a100-80", 1, "a100-80gb", MOVED),
        ("llama-2-13b", "a100-40", 1, "a100-80gb", MOVED_GPU),
        ("llama-3.1-8b", "h200", 1, "h200-141gb", MOVED_GPU),
        ("llama-3.1-8b", "rtx pro 6000 server", 1, "rtx-pro-6000", MOVED),
    ],
)
def test_the_best_card(model: str, gpu: str, gpus: int, name: str, use: str) -> None:
    here = Deployment(model, gpu=gpu, tensor_parallel_size=gpus)
    card = best_card(here)
    assert card is not None
    assert (card.name, distance(card, here)) == (name, use)


def test_every_gpu_has_a_best_card() -> None:
    for gpu in sb.deployment.list_gpus():
        assert best_card(Deployment("qwen2.5-1.5b", gpu=gpu, dtype="auto", max_model_len=1024)) is not None


def test_other_weights_are_another_model() -> None:
    card = CARDS["h100-64gb-llama-3.1-8b"]
    assert distance(card, Deployment("llama-3.1-8b", gpu="h100-64", quantization="fp8")) == MOVED_KIND
    assert distance(card, Deployment("llama-3.1-8b", gpu="h100-64", kv_cache_dtype="fp8")) == MOVED_KIND


def test_a_profile_of_one_gpu_knows_nothing_of_what_several_exchange() -> None:
    card = CARDS["h100-64gb-llama-3.1-8b"]
    assert card.coefficients["all_reduce_us"].origin == "absent"
    assert distance(card, Deployment("qwen2.5-14b", gpu="h100-64")) == MOVED
    assert distance(card, Deployment("qwen2.5-14b", gpu="h100-64", tensor_parallel_size=2)) == MOVED_KIND


@pytest.mark.parametrize(
    ("model", "use"),
    [
        ("llama-2-13b", MOVED),
        ("llama-3.1-70b", MOVED),
        ("mixtral-8x7b", MOVED_KIND),
        ("llama-3.2-1b", MOVED_KIND),
        ("llama-3.1-405b", MOVED_KIND),
    ],
)
def test_models_that_no_profile_was_compared_with_are_moved_further(model: str, use: str) -> None:
    here = Deployment(model, gpu="h100", tensor_parallel_size=8, kv_tokens=10_000, max_model_len=1000)
    timing = ProfileTiming(here, CARDS["h100-80gb"])
    assert timing.distance == use
    assert timing.spread == {MOVED: 0.09, MOVED_KIND: 0.2}[use]


@pytest.mark.parametrize(
    ("model", "gpu", "name", "kind", "use"),
    [
        ("llama-3.1-8b", "h100", "h100-80gb", "estimated", MOVED),
        ("llama-3.1-8b", "h100-64", "h100-64gb-llama-3.1-8b", "measured", HERE),
        ("llama-3.1-8b", "h200", "h200-141gb", "estimated", MOVED_GPU),
    ],
)
def test_a_run_takes_the_best_profile_and_says_which(model: str, gpu: str, name: str, kind: str, use: str) -> None:
    trace = sb.Trace.load("sharegpt").head(30).at_rate(40, seed=0)
    here = Deployment(model, gpu=gpu)
    unasked, asked = sb.simulate(trace, here), sb.simulate(trace, here, timing=name)
    timing = unasked.config["timing"]
    assert (timing["name"], timing["kind"], timing["use"]) == (name, kind, use)
    assert unasked.config["timing"] == asked.config["timing"]
    assert unasked.metrics()["latency_s"] == asked.metrics()["latency_s"]
    shown = f"timing      {kind} · profile {name} · {use}, ± {timing['error'] * 100:.1f} %"
    assert shown in repr(unasked).splitlines()


def test_without_a_profile_of_the_gpu_it_is_the_roofline_and_says_so() -> None:
    trace = sb.Trace.load("sharegpt").head(30).at_rate(4, seed=0)
    here = Deployment("llama-3.1-8b", gpu="l40s")
    unasked, asked = sb.simulate(trace, here), sb.simulate(trace, here, timing="roofline")
    assert unasked.config["timing"] == asked.config["timing"]
    assert unasked.config["timing"]["name"] == "roofline"
    said = "no profile of L40S is known: iteration times are a roofline estimate that was not compared with it"
    assert said in unasked.metrics()["warnings"]
    assert said not in asked.metrics()["warnings"]
    # Asked for by name, another GPU's profile is moved.
    moved = sb.simulate(trace, here, timing="h100-80gb").config["timing"]
    assert (moved["use"], moved["kind"], moved["error"]) == (MOVED_GPU, "estimated", 0.2)


def test_without_a_deployment_a_timing_must_be_named() -> None:
    trace = sb.Trace.load("sharegpt").head(3)
    with pytest.raises(UsageError, match="times of iterations need a model and a GPU"):
        sb.simulate(trace, kv_tokens=10_000, max_model_len=2048)


def test_the_spread_grows_with_the_distance() -> None:
    card = CARDS["h100-64gb-llama-3.1-8b"]
    places = (
        Deployment("llama-3.1-8b", gpu="h100-64"),
        Deployment("llama-2-7b", gpu="h100-64"),
        Deployment("llama-3.1-8b", gpu="h100"),
    )
    spreads = [ProfileTiming(here, card).spread for here in places]
    assert spreads == sorted(spreads)
    assert len(set(spreads)) == 3


def test_the_table_corrects_at_its_sizes_and_never_falls() -> None:
    card = small_card(table={"tokens": (8.0, 64.0, 256.0), "factor": (1.1, 0.9, 1.2)})
    here = Deployment("llama-3.1-8b")
    plain, corrected = FormulaTiming(here, card.values()), ProfileTiming(here, card)
    assert corrected.tokens_ps(8) == pytest.approx(1.1 * plain.tokens_ps(8), rel=1e-9)
    assert corrected.tokens_ps(256) == pytest.approx(1.2 * plain.tokens_ps(256), rel=1e-9)
    # 64 tokens would take less than 8: the measured time is kept from falling.
    assert corrected.tokens_ps(64) == corrected.tokens_ps(8)
    times = [corrected.tokens_ps(tokens) for tokens in range(1, 2000)]
    assert times == sorted(times)
    elsewhere = Deployment("llama-2-7b")
    assert ProfileTiming(elsewhere, card).tokens_ps(8) == FormulaTiming(elsewhere, card.values()).tokens_ps(8)


@pytest.mark.parametrize("name", sorted(CARDS))
def test_bundled_timings_keep_their_contract(name: str) -> None:
    card = CARDS[name]
    model = card.model or "llama-3.1-8b"
    here = Deployment(model, gpu=card.gpu, tensor_parallel_size=card.tensor_parallel_size or 1)
    timing = ProfileTiming(here, card)
    sb.testing.check_timing(timing)
    times = [timing.tokens_ps(tokens) for tokens in range(1, 3000)]
    assert times == sorted(times)


def test_a_run_outside_says_how_much_of_it() -> None:
    timing = ProfileTiming(Deployment("llama-3.1-8b"), small_card())
    rows = {name: np.array([10, 10, 400]) for name in ("tokens", "sequences", "context_tokens", "prefill_tokens")}
    rows["iterations"] = np.array([700, 200, 100])
    (remark,) = timing.remarks(rows)
    assert remark.startswith("10.0 % of the iterations lie outside what profile mine has seen")
    assert "sequences 400 to 400 (measured 1 to 100)" in remark
    rows["iterations"] = np.array([700, 200, 0])
    rows["tokens"] = rows["sequences"] = np.array([10, 10, 100])
    assert timing.remarks(rows) == []


def test_a_card_file_is_read_with_errors_that_name_it(tmp_path: Path) -> None:
    path = tmp_path / "card.toml"
    path.write_text(card_text(small_card()))
    assert read_card(path) == small_card()
    for text, message in (
        ("name = ", "not a profile card"),
        ("name = 'x'", "not a profile card"),
        (card_text(small_card()).replace("step_us", "step_ms"), "unknown timing coefficient 'step_ms'"),
        (card_text(small_card()).replace('"pinned"', '"guessed"'), "unknown origin of layer_us 'guessed'"),
        (card_text(small_card()).replace("engine =", "motor ="), "unknown field of a profile card 'motor'"),
        (card_text(small_card(table={"tokens": (1.0, 2.0), "factor": (1.0,)})), "of the same length"),
        (card_text(small_card()).replace("value = 1000", "value = -1000"), "step_us is -1000"),
        (card_text(small_card()).replace("value = 1000.0", "value = true"), "step_us is True"),
        (card_text(small_card()).replace("value = 1000.0", "value = '5'"), "step_us is '5'"),
        (card_text(small_card()).replace("low = 900.0", "low = nan"), "step_us.low is nan"),
        (
            re.sub(r"(?m)^step = .*", "step = 1.5", card_text(small_card())),
            "error.step is 1.5: iterations that may",
        ),
        (card_text(small_card()).replace('unit = "µs"', 'unit = "ms"'), "step_us is in 'ms'. Give it in µs"),
        (re.sub("(?m)^moved = .*", "moved = -1", card_text(small_card())), "error.moved is -1"),
        (re.sub("(?m)^gpu = .*", "gpu = 5", card_text(small_card())), "gpu is 5"),
        ("kind = 'guessed'\n" + card_text(small_card()), "unknown kind 'guessed'"),
        ("runs = -2\n" + card_text(small_card()), "runs is -2"),
    ):
        path.write_text(text)
        with pytest.raises(UsageError, match=message) as caught:
            read_card(path)
        assert str(path) in str(caught.value)
    with pytest.raises(UsageError, match=r"missing\.toml: the profile cannot be read"):
        read_card(tmp_path / "missing.toml")


def test_unknown_profiles_have_a_nearest_name() -> None:
    with pytest.raises(UsageError, match="Did you mean h100-80gb"):
        find_card("h100-80")


def test_numbers_are_finite_everywhere() -> None:
    """From one token to the largest batch, on every card that a GPU's best profile is moved to."""
    for gpu in ("a10g", "l4", "rtx 4090", "h200", "mi300x"):
        here = Deployment("qwen2.5-7b", gpu=gpu, max_model_len=1024, quantization="fp8")
        card = best_card(here)
        assert card is not None
        timing = ProfileTiming(here, card)
        first, increment, _ = timing.progression(decode(64, 64 * 500))
        assert 0 < first < 10**12
        assert math.isfinite(increment)
