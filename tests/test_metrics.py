"""Metrics of a story worked by hand, each number from its definition; what is missing is None."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from simbatch.errors import UsageError
from simbatch.facts import Facts, facts_from
from simbatch.limits import LatencyLimits, limits_met
from simbatch.metrics import metrics
from simbatch.show.summary import summary_text
from simbatch.show.text import WIDTH
from simbatch.units import PS_PER_S

# Anna (prompt 4, output 3) arrives at 0 s and Ben (prompt 2, output 1) at 1 s, while Anna's prompt
# runs; Carl could never fit and Dora never got her turn.
#
#   0 s to 2 s    Anna's prompt                     running 1
#   2 s to 5 s    Anna's 2nd token, Ben's prompt    running 2
#   5 s to 6 s    Anna's 3rd token                  running 1
#   then idle


def story(**others: Any) -> Facts:
    s = PS_PER_S
    return facts_from(
        {
            "arrival_ps": [0, s, s, 5 * s],
            "first_scheduled_ps": [0, 2 * s, -1, -1],
            "first_token_ps": [2 * s, 5 * s, -1, -1],
            "finished_ps": [6 * s, 5 * s, -1, -1],
            "prompt_tokens": [4, 2, 99, 3],
            "output_tokens": [3, 1, 0, 0],
            "preemptions": [1, 0, 0, 0],
            "recomputed_tokens": [5, 0, 0, 0],
            "cached_tokens": [0, 1, 0, 0],
            "status": [1, 1, 2, 0],
        },
        {
            "start_ps": [0, 2 * s, 5 * s],
            "first_ps": [2 * s, 3 * s, s],
            "running": [1, 2, 1],
            "waiting": [0, 0, 1],
            "tokens": [4, 3, 1],
            "sequences": [1, 2, 1],
            "prefill_tokens": [4, 2, 0],
            "gaps": [0, 1, 1],
            "live": [4, 7, 6],
            "internal": [4, 1, 2],
            "cause": [0, 0, 1],
        },
        capacity_tokens=16,
        ids=["anna", "ben", "carl", "dora"],
        **others,
    )


def test_requests_and_rates() -> None:
    found = metrics(story())
    assert found["requests"] == {
        "arrived": 4,
        "finished": 2,
        "refused": 1,
        "unfinished": 1,
        "preemptions": 1,
        "recomputed_tokens": 5,
        "cached_tokens": 1,
    }
    assert found["simulation"]["makespan_s"] == 6.0
    assert found["throughput"] == {
        "requests_per_s": 2 / 6,
        "output_tokens_per_s": 4 / 6,
        "total_tokens_per_s": 10 / 6,
    }


def test_latencies() -> None:
    latency = metrics(story())["latency_s"]
    # Anna waited 2 s for her first token, Ben 4 s: percentiles lie between the two.
    assert latency["ttft"] == pytest.approx(
        {"mean": 3.0, "p50": 3.0, "p90": 3.8, "p95": 3.9, "p99": 3.98, "max": 4.0}, rel=1e-15
    )
    assert set(latency["tpot"].values()) == {2.0}, "only Anna has gaps: (6 - 2) / 2"
    assert latency["itl"] == pytest.approx(
        {"mean": 2.0, "p50": 2.0, "p90": 2.8, "p95": 2.9, "p99": 2.98, "max": 3.0}, rel=1e-15
    )
    assert (latency["e2e"]["mean"], latency["e2e"]["max"]) == (5.0, 6.0)
    assert (latency["queue"]["mean"], latency["queue"]["max"]) == (0.5, 1.0)
    assert (latency["normalized"]["mean"], latency["normalized"]["max"]) == (3.0, 4.0)


def test_means_are_weighted_by_time() -> None:
    found = metrics(story(gpu_memory_share=0.25))
    assert found["batch"] == {"running_mean": (2 + 6 + 1) / 6, "running_max": 2, "waiting_mean": 1 / 6}
    assert found["bound_by"] == {"kv": 1 / 6, "max_num_seqs": 0.0, "token_budget": 0.0, "nothing": 5 / 6}
    kv = found["kv"]
    assert kv["live_share"] == pytest.approx((4 * 2 + 7 * 3 + 6) / 6 / 16)
    assert kv["internal_share"] == pytest.approx((4 * 2 + 1 * 3 + 2) / 6 / 16)
    shares = [kv[f"{name}_share"] for name in ("live", "reserved", "internal", "external", "free")]
    assert math.fsum(shares) == pytest.approx(1.0)
    assert (kv["capacity_tokens"], kv["peak_share"], kv["gpu_memory_share"]) == (16, 0.5, 0.25)


def test_idle_time_is_left_out_of_means() -> None:
    s = PS_PER_S
    rows = {"start_ps": [0, 100 * s], "first_ps": [s, s], "running": [1, 3], "live": [2, 4]}
    found = metrics(facts_from({}, rows, capacity_tokens=4))
    assert found["batch"]["running_mean"] == 2.0
    assert found["kv"]["live_share"] == 0.75


def test_goodput() -> None:
    facts = story()
    assert metrics(facts)["goodput"] is None
    # Ben's first token took 4 s; his single token has no time between tokens.
    assert metrics(facts, LatencyLimits(ttft_s=3.9, tpot_s=2.0))["goodput"] == {
        "requests_per_s": 1 / 6,
        "share": 0.25,
        "percentile": 90.0,
        "limits_s": {"ttft": 3.9, "tpot": 2.0},
        "share_by_limit": {"ttft": 0.25, "tpot": 0.5},
    }
    # Both are good here: Carl, who was refused, and Dora, who waits, are not.
    at_limit = metrics(facts, LatencyLimits(ttft_s=4.0, tpot_s=2.0, e2e_s=6.0, percentile=50))
    assert at_limit["goodput"]["share"] == 0.5
    assert limits_met(at_limit)
    assert not limits_met(metrics(facts, LatencyLimits(ttft_s=4.0, percentile=50.1)))


def test_limits_are_met_at_exactly_the_share_asked() -> None:
    s = PS_PER_S
    times = [s] * 93 + [9 * s] * 7
    facts = facts_from(
        {"finished_ps": times, "first_token_ps": times, "output_tokens": [1] * 100, "status": [1] * 100}, {}
    )
    assert limits_met(metrics(facts, LatencyLimits(ttft_s=1.0, percentile=93)))
    assert not limits_met(metrics(facts, LatencyLimits(ttft_s=1.0, percentile=94)))


def test_requiring_nothing_is_wrong_usage() -> None:
    with pytest.raises(UsageError) as caught:
        limits_met(metrics(story()))
    assert str(caught.value) == (
        "no limit was given, so none can be required. Add --ttft, --tpot or --e2e, such as --ttft 2s."
    )


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        ({"ttft_s": 0.0}, "the limit ttft=0 s is not above 0 s. Give a time such as 500ms or 2s."),
        ({"e2e_s": math.nan}, "the limit e2e=nan s is not above 0 s. Give a time such as 500ms or 2s."),
        (
            {"percentile": 101.0},
            "the percentile 101 is not in 0..100. Give a share of requests, such as 95.",
        ),
    ],
)
def test_limits_that_cannot_be(limits: dict[str, float], text: str) -> None:
    with pytest.raises(UsageError) as caught:
        LatencyLimits(**limits)
    assert str(caught.value) == text


def test_too_few_requests_for_the_percentile() -> None:
    def warned(n: int, limits: LatencyLimits) -> list[str]:
        return metrics(facts_from({"status": [0] * n}, {}), limits)["warnings"]

    assert warned(100, LatencyLimits(ttft_s=1.0)) == []
    assert warned(99, LatencyLimits(ttft_s=1.0)) == [
        "percentile 90 rests on 99 requests, 9.9 of them beyond it. "
        "Simulate at least 100 (--requests 100) before trusting it."
    ]
    assert warned(999, LatencyLimits(ttft_s=1.0, percentile=99)) != []
    assert warned(1000, LatencyLimits(ttft_s=1.0, percentile=99)) == []
    assert warned(5, LatencyLimits(percentile=99)) == [], "no limit, nothing asked"


def test_cost() -> None:
    assert metrics(story())["cost"] is None
    cost = metrics(story(price_usd_per_hour=36.0))["cost"]
    assert cost == pytest.approx(
        {
            "usd_per_hour": 36.0,
            "usd_per_million_output_tokens": 0.06 / 4 * 1e6,
            "usd_per_million_tokens": 0.06 / 10 * 1e6,
        }
    )
    assert metrics(story(price_usd_per_hour=36.0), price_usd_per_hour=72.0)["cost"]["usd_per_hour"] == 72.0


def test_a_warmup_is_cut_between_iterations() -> None:
    """From 1 s on: Anna is gone, and the iteration that had begun by then."""
    found = metrics(story(), warmup_s=0.5)
    assert found["requests"]["arrived"] == 3
    assert found["latency_s"]["ttft"]["max"] == found["latency_s"]["ttft"]["p50"] == 4.0
    assert found["batch"]["running_mean"] == (2 * 3 + 1) / 4
    assert found["simulation"]["makespan_s"] == 4.0
    assert found["simulation"]["warmup_s"] == 0.5


def test_a_warmup_cuts_rows_and_gaps_alike() -> None:
    """Ten iterations of 10, 11, ... 19 ps; those that begin at 46 ps or later last 14 ps and more."""
    facts = facts_from(
        {"arrival_ps": [0, 10**12], "status": [0, 0]},
        {"start_ps": [0], "iterations": [10], "first_ps": [10], "increment_ps": [1], "gaps": [2], "running": [2]},
        extra_gaps=[(145, 19, -1), (10, 10, -1), (60, 20, 1), (66, 20, 1)],
    )
    itl = metrics(facts, warmup_s=33e-12)["latency_s"]["itl"]
    # Of the row: 14 .. 19 twice (33 ps is where the fourth begins), less one 19; 20 ps from 40 and from 46.
    kept = sorted([*[gap for gap in range(13, 20) for _ in range(2)][:-1], 20, 20])
    assert itl["mean"] == pytest.approx(sum(kept) / len(kept) * 1e-12)
    assert itl["max"] == pytest.approx(20e-12)


@pytest.mark.parametrize(
    ("warmup_s", "text"),
    [
        (
            6.0,
            "a warm-up of 6.00 s leaves no request: the last one arrives 5.00 s after the first. "
            "Cut less, or simulate more requests.",
        ),
        (-1.0, "a warm-up of -1 s cannot be cut. Give a time of 0 s or more."),
    ],
)
def test_warmups_that_cannot_be(warmup_s: float, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        metrics(story(), warmup_s=warmup_s)
    assert str(caught.value) == text


def test_a_run_in_which_nothing_happened() -> None:
    found = metrics(facts_from({}, {}), LatencyLimits(ttft_s=1.0), price_usd_per_hour=2.0)
    assert found["verdict"] == "offline"
    assert found["throughput"]["requests_per_s"] is None
    assert found["cost"]["usd_per_million_tokens"] is None
    assert found["goodput"]["share"] is None
    assert not limits_met(found)
    assert found["kv"]["live_share"] is None
    assert "NaN" not in json.dumps(found)
    assert "OFFLINE" in summary_text(found)


def test_plain_numbers_only() -> None:
    """json writes numpy's float64 as a number and stumbles over its int64; neither may be there."""

    def types(value: Any) -> set[type]:
        if isinstance(value, dict):
            return set().union(*map(types, value.values()))
        return set().union(*map(types, value)) if isinstance(value, list) else {type(value)}

    config = {"a": (1, np.int64(2)), 3: LatencyLimits(), "policy": LatencyLimits, "lengths": np.arange(2)}
    found = metrics(story(price_usd_per_hour=3.0, config=config), LatencyLimits(ttft_s=2.0))
    limits = "simbatch.limits:LatencyLimits"
    assert found["config"] == {"a": [1, 2], "3": limits, "policy": limits, "lengths": [0, 1]}
    assert types(found) <= {int, float, str, type(None)}
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_summary_in_the_order_in_which_people_ask() -> None:
    config = {
        "trace": {"name": "sharegpt", "transforms": ["at_rate(rate_per_s=20, burstiness=1, seed=0)"], "rule": "first"},
        "timing": {"kind": "estimated", "name": "roofline"},
        "seed": 0,
        "simbatch": "0.1.0",
        "command": "simbatch run sharegpt --rate 20 " + "--max-num-seqs 4 " * 9,
    }
    facts = story(
        config=config, price_usd_per_hour=3.0, gpu_memory_share=0.5, warnings=["a word of " + "warning " * 20]
    )
    text = summary_text(metrics(facts, LatencyLimits(ttft_s=3.0)))
    wanted = [
        "STABLE: the queue does not keep growing",
        "The head of the queue was held back by KV memory 16.7 % of the time.",
        "4 requests: 2 finished, 1 refused, 1 unfinished.",
        "Limits NOT MET: 25.0 % of requests keep every limit (90 % required).",
        "TTFT           3.00 s   3.00 s   3.80 s   3.90 s   3.98 s   4.00 s   3.00 s   25.0 %",
        "throughput  0.333 requests/s",
        "goodput     0.167 requests/s",
        "cost        $3.00 per hour",
        "KV memory   16 tokens · 50.0 % of GPU memory · at most 50.0 % held",
        "preemptions 1 · tokens computed again 5 · found in the prefix cache 1",
        "trace       sharegpt",
        "timing      estimated · roofline",
        "repeat      simbatch run sharegpt",
        "warning     percentile 90 rests on 4 requests",
    ]
    places = [text.find(part) for part in wanted]
    assert -1 not in places, wanted[places.index(-1)]
    assert places == sorted(places)
    assert max(map(len, text.splitlines())) <= WIDTH
