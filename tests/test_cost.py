"""What tokens cost: arithmetic of price and throughput, three loads, and waste against paged memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result as Done

import simbatch as sb

HERE: dict[str, Any] = {"gpu": "h100", "price_usd_per_hour": 2.5}


def of(system: str, rate: float | None = 4.0, **more: Any) -> sb.Cost:
    trace = sb.Trace.load("sharegpt").head(200)
    trace = trace if rate is None else trace.at_rate(rate, seed=0)
    return sb.cost(trace, sb.Deployment("llama-13b", **HERE), system=system, **more)


def test_dollars_are_price_over_tokens() -> None:
    found = of("vllm").metrics()
    for name in ("as_served", "full_load"):
        load = found[name]
        assert load["usd_per_million_output_tokens"] == pytest.approx(2.5 / 3600 / load["output_tokens_per_s"] * 1e6)
        assert load["usd_per_million_tokens"] == pytest.approx(2.5 / 3600 / load["total_tokens_per_s"] * 1e6)
    assert found["at_limits"] is None, "no limits were given"
    assert found["full_load"]["usd_per_million_output_tokens"] < found["as_served"]["usd_per_million_output_tokens"]


def test_as_served_is_the_run_itself() -> None:
    trace = sb.Trace.load("sharegpt").head(200).at_rate(4, seed=0)
    run = sb.simulate(trace, sb.Deployment("llama-13b", **HERE)).metrics()
    assert of("vllm").metrics()["as_served"]["usd_per_million_tokens"] == run["cost"]["usd_per_million_tokens"]


def test_waste_is_what_paged_memory_would_not_have_needed() -> None:
    static, paged = of("static").metrics(), of("vllm").metrics()
    own, best = (run["full_load"]["output_tokens_per_s"] for run in (static, paged))
    assert static["waste"]["usd_per_hour"] == pytest.approx(2.5 * (1 - own / best))
    assert static["waste"]["gain"] == pytest.approx(best / own)
    assert 0 < static["waste"]["usd_per_hour"] < 2.5
    assert paged["waste"]["usd_per_hour"] == 0
    assert "the paged, continuous system that others are measured against" in repr(of("vllm"))


def test_the_highest_rate_keeps_the_limits_and_a_tenth_more_does_not() -> None:
    """Little memory and few seats, so that 200 requests are enough to overload it."""
    small = {"kv_tokens": 20_000, "max_num_seqs": 16}
    found = of("vllm", ttft_s=0.5, percentile=90, **small).metrics()["at_limits"]
    trace, here = sb.Trace.load("sharegpt").head(200), sb.Deployment("llama-13b", **HERE)

    def share(rate: float) -> float:
        run = sb.simulate(trace.at_rate(rate, seed=0), here, **small).metrics(ttft_s=0.5)
        return float(run["goodput"]["share"])

    assert share(found["rate_per_s"]) >= 0.9
    assert share(found["rate_per_s"] * 1.1) < 0.9
    assert of("vllm", ttft_s=1e-6).metrics()["at_limits"] is None
    assert "no rate keeps them" in repr(of("vllm", ttft_s=1e-6))


def test_a_trace_that_is_too_short_to_overload_anything_is_said_to_be() -> None:
    assert "the trace is too short to tell the highest rate" in of("vllm", ttft_s=60).warnings[-1]


def test_several_gpus_are_paid_for_each() -> None:
    here = sb.Deployment("llama-13b", gpu="h100", tensor_parallel_size=2)
    found = sb.cost(sb.Trace.load("sharegpt").head(50), here, price_usd_per_hour=2.0)
    assert found.usd_per_hour == 4.0
    assert found.metrics()["as_served"] is None, "no times: nothing is served as asked"


def test_a_price_must_be_given_and_an_example_carries_its_date() -> None:
    with pytest.raises(sb.UsageError) as caught:
        sb.cost(sb.Trace.load("sharegpt").head(10), sb.Deployment("llama-3.1-8b", gpu="h100"))
    assert "there is no price. Give dollars per GPU and hour (H100-SXM-80GB was seen for" in str(caught.value)
    assert "202" in str(caught.value)


def test_the_verb(simbatch: Callable[..., Done]) -> None:
    asked = "cost sharegpt --rate 5 --requests 100 --model llama-13b --system static --price 2.5".split()
    done = simbatch(*asked)
    assert done.exit_code == 0
    assert "waste       $" in done.stdout
    assert "at the limits" in done.stdout
    assert "no limits given" in done.stdout
    found = json.loads(simbatch(*asked, "--json").stdout)
    assert found["waste"]["system"] == "static"
    assert found["config"]["command"].startswith("simbatch cost sharegpt --rate 5")
    refused = simbatch("cost", "sharegpt", "--requests", "10")
    assert (refused.exit_code, "there is no price" in refused.stderr) == (2, True)
