"""One request in words, and two runs against each other: hand-worked, exact, and clear about what is asked wrongly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from click.testing import Result as Ran
from hypothesis import given, settings
from hypothesis import strategies as st

import simbatch as sb
from simbatch.waits import waits

STORY: dict[str, Any] = {"kv_tokens": 16, "block_size": 4, "max_model_len": 64, "enable_prefix_caching": False}
PLAIN: dict[str, Any] = {"timing": "linear:base_ms=10,token_us=1000", "async_scheduling": False}


@pytest.fixture(scope="module")
def story() -> sb.Trace:
    return sb.Trace.from_columns(
        id=["ann", "bob", "cat"], arrival_s=[0.0, 0.0, 0.02], prompt_tokens=[6, 6, 6], output_tokens=[5, 5, 2]
    )


def test_a_request_that_waits_behind_one_that_was_thrown_out(story: sb.Trace) -> None:
    told = repr(sb.explain(sb.simulate(story, **STORY, **PLAIN), "cat"))
    assert told == (
        "Request cat (6 prompt tokens, 2 output tokens) came at 20.0 ms, when 2 ran and 0 waited. It took 105\n"
        "ms; 66.7 % of all were faster.\n"
        "\n"
        "  2.00 ms     1.9 %  until the iteration in flight ended\n"
        "  54.0 ms    51.4 %  first in the queue, with too little KV memory free\n"
        "  22.0 ms    21.0 %  in the queue behind others (held back by: KV memory full 22.0 ms)\n"
        "  27.0 ms    25.7 %  running (first token 94.0 ms after it came, then 11.0 ms a token)\n"
        "\n"
        "Most of its wait (its own and that behind others) is put down to: KV memory full, 76.0 ms. More KV\n"
        "memory would have let it in sooner: a larger GPU or more of them, a smaller KV type, or memory that\n"
        "reserves less."
    )


def test_the_advice_holds_where_it_is_taken(story: sb.Trace) -> None:
    """More KV memory is what is named; with it nobody is thrown out and cat does not wait for memory."""
    tight = sb.explain(sb.simulate(story, **STORY, **PLAIN), "cat").metrics()
    roomy = sb.explain(sb.simulate(story, **{**STORY, "kv_tokens": 64}, **PLAIN), "cat").metrics()
    assert tight["cause"] == "kv"
    assert roomy["parts_s"]["kv"] == roomy["behind_s"]["kv"] == 0
    assert roomy["e2e_s"] < tight["e2e_s"]


def test_who_was_thrown_out_and_who_never_waited(story: sb.Trace) -> None:
    result = sb.simulate(story, **STORY, **PLAIN)
    assert "preempted: thrown out, until it ran again (1 time; 9 tokens computed again)" in repr(
        sb.explain(result, "bob")
    )
    ann = sb.explain(result, "ann")
    assert repr(ann).endswith("It never waited: it ran from its arrival to its end.")
    assert ann.metrics()["cause"] is None
    assert "when the engine was idle" in repr(ann)


def test_a_refused_request() -> None:
    trace = sb.Trace.from_columns(arrival_s=[0, 0], prompt_tokens=[100, 4], output_tokens=[2, 2])
    told = sb.explain(sb.simulate(trace, **STORY, **PLAIN), 0)
    assert told.metrics()["status"] == "refused"
    assert "It was refused" in " ".join(repr(told).split())
    assert "e2e_s" not in told.metrics()


def test_a_request_that_is_not_there(story: sb.Trace) -> None:
    result = sb.simulate(story, **STORY, **PLAIN)
    with pytest.raises(sb.UsageError, match=r"unknown request 'bobb'\. Did you mean bob\?"):
        sb.explain(result, "bobb")
    many = sb.simulate(sb.Trace.load("sharegpt").head(30), sb.Deployment(), timing="linear:base_ms=5")
    with pytest.raises(sb.UsageError, match=r"no request '99' among its 30, from '0' to '29'"):
        sb.explain(many, 99)


def test_the_command_line_says_the_same(simbatch: Callable[..., Ran]) -> None:
    saved = simbatch("run", "sharegpt", "--requests", "20", "--rate", "50", "--timing", "linear:base_ms=5", "-o", "a")
    assert saved.exit_code == 0, saved.output
    done = simbatch("report", "a", "--explain", "7")
    assert (done.exit_code, done.stdout) == (0, repr(sb.explain(sb.Result.load("a"), 7)) + "\n")
    wrong = simbatch("report", "a", "--explain", "seven")
    assert wrong.exit_code == 2
    assert wrong.stderr.startswith("Error: unknown request 'seven'")


# -- two runs ------------------------------------------------------------------------------------


def test_who_won_and_why(story: sb.Trace) -> None:
    """With room for everybody ann shares her iterations, bob stays in, and cat need not wait."""
    tight = sb.simulate(story, **STORY, **PLAIN)
    roomy = sb.simulate(story, **{**STORY, "kv_tokens": 64}, **PLAIN)
    found = sb.diff(tight, roomy, names=("16 tokens", "64 tokens"))
    frame = (found.frame().set_index("id").drop(columns=["prompt_tokens", "output_tokens"]) * 1000).round(9)
    assert frame.loc["bob", ["before_s", "change_s", "preempted_s"]].tolist() == [98, -21, -22]
    assert frame.loc["cat", ["change_s", "kv_s", "next_iteration_s", "running_s"]].tolist() == [-72, -76, 0, 4]
    assert (frame["change_s"] < 0).tolist() == [False, True, True]
    told = found.metrics()
    assert [one["id"] for one in told["most_gained"]] == ["cat", "bob"]
    assert [one["id"] for one in told["most_lost"]] == ["ann"]
    text = repr(found)
    assert text.startswith("From 16 tokens to 64 tokens, 3 requests that finished in both took -")
    assert "2 (66.7 %) are faster" in text
    assert "KV memory full -38.0 ms" in text


@settings(max_examples=25, deadline=None)
@given(
    rate=st.sampled_from([20, 100]),
    tokens=st.sampled_from([3000, 20_000]),
    systems=st.tuples(*[st.sampled_from(["vllm", "vllm-v0", "orca-max", "static", "naive"])] * 2),
)
def test_parts_add_up_to_the_change_of_every_request(rate: int, tokens: int, systems: tuple[str, str]) -> None:
    trace = sb.Trace.load("sharegpt").head(60).at_rate(rate, seed=0)
    a, b = (
        sb.simulate(trace, system=system, kv_tokens=tokens, max_model_len=2048, timing="linear:base_ms=6,token_us=20")
        for system in systems
    )
    found = sb.diff(a, b)
    assert (sum(found.parts_ps.values()) == found.change_ps).all()
    assert np.array_equal(found.before_ps + found.change_ps, waits(b.facts).latency_ps)
    back = sb.diff(b, a)
    assert (back.change_ps == -found.change_ps).all()
    assert back.metrics()["winners"]["requests"] == found.metrics()["losers"]["requests"]


def test_a_run_against_itself(story: sb.Trace) -> None:
    result = sb.simulate(story, **STORY, **PLAIN)
    assert repr(sb.diff(result, result)) == "From a to b, 3 requests that finished in both took exactly as long."


def test_runs_of_other_requests(story: sb.Trace) -> None:
    result = sb.simulate(story, **STORY, **PLAIN)
    other = sb.Trace.from_columns(id=["ann", "dan"], arrival_s=[0, 0], prompt_tokens=[5, 6], output_tokens=[5, 5])
    with pytest.raises(sb.UsageError, match="ann has 6 prompt_tokens in one and 5 in the other"):
        sb.diff(result, sb.simulate(other, **STORY, **PLAIN))
    strangers = sb.Trace.from_columns(id=["eve"], arrival_s=[0], prompt_tokens=[5], output_tokens=[5])
    with pytest.raises(sb.UsageError, match="no id is in both"):
        sb.diff(result, sb.simulate(strangers, **STORY, **PLAIN))
    with pytest.raises(sb.UsageError, match="takes two results, not a Trace"):
        sb.diff(result, story)  # type: ignore[arg-type]


def test_who_finished_in_one_alone_is_counted_and_left_out(story: sb.Trace) -> None:
    all_served = sb.simulate(story, **STORY, **PLAIN)
    none_of_bob = sb.simulate(
        sb.Trace.from_columns(id=["ann"], arrival_s=[0], prompt_tokens=[6], output_tokens=[5]), **STORY, **PLAIN
    )
    told = sb.diff(all_served, none_of_bob)
    assert told.metrics()["finished_only_in_a"] == 2
    assert "2 finished in a alone and are left out." in repr(told)
