"""Closed loops: a turn comes when its answer has, users keep their number, and stepping meets the same world.

Times are coarse and memory is tight, so that answers, arrivals and boundaries tie, and preemption is common.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simbatch as sb
from simbatch.errors import UsageError
from simbatch.units import PS_PER_MS

SYSTEMS = ("naive", "static", "orca-max", "vllm-v0", "sarathi", "vllm")
COARSE = "linear:base_ms=1"


def run(trace: sb.Trace, **options: Any) -> sb.Result:
    result = sb.simulate(trace, **{"timing": COARSE, "kv_tokens": 64, "max_model_len": 32, "block_size": 4, **options})
    result.check()
    return result


def column(result: sb.Result, name: str) -> list[int]:
    """A column of the requests, times in whole milliseconds."""
    values: list[int] = result.facts.requests[name].tolist()
    return [value // PS_PER_MS for value in values] if name.endswith("_ps") else values


def in_system(result: sb.Result) -> list[tuple[int, int]]:
    """(time, requests that have come and not ended), after everything of that instant; refused ones left out."""
    requests = result.facts.requests
    served = requests["finished_ps"] >= 0
    moves = [(time, 1) for time in requests["arrival_ps"][served].tolist()]
    moves += [(time, -1) for time in requests["finished_ps"][served].tolist()]
    level, levels = 0, []
    for time, group in groupby(sorted(moves), key=lambda move: move[0]):
        level += sum(step for _, step in group)
        levels.append((time, level))
    return levels


def equal(one: sb.Result, other: sb.Result) -> None:
    for what in ("requests", "rows", "extra_gaps", "stays"):
        for name, values in getattr(one.facts, what).items():
            assert np.array_equal(values, getattr(other.facts, what)[name]), (what, name)
    assert one.facts.peak_held_tokens == other.facts.peak_held_tokens


def test_two_users_take_the_next_request_when_theirs_has_ended() -> None:
    trace = sb.Trace.from_lengths([1, 1, 1, 1], [3, 1, 4, 1])
    result = run(trace, concurrency=2, async_scheduling=False)
    # Both begin at 0. The second is done after 1 ms and takes the third request; the first after 3 ms, and the fourth.
    assert column(result, "arrival_ps") == [0, 0, 1, 3]
    assert column(result, "finished_ps") == [3, 1, 5, 4]
    assert in_system(result) == [(0, 2), (PS_PER_MS, 2), (3 * PS_PER_MS, 2), (4 * PS_PER_MS, 1), (5 * PS_PER_MS, 0)]
    # With two batches in flight, the next one is planned already when an answer comes.
    ahead = run(trace, concurrency=2, async_scheduling=True)
    assert column(ahead, "arrival_ps") == [0, 0, 1, 3]
    assert column(ahead, "finished_ps") == [3, 1, 6, 5]
    assert result.facts.warnings == []
    assert result.metrics()["config"]["concurrency"] == 2


def test_a_turn_waits_for_its_answer_and_for_its_user_and_for_its_time() -> None:
    trace = sb.Trace.from_columns(
        session=["a", "b", "a", "a"],
        arrival_s=[0.002, 0.002, 0.002, 0.02],
        think_s=[9, 9, 0.003, 0.001],
        prompt_tokens=[1, 1, 5, 9],
        output_tokens=[2, 5, 2, 1],
    )
    result = run(trace, async_scheduling=False)
    # The first of a ends at 4; 3 ms later its second comes, and ends at 9; its third is due at 10, but comes at 20.
    assert column(result, "arrival_ps") == [2, 2, 7, 20]
    assert column(result, "finished_ps") == [4, 7, 9, 21]


def test_users_of_sessions_go_on_to_the_next_session() -> None:
    trace = sb.Trace.from_columns(
        session=["a", "a", "b", "c"],
        arrival_s=[5, 5, 6, 7],
        think_s=[0, 0.002, 0, 0],
        prompt_tokens=[1, 3, 1, 1],
        output_tokens=[1, 1, 1, 1],
    )
    result = run(trace, concurrency=1, async_scheduling=False)
    assert column(result, "arrival_ps") == [0, 3, 4, 5]
    assert column(result, "finished_ps") == [1, 4, 5, 6]


def test_a_refused_request_has_ended() -> None:
    trace = sb.Trace.from_lengths([40, 1, 40, 40, 1], [1, 1, 1, 1, 1])
    result = run(trace, concurrency=1, async_scheduling=False)
    assert column(result, "arrival_ps") == [0, 0, 1, 1, 1]
    assert column(result, "finished_ps")[1::3] == [1, 2]
    assert result.metrics()["requests"]["refused"] == 3


def test_parallel_samples_of_a_turn_come_together_and_all_have_to_end() -> None:
    trace = sb.Trace.from_columns(
        session=["a", "a"], n=[2, 1], prompt_tokens=[1, 1], output_tokens=[3, 1], max_tokens=[3, 1]
    )
    result = run(trace)
    assert column(result, "arrival_ps") == [0, 0, 3]


def test_the_first_session_waits_for_its_time_and_none_begins_early() -> None:
    trace = sb.Trace.from_columns(
        session=["", "", ""], arrival_s=[1, 2, 3], prompt_tokens=[1, 1, 1], output_tokens=[1, 1, 1]
    )
    assert trace.session is None
    same = trace.at_rate(1000, seed=1)
    assert same.arrival_ps is not None
    one = run(same)
    together = sb.Trace.from_columns(
        session=["a", "b", "c"], arrival_ps=same.arrival_ps, prompt_tokens=[1, 1, 1], output_tokens=[1, 1, 1]
    )
    equal(one, run(together))


def test_no_users_are_refused() -> None:
    with pytest.raises(UsageError, match=r"^the concurrency is 0, but a closed loop has at least 1 user\. Give a"):
        run(sb.Trace.from_lengths([1], [1]), concurrency=0)


traces = st.lists(
    st.tuples(
        st.sampled_from(["", "", "a", "b", "c"]),
        st.sampled_from([0, 0, 1, 2, 3, 6]),
        st.sampled_from([0, 0, 1, 2, 5]),
        st.integers(1, 14),
        st.integers(1, 12),
        st.sampled_from([1, 1, 1, 2]),
    ),
    min_size=1,
    max_size=10,
)


def made(rows: list[tuple[str, int, int, int, int, int]], samples: bool) -> sb.Trace:
    session, arrival, think, prompt, output, n = zip(*rows, strict=True)
    return sb.Trace.from_columns(
        session=session,
        arrival_ps=[ms * PS_PER_MS for ms in sorted(arrival)],
        think_ps=[ms * PS_PER_MS for ms in think],
        prompt_tokens=prompt,
        output_tokens=output,
        n=n if samples else None,
    )


@pytest.mark.parametrize("system", SYSTEMS)
@settings(max_examples=60, deadline=None)
@given(
    rows=traces,
    users=st.sampled_from([None, None, 1, 2, 5]),
    kv_tokens=st.sampled_from([32, 48, 400]),
    seqs=st.sampled_from([1, 2, 8]),
    ahead=st.booleans(),
    samples=st.booleans(),
    order=st.booleans(),
    replicas=st.sampled_from([1, 1, 2, 3]),
)
def test_stepping_meets_the_same_world_and_nobody_is_early(
    system: str,
    rows: list[tuple[str, int, int, int, int, int]],
    users: int | None,
    kv_tokens: int,
    seqs: int,
    ahead: bool,
    samples: bool,
    order: bool,
    replicas: int,
) -> None:
    trace = made(rows, samples and system in ("vllm", "vllm-v0"))
    options: dict[str, Any] = {"system": system, "kv_tokens": kv_tokens, "concurrency": users, "replicas": replicas}
    if system in ("vllm", "vllm-v0", "sarathi"):
        options["max_num_seqs"] = seqs
    if system == "vllm":
        options["async_scheduling"] = ahead
    if system == "vllm" and order:  # first-come order hides mistakes that another shows
        options["scheduler"] = sb.Continuous(order=lambda sequence: sequence.prompt_tokens + sequence.output_tokens)
        options["async_scheduling"] = False
    if samples and system == "vllm-v0":
        options["max_num_seqs"] = 8
    fast, plain = run(trace, **options), run(trace, step=True, **options)
    equal(fast, plain)
    _nobody_is_early(trace, fast, users)


def _nobody_is_early(trace: sb.Trace, result: sb.Result, users: int | None) -> None:
    if trace.n is not None and int(trace.n.max()) > 1:
        return
    requests = result.facts.requests
    ended: dict[str, int] = {}
    for row, session in enumerate(trace.session or [""] * len(trace)):
        arrival_ps = int(requests["arrival_ps"][row])
        assert trace.arrival_ps is not None
        least = int(trace.arrival_ps[row]) if users is None else 0
        if session in ended:
            assert trace.think_ps is not None
            least = max(least, ended[session] + int(trace.think_ps[row]))
            assert arrival_ps == least
        assert arrival_ps >= least
        if session:
            finished_ps = int(requests["finished_ps"][row])
            ended[session] = finished_ps if finished_ps >= 0 else arrival_ps


@pytest.mark.parametrize("system", SYSTEMS)
@settings(max_examples=30, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(1, 14), st.integers(1, 12)), min_size=1, max_size=12), users=st.integers(1, 6)
)
def test_a_closed_loop_keeps_its_users_busy_until_the_last_ones(
    system: str, rows: list[tuple[int, int]], users: int
) -> None:
    prompt, output = zip(*rows, strict=True)
    result = run(sb.Trace.from_lengths(prompt, output), system=system, concurrency=users)
    assert result.metrics()["requests"]["finished"] == len(rows)
    last_ps = int(result.facts.requests["arrival_ps"].max())
    for time, level in in_system(result):
        # When the last requests have come, nobody takes the place of those who go.
        if time < last_ps:
            assert level == users
        else:
            assert level <= users
