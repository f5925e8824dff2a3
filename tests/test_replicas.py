"""Several replicas in one world: copies add up exactly, running ahead equals stepping, routers do what they say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import simbatch as sb
from simbatch.facts import REFUSED
from simbatch.request import Request
from simbatch.router import ROUTERS, LeastLoaded, PrefixAffinity, Replica
from simbatch.trace.generate import generate
from simbatch.verdict import Queue

TIGHT: dict[str, Any] = {
    "timing": "linear:base_ms=1,token_us=100,context_ns=500",
    "kv_tokens": 256,
    "max_model_len": 96,
}


def copies(trace: sb.Trace, n: int) -> sb.Trace:
    """Each request *n* times at the same instant, one after the other."""
    rows = np.repeat(np.arange(len(trace)), n)
    assert trace.arrival_ps is not None
    return sb.Trace.from_columns(
        arrival_ps=trace.arrival_ps[rows].tolist(),
        prompt_tokens=trace.prompt_tokens[rows],
        output_tokens=trace.output_tokens[rows],
    )


@pytest.mark.parametrize("system", ["vllm", "vllm-v0", "orca-max"])
@pytest.mark.parametrize("n", [2, 5])
def test_copies_on_replicas_are_n_times_one_replica_exactly(system: str, n: int) -> None:
    trace = sb.Trace.load("sharegpt").head(300).at_rate(30, seed=1)
    here = sb.Deployment("llama-13b", gpu="h100", kv_tokens=16_000, price_usd_per_hour=2.0)
    one = sb.simulate(trace, here, system=system)
    many = sb.simulate(copies(trace, n), here, system=system, replicas=n, router="round-robin")
    many.check()
    assert many.facts.requests["replica"].tolist() == list(range(n)) * len(trace)
    for replica in range(n):
        asked, ran = many.facts.requests["replica"] == replica, many.facts.rows["replica"] == replica
        for name, column in one.facts.requests.items():
            assert (many.facts.requests[name][asked] == column).all(), name
        for name, column in one.facts.rows.items():
            expected = np.where(column < 0, -1, column * n + replica) if name == "head" else column
            assert (many.facts.rows[name][ran] == expected).all(), name
    a, b = one.metrics(ttft_s=1.0), many.metrics(ttft_s=1.0)
    for name, count in a["requests"].items():
        assert b["requests"][name] == n * count
    for name, rate in a["throughput"].items():
        assert b["throughput"][name] == pytest.approx(n * rate, rel=1e-12)
    assert b["verdict"] == a["verdict"]
    assert b["goodput"]["share"] == a["goodput"]["share"]
    assert b["latency_s"]["itl"]["max"] == a["latency_s"]["itl"]["max"]
    assert b["batch"] == a["batch"], "means and most of a replica that runs"
    assert b["kv"]["live_share"] == pytest.approx(a["kv"]["live_share"], rel=1e-12)
    assert b["cost"]["usd_per_hour"] == n * a["cost"]["usd_per_hour"]
    assert b["cost"]["usd_per_million_tokens"] == pytest.approx(a["cost"]["usd_per_million_tokens"], rel=1e-12)


@st.composite
def worlds(draw: st.DrawFn) -> dict[str, Any]:
    """Coarse times and lengths, so that arrivals, finishes and boundaries of several replicas often coincide."""
    count = draw(st.integers(1, 14))
    sessions = draw(st.booleans())
    columns: dict[str, Any] = {
        "arrival_ps": sorted(draw(st.lists(st.integers(0, 12), min_size=count, max_size=count))),
        "prompt_tokens": draw(st.lists(st.integers(1, 40), min_size=count, max_size=count)),
        "output_tokens": draw(st.lists(st.integers(1, 12), min_size=count, max_size=count)),
    }
    columns["arrival_ps"] = [t * 500_000_000 for t in columns["arrival_ps"]]
    if sessions:
        columns["session"] = [draw(st.sampled_from(["a", "b", "c", ""])) for _ in range(count)]
    return {
        "trace": sb.Trace.from_columns(columns),
        "system": draw(st.sampled_from(["vllm", "vllm-v0", "orca-oracle", "static", "naive"])),
        "replicas": draw(st.integers(1, 3)),
        "router": draw(st.sampled_from([*ROUTERS])),
        "concurrency": draw(st.one_of(st.none(), st.integers(1, 5))),
        "timing": draw(st.sampled_from(["linear:base_ms=1", "linear:base_ms=0.5,token_us=500"])),
        "kv_tokens": draw(st.sampled_from([64, 128])),
        "max_model_len": 64,
        "max_num_seqs": draw(st.sampled_from([1, 2, 8])),
        "async_scheduling": draw(st.booleans()),
    }


@settings(max_examples=150, deadline=None)
@given(worlds())
def test_running_ahead_equals_stepping_with_several_replicas(world: dict[str, Any]) -> None:
    if world["system"] != "vllm":
        world = {key: value for key, value in world.items() if key != "async_scheduling"}
    ahead, stepped = sb.simulate(**world), sb.simulate(**world, step=True)
    ahead.check()
    for table in ("requests", "rows"):
        one, other = getattr(ahead.facts, table), getattr(stepped.facts, table)
        assert one.keys() == other.keys()
        for name in one:
            assert np.array_equal(one[name], other[name]), (table, name)
    assert ahead.metrics()["verdict"] == stepped.metrics()["verdict"]
    if world["replicas"] > 1:
        assert stepped.decisions is not None
        assert {step["replica"] for step in stepped.decisions} <= set(range(world["replicas"]))


@settings(max_examples=150, deadline=None)
@given(
    lengths=st.lists(st.tuples(st.sampled_from([2, 20]), st.sampled_from([1, 2, 3, 6])), min_size=3, max_size=8),
    users=st.integers(1, 3),
)
@example(lengths=[(20, 1), (2, 2), (2, 3), (20, 3), (20, 3), (20, 3)], users=2)
def test_what_a_drop_causes_comes_after_the_plans_of_its_instant(lengths: list[tuple[int, int]], users: int) -> None:
    """V0 drops the prompt of 20 when it plans, and its user's next request goes to a replica that has planned."""
    prompts, outputs = zip(*lengths, strict=True)
    trace = sb.Trace.from_columns(prompt_tokens=prompts, output_tokens=outputs)
    small: dict[str, Any] = {"kv_tokens": 32, "block_size": 1, "max_model_len": 28, "watermark": 0.5}
    stepped, ahead = (
        sb.simulate(
            trace,
            system="vllm-v0",
            replicas=2,
            concurrency=users,
            timing="linear:base_ms=2",
            step=step,
            **small,
        )
        for step in (True, False)
    )
    assert (stepped.facts.requests["status"] == REFUSED).sum() == prompts.count(20)
    for what in ("requests", "rows", "extra_gaps", "stays"):
        for name, column in getattr(stepped.facts, what).items():
            assert np.array_equal(column, getattr(ahead.facts, what)[name]), (what, name)


def test_waiting_of_several_replicas_is_added_up() -> None:
    trace = sb.Trace.from_columns(arrival_s=[0, 0, 0, 0, 0, 0.05], prompt_tokens=[4] * 6, output_tokens=[10] * 6)
    result = sb.simulate(trace, replicas=2, max_num_seqs=1, timing="linear:base_ms=10", kv_tokens=64, max_model_len=32)
    queue = Queue.of(result.facts)
    seconds = 10**12
    at = np.array([seconds // 100, seconds // 20 + 1, seconds // 10 + seconds // 50])
    # Two of five run; the sixth comes during an iteration; after 0.1 s the next two have begun.
    assert queue.at(at).tolist() == [3, 3, 2]


# -- routers ---------------------------------------------------------------------------------------


class Stub:
    """An engine of which a router sees only how many are in it."""

    def __init__(self, load: int) -> None:
        self.waiting: list[int] = [0] * load
        self.running: list[int] = []
        self.scheduler = self
        self.aside: list[int] = []


def replicas_with(*loads: int) -> tuple[Replica, ...]:
    return tuple(Replica(i, Stub(load)) for i, load in enumerate(loads))  # type: ignore[arg-type]


def ask(prompt: int, *segments: tuple[str, int, int]) -> Request:
    return Request(0, "x", 0, prompt, 1, segments=segments or None)


def test_least_loaded_takes_the_first_of_several() -> None:
    assert LeastLoaded()(ask(4), replicas_with(3, 1, 1)) == 1


def test_prefix_follows_the_longest_beginning_unless_its_holder_is_far_busier() -> None:
    router = PrefixAffinity()
    assert router(ask(30, ("g:a", 0, 20), ("r:1", 0, 10)), replicas_with(1, 0, 0)) == 1
    assert router(ask(30, ("g:b", 0, 20), ("r:2", 0, 10)), replicas_with(1, 1, 0)) == 2
    assert router(ask(30, ("g:a", 0, 20), ("r:3", 0, 10)), replicas_with(0, 4, 0)) == 1, "known there"
    assert router(ask(60, ("g:a", 0, 20), ("r:4", 0, 40)), replicas_with(0, 4, 0)) == 0, "a third is not enough"
    assert router(ask(30, ("g:b", 0, 20), ("r:5", 0, 10)), replicas_with(0, 9, 17)) == 0, "too busy"
    assert router(ask(30), replicas_with(2, 1, 0)) == 2, "like nobody else's"


def test_least_loaded_beats_round_robin_on_a_bursty_trace() -> None:
    """Eight seeds, the same customers for both: the interval of the difference does not reach 0."""
    here = sb.Deployment("llama-13b", gpu="h100", kv_tokens=20_000)
    base = sb.Trace.load("sharegpt")
    gains = []
    for seed in range(8):
        trace = base.sample(600, seed).at_rate(36, burstiness=0.1, seed=seed)
        ttft = {
            router: sb.simulate(trace, here, replicas=4, router=router).metrics()["latency_s"]["ttft"]["mean"]
            for router in ("round-robin", "least-loaded")
        }
        gains.append(ttft["round-robin"] - ttft["least-loaded"])
    half = 2.365 * np.std(gains, ddof=1) / 8**0.5
    assert np.mean(gains) - half > 0


def test_prefix_routing_finds_more_in_the_cache_on_sessions() -> None:
    """The share of prompt tokens found in the cache: paired over five seeds, the interval lies above 0."""
    here = sb.Deployment("llama-3.1-8b", gpu="h100")
    shares: dict[str, list[float]] = {router: [] for router in ROUTERS}
    for seed in range(5):
        trace = generate(
            200,
            "lognormal:median=150,p99=800",
            "lognormal:median=80,p99=300",
            turns="uniform:2-8",
            think_s=2.0,
            rate_per_s=12,
            seed=seed,
        )
        for router in ROUTERS:
            result = sb.simulate(trace, here, replicas=4, router=router)
            result.check()
            cached = result.metrics()["requests"]["cached_tokens"]
            shares[router].append(cached / int(trace.prompt_tokens.sum()))
    for other in ("round-robin", "least-loaded"):
        gains = np.subtract(shares["prefix"], shares[other])
        assert gains.mean() - 2.776 * gains.std(ddof=1) / 5**0.5 > 0


def by_length(request: Request, replicas: tuple[Replica, ...]) -> int:
    """Long prompts on the last replica."""
    return len(replicas) - 1 if request.prompt_tokens > 20 else 0


def test_a_router_of_ones_own_and_samples_that_stay_together() -> None:
    trace = sb.Trace.from_columns(arrival_s=[0, 0.001, 0.002], prompt_tokens=[30, 8, 30], output_tokens=[5, 5, 5])
    result = sb.simulate(trace, replicas=3, router=by_length, **TIGHT)
    assert result.requests["replica"].tolist() == [2, 0, 2]
    assert result.config["router"].endswith(":by_length")
    result = sb.simulate(trace.with_samples(2), replicas=2, **TIGHT)
    assert result.requests["replica"].tolist() == [0, 0, 1, 1, 0, 0]


def test_by_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    (tmp_path / "ours_routes.py").write_text("def last(request, replicas):\n    return len(replicas) - 1\n")
    trace = sb.Trace.from_lengths([5, 6], [3, 3])
    assert sb.simulate(trace, replicas=2, router="ours_routes:last", **TIGHT).requests["replica"].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"router": "rounds-robin"}, "router 'rounds-robin'"),
        ({"router": 7}, "the router is 7, which cannot be called"),
        ({"router": lambda request, replicas: 2}, "the router answers 2 for request 0"),
        ({"router": lambda request, replicas: None}, "the router answers None"),
        ({"replicas": 0}, "the number of replicas is 0"),
        ({"log": sb.DecisionLog(), "step": True}, "one log cannot tell 2 replicas apart"),
        ({"timing_scale": -1}, "timing_scale is -1"),
        ({"timing_scale": 1.1}, "LinearTiming cannot be scaled"),
    ],
)
def test_what_cannot_be(more: dict[str, Any], text: str) -> None:
    with pytest.raises(sb.SimbatchError) as caught:
        sb.simulate(sb.Trace.from_lengths([5], [3]), **{"replicas": 2, **TIGHT, **more})
    assert text in str(caught.value)


def test_saved_and_loaded(tmp_path: Path) -> None:
    trace = sb.Trace.from_columns(arrival_s=[0, 0.001, 0.002], prompt_tokens=[30, 8, 30], output_tokens=[5, 5, 5])
    result = sb.simulate(trace, replicas=2, **TIGHT)
    result.save(tmp_path / "r")
    again = sb.Result.load(tmp_path / "r")
    assert again.metrics() == result.metrics()
    assert again.facts.replicas == 2
    assert again.requests.equals(result.requests)


def test_progress_counts_all_replicas() -> None:
    seen: list[tuple[int, int]] = []
    report: Callable[[int, int], None] = lambda done, total: seen.append((done, total))  # noqa: E731
    sb.simulate(sb.Trace.from_lengths([5] * 9, [3] * 9), replicas=3, on_progress=report, **TIGHT)
    assert seen[-1] == (9, 9)
    assert sorted(done for done, _ in seen) == [done for done, _ in seen]
