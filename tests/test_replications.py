"""Several seeds: intervals that hold, differences that are paired, warm-ups that are found, wrong input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

import simbatch as sb
from simbatch.deployment import Deployment
from simbatch.stats import interval, settled_from
from simbatch.timing.linear import LinearTiming
from simbatch.trace.generate import generate

SMALL: dict[str, Any] = {"timing": "linear:base_ms=10,token_us=100", "kv_tokens": 20_000, "max_model_len": 4096}


def shared_trace(rate_per_s: float = 8.0, count: int = 150) -> sb.Trace:
    return sb.Trace.load("sharegpt").sample(count).at_rate(rate_per_s)


# -- intervals -------------------------------------------------------------------------------------


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=20))
def test_interval_is_students(values: list[float]) -> None:
    found = interval(values)
    half = scipy_stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5
    assert found.low is not None
    assert found.high is not None
    assert found.mean == pytest.approx(np.mean(values), abs=1e-6)
    assert found.high - found.mean == pytest.approx(half, rel=1e-6, abs=1e-6)
    assert found.mean - found.low == pytest.approx(half, rel=1e-6, abs=1e-6)


def test_an_interval_of_95_per_cent_holds_in_95_of_100_cases() -> None:
    """2,000 samples of five: between 93.5 and 96.5 %, three standard errors of that share."""
    draw = np.random.default_rng(1).normal(3, 2, (2000, 5))
    held = [low <= 3 <= high for _, low, high in map(interval, draw.tolist()) if low is not None and high is not None]
    assert 0.935 < np.mean(held) < 0.965


def test_one_value_has_no_interval() -> None:
    assert interval([2.0]) == (2.0, None, None)
    assert not interval([2.0]).is_apart


# -- warm-up ---------------------------------------------------------------------------------------


def test_mser_finds_where_a_start_ends() -> None:
    noise = np.random.default_rng(2).normal(0, 1, 1000)
    start = np.where(np.arange(1000) < 200, 30.0, 0.0)
    assert settled_from(noise + start) == 200
    assert settled_from(noise + np.linspace(0, 50, 1000)) is None, "it never settles"
    assert settled_from(noise[:10]) is None
    cut = settled_from(noise)
    assert cut is not None
    assert cut <= 500


@given(st.lists(st.integers(0, 1000), min_size=20, max_size=300))
def test_mser_is_the_textbooks(values: list[int]) -> None:
    """Straight from the definition: the variance of what is left over its number, batches of five."""
    means = np.array(values[: len(values) // 5 * 5]).reshape(-1, 5).mean(axis=1)
    errors = [np.var(means[d:]) / (len(means) - d) for d in range(max(1, len(means) - 5))]
    cut = settled_from(np.array(values))
    if cut is None:
        assert min(errors) < min(errors[: len(means) // 2 + 1]) + 1e-9
    else:
        assert errors[cut // 5] == pytest.approx(min(errors), rel=1e-6, abs=1e-9)


def test_a_warm_up_is_found_on_request_and_said_to_be_none_where_nothing_settles() -> None:
    result = sb.simulate(sb.Trace.from_lengths([50] * 400, [40] * 400).at_rate(20), max_num_seqs=30, **SMALL)
    found = result.metrics(warmup_s="auto")
    assert 0 <= found["simulation"]["warmup_s"] < 0.5 * found["simulation"]["makespan_s"]
    seconds = found["simulation"]["warmup_s"]
    assert result.metrics(warmup_s=seconds)["latency_s"] == found["latency_s"]
    crowded = sb.simulate(sb.Trace.from_lengths([50] * 400, [40] * 400).at_rate(20), max_num_seqs=2, **SMALL)
    found = crowded.metrics(warmup_s="auto")
    assert found["simulation"]["warmup_s"] == 0
    assert any(warning.startswith("no warm-up was cut") for warning in found["warnings"])
    with pytest.raises(sb.UsageError, match="'later' is none"):
        result.metrics(warmup_s="later")


# -- drawn again -----------------------------------------------------------------------------------


def test_a_trace_is_drawn_again_with_another_seed() -> None:
    base = sb.Trace.load("sharegpt")
    trace = base.sample(50, seed=3).at_rate(5, burstiness=0.5, seed=3).time_scaled(2)
    assert trace.with_seed(3) == trace
    assert trace.with_seed(4) == base.sample(50, seed=4).at_rate(5, burstiness=0.5, seed=4).time_scaled(2)
    assert trace.with_seed(4) != trace
    made = generate(20, "uniform:2-8", "uniform:2-8", rate_per_s=3, seed=1)
    assert made.with_seed(2) == generate(20, "uniform:2-8", "uniform:2-8", rate_per_s=3, seed=2)
    bursts = base.head(30).arriving("mmpp:rates=1/10,stays=5s/5s", seed=1)
    assert bursts.with_seed(2) == base.head(30).arriving("mmpp:rates=1/10,stays=5s/5s", seed=2)


def test_what_was_not_drawn_cannot_be_drawn_again() -> None:
    recorded = sb.Trace.from_columns(arrival_s=[0, 1], prompt_tokens=[5, 5], output_tokens=[3, 3])
    for trace in (recorded, recorded.head(4), recorded.time_scaled(2)):
        with pytest.raises(sb.UsageError, match="nothing of the trace columns was drawn from a seed"):
            trace.with_seed(1)


# -- replications ----------------------------------------------------------------------------------


def test_replications_are_runs_with_other_seeds() -> None:
    trace = shared_trace()
    found = sb.replicate(trace, seeds=4, seed=7, **SMALL)
    assert found.seeds == [7, 8, 9, 10]
    alone = sb.simulate(trace.with_seed(9), seed=9, **SMALL)
    assert found.results[2].facts.requests["finished_ps"].tolist() == alone.facts.requests["finished_ps"].tolist()
    figures = found.metrics()["replications"]["figures"]
    ttft = [result.metrics()["latency_s"]["ttft"]["mean"] for result in found.results]
    assert figures["latency_s.ttft.mean"]["values"] == ttft
    assert figures["latency_s.ttft.mean"]["low"] == interval(ttft).low
    assert "goodput.share" not in figures
    assert "goodput.share" in found.metrics(ttft_s=1.0)["replications"]["figures"]
    assert list(found.frame().index) == [7, 8, 9, 10]
    assert "4 seeds" in repr(found)
    json.dumps(found.metrics(), allow_nan=False)


def test_a_function_from_a_seed_to_a_trace() -> None:
    base = sb.Trace.load("sharegpt").head(60)
    found = sb.replicate(lambda seed: base.at_rate(5 + seed, seed=seed), seeds=[1, 4], **SMALL)
    rates = [result.config["trace"]["transforms"][-1] for result in found.results]
    assert rates == [f"at_rate(rate_per_s={5 + seed}, burstiness=1, seed={seed})" for seed in (1, 4)]


class Known(LinearTiming):
    """A timing that knows how far off it may be."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__(base_ms=10 * factor, token_us=100 * factor)

    def scaled(self, factor: float) -> Known:
        return Known(factor)

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "error": 0.1}


def test_the_error_of_a_timing_goes_through_to_the_figures() -> None:
    found = sb.replicate(shared_trace(), seeds=3, **{**SMALL, "timing": Known()})
    replications = found.metrics()["replications"]
    assert replications["timing_error"]["relative"] == pytest.approx(0.1)
    bounds = replications["timing_error"]["figures"]["latency_s.tpot.mean"]
    value = replications["figures"]["latency_s.tpot.mean"]["values"][0]
    # A tenth longer iterations, and a batch that is a tenth larger: more than a tenth, of an iteration of 10 ms.
    assert 1.1 < bounds["high"] / value < 1.2
    assert 0.8 < bounds["low"] / value < 0.9
    assert "timing from" in repr(found)
    assert "timing_error" not in sb.replicate(shared_trace(), seeds=2, **SMALL).metrics()["replications"]


# -- compare ---------------------------------------------------------------------------------------


def test_differences_are_paired_over_seeds() -> None:
    trace = shared_trace(rate_per_s=6)
    found = sb.compare(trace, systems=["orca-max", "vllm"], seeds=6, **SMALL).metrics()
    paired = [
        sb.simulate(trace.with_seed(s), seed=s, system="vllm", **SMALL).metrics()["latency_s"]["ttft"]["mean"]
        - sb.simulate(trace.with_seed(s), seed=s, system="orca-max", **SMALL).metrics()["latency_s"]["ttft"]["mean"]
        for s in range(6)
    ]
    entry = next(entry for entry in found["differences"] if entry["metric"] == "latency_s.ttft.mean")
    assert (entry["mean"], entry["low"], entry["high"]) == interval(paired)
    figures = found["replications"]["systems"]
    widths = [
        figures[name]["latency_s.ttft.mean"]["high"] - figures[name]["latency_s.ttft.mean"]["low"] for name in figures
    ]
    assert entry["high"] - entry["low"] < sum(widths), "the same customers: chance cancels out"
    json.dumps(found, allow_nan=False)


def test_no_difference_is_shown_when_there_is_none() -> None:
    """vLLM's limit on sequences that never binds: nothing differs."""
    found = sb.compare(
        shared_trace(rate_per_s=2), systems={"a": "vllm", "b": {"max_num_seqs": 250}, "c": "naive"}, seeds=3, **SMALL
    )
    text = repr(found)
    row = next(line for line in text.splitlines() if line.startswith("b ") and "shown" in line)
    assert row.count("no difference shown") == 4
    row = [line for line in text.splitlines() if line.startswith("c ")][-1]
    assert "+" in row
    assert "seeds       3 from 0" in text


def test_a_system_that_fails_fails_in_its_place_and_the_others_have_intervals() -> None:
    systems: dict[str, Any] = {"wrong": {"watermark": 2.0}, "vllm": "vllm", "naive": "naive"}
    found = sb.compare(shared_trace(), systems=systems, seeds=2, **SMALL)
    assert list(found.failed) == ["wrong"]
    assert [list(results) for results in found.replications] == [["vllm", "naive"]] * 2
    assert found.metrics()["differences"][0]["low"] is not None


def test_an_interruption_keeps_the_seeds_that_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    import simbatch.answers.compare as compare

    served = iter(range(100))

    def until_somebody_ends_it(trace: sb.Trace, arguments: dict[str, Any]) -> sb.Result:
        if next(served) == 5:
            raise KeyboardInterrupt
        return sb.simulate(trace, **arguments)

    monkeypatch.setattr(compare, "_attempt", until_somebody_ends_it)
    found = sb.compare(shared_trace(), systems=["vllm", "naive"], seeds=4, **SMALL)
    assert found.interrupted
    assert found.seeds == [0, 1]


@pytest.mark.parametrize("seeds", [1, 0, -3, [3], [2, 2], [1, "x"]])
def test_seeds_that_make_no_interval(seeds: Any) -> None:
    with pytest.raises(sb.UsageError, match="seed"):
        sb.replicate(shared_trace(), seeds=seeds, **SMALL)


def test_wrong_traces() -> None:
    with pytest.raises(sb.UsageError, match="nothing of the trace sharegpt was drawn"):
        sb.compare(sb.Trace.load("sharegpt"), Deployment(), systems=["vllm"], seeds=3)
    with pytest.raises(sb.UsageError, match="or a function from a seed"):
        sb.replicate(7, Deployment(), seeds=3)  # type: ignore[arg-type]


# -- command line ----------------------------------------------------------------------------------

ASK = ("sharegpt", "--requests", "80", "--rate", "20")


def test_run_with_seeds_is_the_run_and_its_intervals(simbatch: Callable[..., Result]) -> None:
    alone = json.loads(simbatch("run", *ASK, "--json").stdout)
    found = json.loads(simbatch("run", *ASK, "--seeds", 3, "--json").stdout)
    assert found["latency_s"] == alone["latency_s"]
    assert found["replications"]["seeds"] == [0, 1, 2]
    figure = found["replications"]["figures"]["latency_s.ttft.mean"]
    assert figure["low"] < figure["mean"] < figure["high"]
    text = simbatch("run", *ASK, "--seeds", 3, "-q").stdout
    assert "3 seeds" in text
    assert "--seeds 3" in text


def test_run_requires_limits_of_every_seed(simbatch: Callable[..., Result]) -> None:
    assert simbatch("run", *ASK, "--seeds", 2, "--ttft", "10s", "--require").exit_code == 0
    assert simbatch("run", *ASK, "--seeds", 2, "--ttft", "1ms", "--require").exit_code == 3


def test_replicas_router_and_warm_up_on_the_command_line(simbatch: Callable[..., Result]) -> None:
    done = simbatch("run", *ASK, "--replicas", 2, "--router", "least-loaded", "--warmup", "1s", "--json")
    found = json.loads(done.stdout)
    assert (found["config"]["replicas"], found["config"]["router"]) == (2, "least-loaded")
    assert found["simulation"]["warmup_s"] == 1
    assert (
        "2 behind a router, least-loaded" in simbatch("run", *ASK, "--replicas", 2, "--router", "least-loaded").stdout
    )
    assert simbatch("run", *ASK, "--warmup", "1").exit_code == 2
    assert simbatch("run", *ASK, "--router", "mine", "--replicas", 2).exit_code == 2
    assert "router 'mine'" in simbatch("run", *ASK, "--router", "mine", "--replicas", 2).stderr


def test_a_folder_of_several_seeds_says_whose_run_it_holds(simbatch: Callable[..., Result]) -> None:
    done = simbatch("run", *ASK, "--seeds", 3, "--seed", 4, "-o", "some")
    assert done.exit_code == 0, done.stderr
    assert "some holds the run of seed 4; its metrics.json is of all 3" in done.stderr
    assert "holds the run of" not in simbatch("run", *ASK, "-o", "one").stderr


def test_compare_with_seeds(simbatch: Callable[..., Result]) -> None:
    done = simbatch("compare", *ASK, "--systems", "naive,vllm", "--seeds", 3, "-o", "both")
    assert done.exit_code == 0, done.stderr
    assert "more than naive" in done.stdout
    assert "seeds       3 from 0" in done.stdout
    saved = json.loads(Path("both/comparison.json").read_text())
    assert saved["differences"][0]["low"] is not None
    assert "--seeds 3" in Path("both/repeat.sh").read_text()


def test_seeds_of_a_trace_with_recorded_times(simbatch: Callable[..., Result]) -> None:
    Path("mine.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,5,5\n1,5,5\n")
    done = simbatch("run", "mine.csv", "--seeds", 3)
    assert done.exit_code == 2
    assert "nothing of the trace mine.csv was drawn" in done.stderr
