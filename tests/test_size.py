"""Sizing: systems whose answer is known, what comes with it, lists of options, wrong input."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from math import exp, factorial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

import simbatch as sb
from simbatch.answers.highest_rate import TOLERANCE
from simbatch.answers.sized import Choice
from simbatch.timing.linear import LinearTiming

MEAN_TOKENS = 1000
"""With iterations of 1 ms a request is served for a second on average, and joins half an iteration late."""
QUEUE: dict[str, Any] = {
    "memory": "paged",
    "kv_tokens": 1 << 40,
    "max_model_len": 1 << 20,
    "timing": "linear:base_ms=1",
}


def customers(kind: str, count: int) -> Callable[[float, int], sb.Trace]:
    """Requests of one prompt token at a rate, for a seed: geometric lengths, or all equal."""

    def at(rate_per_s: float, seed: int) -> sb.Trace:
        draw = np.random.default_rng([seed, 1])
        tokens = draw.geometric(1 / MEAN_TOKENS, count) if kind == "exponential" else np.full(count, MEAN_TOKENS)
        return sb.Trace.from_lengths(np.ones(count), tokens).at_rate(rate_per_s, seed=seed)

    return at


def rate_at_which(share_late: Callable[[float], float], late: float, most: float) -> float:
    """The rate at which a share of customers waits too long, by halving."""
    low, high = 1e-6, most
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if share_late(middle) < late else (low, middle)
    return low


def late_of_mmc(rate: float, seats: int, wait_s: float) -> float:
    """P(wait > t) of M/M/c with service rate 1: Erlang's C times exp(-(c - rate) t)."""
    terms = [rate**k / factorial(k) for k in range(seats)] + [rate**seats / factorial(seats) / (1 - rate / seats)]
    return terms[-1] / sum(terms) * exp(-(seats - rate) * wait_s)


def late_of_md1(rate: float, wait_s: float) -> float:
    """P(wait > t) of M/D/1 with service of 1 s (Erlang)."""
    terms = [exp(rate * (wait_s - k)) * (rate * (k - wait_s)) ** k / factorial(k) for k in range(int(wait_s) + 1)]
    return 1 - (1 - rate) * sum(terms)


@pytest.mark.parametrize(
    ("kind", "seats", "wait_s", "late"),
    [
        ("exponential", 4, 1.0, lambda rate: late_of_mmc(rate, 4, 1.0)),
        ("equal", 1, 2.0, lambda rate: late_of_md1(rate, 2.0)),
    ],
)
def test_the_rate_of_a_textbook_queue_lies_in_the_interval(
    kind: str, seats: int, wait_s: float, late: Callable[[float], float]
) -> None:
    """At most a tenth waits longer than *wait_s*. TTFT is the wait, the rest of an iteration, and one more."""
    expected = rate_at_which(late, 0.1, seats - 1e-6)
    found = sb.size(
        customers(kind, 2500),
        scheduler="naive" if seats == 1 else "orca",
        max_num_seqs=seats,
        ttft_s=wait_s + 0.0015,
        percentile=90,
        seeds=6,
        **QUEUE,
    ).metrics()["rate_per_replica"]
    assert found["low"] < expected < found["high"]
    assert found["high"] - found["low"] < 0.15 * expected, "and the interval says something"


@pytest.mark.slow
def test_five_seeds_of_sharegpt_give_five_per_cent_and_the_answer_is_checked() -> None:
    found = sb.size(
        sb.Trace.load("sharegpt"),
        sb.Deployment("llama-13b", price_usd_per_hour=2.0),
        rate_per_s=40,
        ttft_s=1.0,
        tpot_s=0.05,
        seeds=5,
        requests=2000,
    )
    answer = found.metrics()
    rate = answer["rate_per_replica"]
    assert len(rate["values"]) == 5
    assert (rate["high"] - rate["mean"]) / rate["mean"] < 0.05
    assert answer["replicas"] == answer["gpus"]
    held = {check["replicas"]: check["held"] for check in answer["checks"]}
    assert held[answer["replicas"]]
    assert not held[answer["replicas"] - 1], "one fewer was tried, and is too few"
    assert abs(answer["replicas"] - 40 / rate["mean"]) <= 1.5
    assert answer["usd_per_hour"] == 2.0 * answer["replicas"]
    output = sb.Trace.load("sharegpt").output_tokens.mean()
    assert answer["usd_per_million_output_tokens"] == pytest.approx(
        answer["usd_per_hour"] / (3600 * 40 * output) * 1e6, rel=0.05
    )
    assert answer["bound_by"]["limit"] == "ttft"
    assert answer["bound_by"]["engine"] == "kv"
    assert 0.1 * rate["mean"] <= answer["knee_per_s"] <= 1.2 * rate["mean"]
    assert repr(found).startswith(f"{answer['replicas']} replicas, {answer['gpus']} GPUs: 40 requests/s are held")
    json.dumps(answer, allow_nan=False)


# -- the search ------------------------------------------------------------------------------------

SMALL: dict[str, Any] = {"timing": "linear:base_ms=10,token_us=100", "kv_tokens": 8_000, "max_model_len": 4096}

ROOMY: dict[str, Any] = {"kv_tokens": 4_000_000}


def small(**more: Any) -> Any:
    trace = sb.Trace.load("sharegpt")
    return sb.size(trace, **{"requests": 200, "seeds": 2, "ttft_s": 1.0, **SMALL, **more})


def test_the_rate_is_between_one_that_held_and_one_that_did_not() -> None:
    found = small().best.found[0]
    assert found.held is not None
    assert found.broken is not None
    assert found.held.held
    assert not found.broken.held
    assert found.held.rate_per_s < found.rate_per_s < found.broken.rate_per_s <= TOLERANCE * found.held.rate_per_s
    alone = sb.simulate(
        sb.Trace.load("sharegpt").sample(200, 0).at_rate(found.held.rate_per_s, seed=0), **SMALL
    ).metrics(ttft_s=1.0)
    assert alone["goodput"]["share"] == found.held.share


def test_stricter_limits_give_a_lower_rate_and_none_at_all_an_answer() -> None:
    strict, lax = (small(ttft_s=limit).metrics()["rate_per_replica"]["mean"] for limit in (0.05, 5.0))
    assert strict < lax
    hopeless = small(ttft_s=0.001)
    assert hopeless.metrics()["replicas"] is None
    assert "no rate keeps the limits" in repr(hopeless)


def test_a_trace_that_is_too_short_to_tell_says_so() -> None:
    found = sb.size(sb.Trace.from_lengths([10] * 20, [10] * 20), ttft_s=60.0, seeds=2, **SMALL)
    assert "the trace is too short to tell" in found.best.failed
    assert (found.best.replicas, found.metrics()["rate_per_replica"]) == (None, None), "no figure that is none"
    assert repr(found).startswith("NO ANSWER: the trace is too short to tell")


def test_an_interval_of_rates_does_not_go_below_none() -> None:
    held = [replace(small().best.found[0], held=replace(small().best.curve[0], rate_per_s=rate), broken=None)
            for rate in (1.0, 20.0)]  # fmt: skip
    rate = Choice({}, None, found=held).rate
    assert rate.low == 0.0 < rate.mean < rate.high


def test_what_is_not_needed_is_checked_all_the_same() -> None:
    with pytest.raises(sb.UsageError, match="unknown router 'banana'"):
        small(router="banana")
    with pytest.raises(sb.UsageError, match="unknown router 'banana'"):
        sb.simulate(sb.Trace.from_lengths([10], [10]), router="banana", **SMALL)
    with pytest.raises(sb.UsageError, match="the number of processes is 0"):
        small(n_jobs=0)


def test_a_batch_that_still_fills_says_so() -> None:
    """Of 600 requests of 1,000 tokens most come before any has left: a rate is held that no server keeps up with."""
    trace = sb.Trace.from_lengths([10] * 600, [1000] * 600)
    short, long = (sb.size(trace, tpot_s=0.05, seeds=2, requests=n, **SMALL | ROOMY) for n in (600, 3000))
    assert any("the batch still filled" in warning for warning in short.warnings)
    assert not any("the batch still filled" in warning for warning in long.warnings)
    assert long.best.rate.mean < 0.7 * short.best.rate.mean


class Known(LinearTiming):
    """A timing that knows how far off it may be: a tenth."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__(base_ms=10 * factor, token_us=100 * factor)

    def scaled(self, factor: float) -> Known:
        return Known(factor)

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "error": 0.1}


def test_the_error_of_the_timing_goes_through_to_the_rate() -> None:
    """Where all limits are far off, a tenth more time is a tenth less rate, to the grain of the search."""
    rate = small(timing=Known(), ttft_s=3.0).metrics()["rate_per_replica"]
    bounds = rate["timing_error"]
    assert bounds["relative"] == pytest.approx(0.1)
    assert bounds["low"] / rate["mean"] == pytest.approx(1 / 1.1, rel=0.05)
    assert bounds["high"] / rate["mean"] == pytest.approx(1 / 0.9, rel=0.05)


# -- several ---------------------------------------------------------------------------------------


def test_lists_make_a_table_with_the_cheapest_first() -> None:
    found = sb.size(
        sb.Trace.load("sharegpt"),
        sb.Deployment("llama-13b"),
        rate_per_s=20,
        ttft_s=1.0,
        tpot_s=0.022,
        requests=200,
        seeds=2,
        over={"gpu": ["h100", "a100-80", "l4"], "max_num_seqs": [32, 256]},
        price_usd_per_hour={"h100": 2.5, "a100-80": 1.0, "l4": 0.5},
    )
    table = found.frame()
    assert len(table) == 6
    spent = table[table["failed"] == ""]["usd_per_hour"]
    assert list(spent) == sorted(spent)
    assert found.metrics()["chosen"]["gpu"] == table["gpu"][0]
    failed = table[table["failed"] != ""]
    assert set(failed["gpu"]) == {"l4"}, "13 billion parameters do not fit"
    assert failed["failed"].str.contains("24").all()
    assert "l4" in repr(found)


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"ttft_s": None}, "size needs a limit"),
        ({"rate_per_s": 0}, "the rate is 0"),
        ({"over": {"gpus": ["h100"]}}, "option to try several of 'gpus'"),
        ({"over": {"gpu": "h100"}}, "which is no list of values"),
        ({"over": {"gpu": ["h100"]}}, "gpu belong to a deployment, and there is none"),
        ({"requests": 0}, "the number of requests is 0"),
        ({"seeds": 1}, "at least 2 different ones"),
        ({"rate_per_s": 1e6, "tpot_s": 0.02}, "1,000,000 requests per second are"),
    ],
)
def test_what_cannot_be(more: dict[str, Any], text: str) -> None:
    with pytest.raises(sb.UsageError) as caught:
        small(**more)
    assert text in str(caught.value)


# -- command line ----------------------------------------------------------------------------------

ASK = ("sharegpt", "--requests", "100", "--seeds", "2", "--ttft", "1s", "--kv-tokens", "8000")


def test_the_verb(simbatch: Callable[..., Result]) -> None:
    done = simbatch("size", *ASK, "--over", "tp=1,2", "--over", "max-num-seqs=64", "--price", "h100=2", "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert {"config", "rate_per_replica", "replicas", "gpus", "usd_per_hour", "bound_by", "table"} <= found.keys()
    assert {row["tensor_parallel_size"] for row in found["table"]} == {1, 2}
    assert found["config"]["command"].endswith("--over tp=1,2 --over max-num-seqs=64 --price h100=2")
    assert simbatch("size", "sharegpt").exit_code == 2
    assert simbatch("size", *ASK, "--over", "tp=1", "--over", "tp=2").exit_code == 2
    assert simbatch("size", *ASK, "--over", "tp").exit_code == 2
    assert simbatch("size", *ASK, "--price", "cheap").exit_code == 2
    assert simbatch("size", *ASK[:5], "--ttft", "1ms").exit_code == 1
    assert not list(Path().iterdir())
