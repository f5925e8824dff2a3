"""What a trace hands out, and what its methods change: a new trace each time, said in `transforms`."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest

from simbatch.errors import UsageError
from simbatch.request import Request
from simbatch.trace import Trace, list_traces
from simbatch.units import PS_PER_S


def small(**more: object) -> Trace:
    columns = {"arrival_s": [0.5, 1.0, 2.0], "prompt_tokens": [10, 20, 30], "output_tokens": [1, 2, 3], **more}
    return Trace.from_columns(columns, name="small")


def test_requests_are_what_was_asked_in_order() -> None:
    trace = small(max_tokens=[None, 7, 8], priority=[0, -1, 2], id=["a", "b", "c"])
    assert list(trace.requests()) == [
        Request(0, "a", 500_000_000_000, 10, 1, None, 0),
        Request(1, "b", 1_000_000_000_000, 20, 2, 7, -1),
        Request(2, "c", 2_000_000_000_000, 30, 3, 8, 2),
    ]


def test_requests_without_times_arrive_at_once_and_are_numbered() -> None:
    trace = Trace.from_lengths([5, 6], [7, 8])
    assert trace.arrival_ps is None
    assert list(trace.requests()) == [Request(0, "0", 0, 5, 7), Request(1, "1", 0, 6, 8)]


def test_requests_hold_plain_integers() -> None:
    trace = small(max_tokens=[4, 5, 6], priority=[1, 2, 3]).at_rate(5)
    for request in trace.requests():
        for value in (request.index, request.arrival_ps, request.prompt_tokens, request.output_tokens):
            assert type(value) is int
        assert type(request.max_tokens) is int
        assert type(request.priority) is int
        assert type(request.id) is str


def test_requests_of_some_rows_across_chunks() -> None:
    trace = Trace.from_lengths(range(1, 10_001), [1] * 10_000)
    assert [r.prompt_tokens for r in trace.requests(4090, 4100)] == list(range(4091, 4101))
    assert [r.index for r in trace.requests(9_998)] == [9_998, 9_999]
    assert sum(1 for _ in trace.requests()) == 10_000
    assert list(trace.requests(3, 3)) == []


def test_at_rate_replaces_times_and_keeps_the_order() -> None:
    trace = small()
    faster = trace.at_rate(4.0, burstiness=2.0, seed=3)
    assert faster.transforms == ("at_rate(rate_per_s=4, burstiness=2, seed=3)",)
    assert faster.prompt_tokens.tolist() == [10, 20, 30]
    assert faster.arrival_ps is not None
    assert faster.arrival_ps.tolist() != [500_000_000_000, 1_000_000_000_000, 2_000_000_000_000]
    assert trace.transforms == ()
    assert trace.arrival_ps is not None
    assert trace.arrival_ps.tolist() == [500_000_000_000, 1_000_000_000_000, 2_000_000_000_000]


def test_time_scaled_multiplies_every_gap() -> None:
    trace = small(think_s=[0, 1, 2]).time_scaled(2)
    assert trace.arrival_ps is not None
    assert trace.think_ps is not None
    assert trace.arrival_ps.tolist() == [1 * PS_PER_S, 2 * PS_PER_S, 4 * PS_PER_S]
    assert trace.think_ps.tolist() == [0, 2 * PS_PER_S, 4 * PS_PER_S]
    assert trace.transforms == ("time_scaled(2)",)


def test_time_scaled_is_exact_beyond_what_a_float_holds() -> None:
    odd = 2**62 + 1
    trace = Trace.from_columns(arrival_ps=[odd], prompt_tokens=[1], output_tokens=[1])
    assert trace.time_scaled(1).arrival_ps == odd
    assert trace.time_scaled(0.001).arrival_ps == round(odd / 1000)


def test_head_takes_the_first_rows() -> None:
    trace = small(id=["a", "b", "c"]).head(2)
    assert [(r.id, r.prompt_tokens) for r in trace.requests()] == [("a", 10), ("b", 20)]
    assert trace.transforms == ("head(2)",)
    assert small().head(3) == small()


def test_head_repeats_rows_under_new_ids_and_goes_on_in_time() -> None:
    trace = small(id=["a", "b", "c"], session=["x", "x", ""], turn=[0, 1, 0]).head(7)
    assert trace.ids == ("a", "b", "c", "a#2", "b#2", "c#2", "a#3")
    assert trace.session == ("x", "x", "", "x#2", "x#2", "", "x#3")
    # 1.5 s from first to last, 0.75 s from one to the next: a round starts every 2.25 s.
    assert trace.arrival_ps is not None
    assert (trace.arrival_ps / PS_PER_S).tolist() == [0.5, 1.0, 2.0, 2.75, 3.25, 4.25, 5.0]
    assert [r.index for r in trace.requests()] == list(range(7))


def test_new_ids_do_not_meet_old_ones() -> None:
    trace = small(id=["a", "a#2", "c"]).head(4)
    assert trace.ids == ("a", "a#2", "c", "a##2")


def test_repeated_single_request_keeps_its_distance() -> None:
    trace = Trace.from_columns(arrival_s=[2], prompt_tokens=[1], output_tokens=[1]).head(3)
    assert trace.arrival_ps is not None
    assert (trace.arrival_ps // PS_PER_S).tolist() == [2, 4, 6]


def test_sample_draws_rows_and_keeps_the_clock() -> None:
    trace = Trace.from_columns(
        arrival_s=range(100),
        prompt_tokens=range(1, 101),
        output_tokens=range(101, 201),
        id=[f"r{k}" for k in range(100)],
    )
    drawn = trace.sample(150, seed=5)
    assert len(drawn) == 150
    assert (drawn.output_tokens - drawn.prompt_tokens == 100).all()
    assert drawn.arrival_ps is not None
    assert (drawn.arrival_ps // PS_PER_S).tolist() == list(range(150))
    assert drawn.ids is not None
    assert len(set(drawn.ids)) == 150
    assert drawn.prompt_tokens.tolist() != sorted(drawn.prompt_tokens.tolist())
    assert drawn == trace.sample(150, seed=5)
    assert (drawn.prompt_tokens != trace.sample(150, seed=6).prompt_tokens).any()
    assert drawn.transforms == ("sample(150, seed=5)",)


def test_a_trace_cannot_be_changed() -> None:
    trace = small()
    with pytest.raises(ValueError, match="read-only"):
        trace.prompt_tokens[0] = 5
    with pytest.raises(AttributeError):
        trace.name = "other"  # type: ignore[misc]


def test_what_it_was_made_of_may_change() -> None:
    lengths = np.array([1, 2, 3])
    trace = Trace.from_lengths(lengths, lengths)
    lengths[0] = 9
    assert trace.prompt_tokens.tolist() == [1, 2, 3]


def test_a_trace_survives_pickling() -> None:
    trace = small(hash_ids=[[1, 2], None, [3]], hash_block_tokens=[8, None, 16]).at_rate(3)
    assert pickle.loads(pickle.dumps(trace)) == trace


def test_columns_that_say_nothing_are_none() -> None:
    trace = small(max_tokens=[None] * 3, session=[""] * 3, prefix_group=[None] * 3)
    assert trace.max_tokens is None
    assert trace.session is None
    assert trace.prefix == {}
    assert trace == small()


def test_shows_itself_in_a_line_and_a_page() -> None:
    trace = Trace.from_columns(small().frame(), name="<b>")
    line = "<Trace <b>: 3 requests, 20.0 prompt and 2.00 output tokens on average, 1.33 requests/s over 1.50 s>"
    assert repr(trace) == line
    assert "<caption>Trace &lt;b&gt;</caption>" in trace._repr_html_()
    assert repr(Trace.from_lengths([1], [1])).endswith(
        "1 request, 1.00 prompt and 1.00 output tokens on average, no arrival times>"
    )


def test_describe_says_what_a_result_rests_on() -> None:
    described = small().head(2).describe()
    sha256 = described.pop("sha256")
    assert len(sha256) == 64
    assert described == {
        "name": "small",
        "format": "simbatch",
        "rule": None,
        "rows": 2,
        "dropped": 0,
        "ignored_columns": [],
        "prompt_tokens_mean": 15.0,
        "output_tokens_mean": 1.5,
        "span_s": 0.5,
        "rate_per_s": 2.0,
        "transforms": ["head(2)"],
    }


def test_the_hash_tells_traces_apart() -> None:
    assert small().sha256 == small().sha256
    assert small().sha256 != small(priority=[0, 1, 0]).sha256


def test_frame_has_units_in_its_columns_and_gaps_where_nothing_was_given() -> None:
    frame = small(max_tokens=[None, 7, 8], priority=[-1, 0, 1], think_s=[0, 0.25, 0]).frame()
    assert list(frame) == ["id", "arrival_s", "prompt_tokens", "output_tokens", "max_tokens", "priority", "think_s"]
    assert frame["arrival_s"].tolist() == [0.5, 1.0, 2.0]
    assert frame["max_tokens"].isna().tolist() == [True, False, False]
    assert frame["priority"].tolist() == [-1, 0, 1]
    assert Trace.from_columns(frame) == small(
        id=["0", "1", "2"], max_tokens=[None, 7, 8], priority=[-1, 0, 1], think_s=[0, 0.25, 0]
    )


def test_from_columns_takes_a_frame_with_times() -> None:
    frame = pd.DataFrame({"arrival_s": [0.0, 0.1], "prompt_tokens": [3, 4], "output_tokens": [5.0, 6.0]})
    trace = Trace.from_columns(frame)
    assert trace.arrival_ps is not None
    assert trace.arrival_ps.tolist() == [0, 100_000_000_000]
    assert trace.output_tokens.tolist() == [5, 6]


def test_the_bundled_trace_is_listed() -> None:
    (row,) = [row for row in list_traces() if row["name"] == "sharegpt"]
    assert row["rows"] == 6870


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"prompt_tokens": [1]}, "columns: there is no column output_tokens (found: prompt_tokens). Give one."),
        (
            {"prompt_tokens": [1, 2], "output_tokens": [1]},
            "columns: output_tokens has 1 rows, but prompt_tokens has 2. Give equally many.",
        ),
        ({"prompt_tokens": [], "output_tokens": []}, "columns: there are no rows. A trace needs at least one request."),
        (
            {"prompt_tokens": [1, 1.5], "output_tokens": [1, 1]},
            "columns row 1: prompt_tokens is 1.5, but a whole number is expected. Rows count from 0; correct this one.",
        ),
        (
            {"prompt_tokens": np.array([3, 0]), "output_tokens": [1, 1]},
            "columns row 1: prompt_tokens is 0, but a request has at least 1. Rows count from 0; correct this one.",
        ),
        (
            {"prompt_tokens": [1, 1], "output_tokens": [1, 1], "arrival_s": [2, 1]},
            "columns row 1: arrival_s is less than in the row before, but times cannot go back. "
            "Rows count from 0; correct this one.",
        ),
        (
            {"prompt_tokens": [1], "output_tokens": [1], "arrival_s": [1e9]},
            "columns: the last arrival passes the clock's end (106 days). Count times from the first one.",
        ),
        (
            {"prompt_tokens": [1, 1], "output_tokens": [1, 1], "id": ["a", "a"]},
            "columns row 1: the id 'a' occurs before, but every request needs its own. "
            "Rows count from 0; correct this one.",
        ),
        (
            {"prompt_tokens": [1], "output_tokens": [1], "arrivals": [1]},
            "unknown trace column 'arrivals'. Did you mean arrival_s?",
        ),
    ],
)
def test_columns_that_make_no_sense_are_refused(columns: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as error:
        Trace.from_columns(columns)
    assert str(error.value) == message


def test_changes_that_make_no_sense_are_refused() -> None:
    timeless = Trace.from_lengths([1], [1])
    with pytest.raises(UsageError) as error:
        timeless.time_scaled(2)
    assert str(error.value) == "lengths has no arrival times to scale. Give a rate instead, such as --rate 5."
    with pytest.raises(UsageError) as error:
        small().time_scaled(0)
    assert str(error.value) == "times cannot be scaled by 0. Give a positive number: 2 halves the rate."
    with pytest.raises(UsageError) as error:
        small().time_scaled(1e8)
    assert str(error.value) == "small: scaled by 100000000, times pass the clock's end (106 days). Scale by less."
    with pytest.raises(UsageError) as error:
        small().head(0)
    assert str(error.value) == "0 requests were asked for, but a trace has at least 1. Ask for more."
    with pytest.raises(UsageError) as error:
        small(session=["a", "a", "b"]).sample(2)
    assert str(error.value) == "small has sessions, which drawing rows would tear apart. Use its first rows instead."
    with pytest.raises(UsageError) as error:
        small(arrival_s=[0, 1e6, 2e6]).head(20)
    assert str(error.value) == (
        "small: 20 requests at its pace pass the clock's end (106 days). Ask for fewer, or give a rate."
    )
