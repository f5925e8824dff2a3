"""A result keeps its laws, survives the disk exactly, and says which law a broken run breaks."""

from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simbatch.errors import SimbatchError, UsageError
from simbatch.facts import Facts, facts_from
from simbatch.metrics import plain
from simbatch.result import Result

CAPACITY_TOKENS = 1000


def served(requests: list[tuple[int, int, int]], seats: int, increment_ps: int) -> Facts:
    """A plain engine: first come first served, *seats* at once, whole prompts beside decodes.

    *requests* are (gap to the one before in ps, prompt, output tokens). An iteration takes 3 ps
    plus one per sequence; equal ones are one row, in which each takes *increment_ps* longer.
    """
    arrival = np.cumsum([gap for gap, _, _ in requests]).tolist()
    known = [[a, p, o, -1, -1, -1, 0] for a, (_, p, o) in zip(arrival, requests, strict=True)]
    queue, running, now = list(range(len(known))), [], 0
    rows: list[dict[str, int]] = []
    while queue or running:
        if not running:
            now = max(now, arrival[queue[0]])
        fresh = []
        while queue and arrival[queue[0]] <= now and len(running) < seats:
            fresh.append(queue.pop(0))
            running.append(fresh[-1])
            known[fresh[-1]][3] = now
        old = len(running) - len(fresh)
        left = min(known[i][2] - known[i][6] for i in running)
        first = 3 + len(running)
        k = 0
        while True:  # until somebody comes who could be seen, joins or leaves
            took = first + k * increment_ps
            k += 1
            now += took
            if fresh or k == left or any(arrival[i] <= now for i in queue[:1]):
                break
            if any(now - took < arrival[i] <= now for i in queue):
                break
        start = now - (k * first + increment_ps * k * (k - 1) // 2)
        live = sum(known[i][1] + known[i][6] for i in running)
        rows.append(
            {
                "start_ps": start,
                "iterations": k,
                "first_ps": first,
                "increment_ps": increment_ps,
                "running": len(running),
                "waiting": sum(arrival[i] <= start for i in queue),
                "tokens": old + sum(known[i][1] for i in fresh),
                "sequences": len(running),
                "gaps": old,
                "live": live,
                "cause": 2 if queue and arrival[queue[0]] <= start else 0,
            }
        )
        for i in list(running):
            known[i][6] += k
            if i in fresh:
                known[i][4] = now
            if known[i][6] == known[i][2]:
                known[i][5] = now
                running.remove(i)
    columns = np.array(known, dtype=np.int64).reshape(-1, 7).T
    names = ("arrival_ps", "prompt_tokens", "output_tokens", "first_scheduled_ps", "first_token_ps", "finished_ps")
    return facts_from(
        {**dict(zip(names, columns, strict=False)), "status": np.ones(len(known))},
        {name: [row[name] for row in rows] for name in rows[0]},
        capacity_tokens=CAPACITY_TOKENS,
        config={"trace": {"name": "made up", "transforms": ("none",)}, "seed": 0},
        wall_s=0.1,
        events=7,
    )


REQUESTS = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=9)
A_RUN = [(0, 4, 6), (5, 2, 1), (0, 3, 9), (40, 1, 5), (200, 2, 3)]


@given(REQUESTS, st.integers(1, 4), st.integers(0, 2))
@settings(deadline=None)
def test_lawful_runs_pass(requests: list[tuple[int, int, int]], seats: int, increment_ps: int) -> None:
    Result(served(requests, seats, increment_ps)).check()


BROKEN: list[tuple[str, Any, str]] = [
    ("request without finish", lambda f: f.requests["finished_ps"].__setitem__(0, -1), "finish time exactly"),
    ("order of times", lambda f: f.requests["first_token_ps"].__setitem__(1, 10**6), "first_token_ps <= finished_ps"),
    ("a status nobody knows", lambda f: f.requests["status"].__setitem__(0, 3), "arrived = unfinished"),
    ("a stay outside too many", lambda f: setattr(f, "stays", stay(1)), "request 1 was preempted 0 times and out 1"),
    ("memory leaks", lambda f: f.rows["free"].__setitem__(2, 3), r"external \+ free = capacity: row 2"),
    ("mean memory leaks", lambda f: f.rows["live_mean"].__setitem__(1, 9e9), "mean parts of KV memory .* row 1"),
    ("memory below 0", lambda f: (f.rows["live"].__isub__(5), f.rows["free"].__iadd__(5)), "row 0: live -1"),
    ("peak", lambda f: setattr(f, "peak_held_tokens", 2000), "held <= peak <= capacity"),
    ("rows overlap", lambda f: f.rows["start_ps"].__setitem__(0, 2), "rows do not overlap: row 0 ends at"),
    ("no time", lambda f: f.rows["first_ps"].__setitem__(2, 0), "lasts at least 1 ps: row 2"),
    ("iterations", lambda f: setattr(f, "iterations", 3), r"iterations = sum over rows: 3 against \d+"),
    ("a token lost", lambda f: f.requests["output_tokens"].__isub__(1), r"first tokens \+ gaps: 19 against 24"),
    ("a gap lost", lambda f: setattr(f, "extra_gaps", gap(8, -1) | {}), "first tokens"),
    ("a gap of another length", lambda f: setattr(f, "extra_gaps", swapped()), "sum of gaps, in ps"),
    ("somebody not counted", lambda f: f.rows["waiting"].__imul__(0), "Little's law"),
    (
        "arrival after the end",
        lambda f: [f.requests[n].__iadd__(10**7) for n in f.requests if n[-3:] == "_ps"],
        "r 4|0",
    ),
]


def gap(gap_ps: int, count: int) -> dict[str, Any]:
    return facts_from({}, {}, extra_gaps=[(0, gap_ps, count)]).extra_gaps


def stay(request: int) -> dict[str, Any] | None:
    return facts_from({}, {}, stays=[(request, 8, 9)]).stays


def swapped() -> dict[str, Any]:
    return facts_from({}, {}, extra_gaps=[(0, 8, 1), (0, 9, -1)]).extra_gaps


@pytest.mark.parametrize(("broken", "breaks", "law"), BROKEN, ids=[name for name, _, _ in BROKEN])
def test_a_broken_run_is_named(broken: str, breaks: Any, law: str) -> None:
    facts = served(A_RUN, 1, 0)
    Result(facts).check()
    breaks(facts)
    with pytest.raises(SimbatchError, match=law):
        Result(facts).check()


def test_unfinished_and_refused_requests_are_lawful() -> None:
    facts = facts_from(
        {
            "arrival_ps": [0, 0, 0],
            "first_scheduled_ps": [0, -1, -1],
            "first_token_ps": [4, -1, -1],
            "output_tokens": [3, 0, 0],
            "status": [0, 2, 0],
        },
        {"start_ps": [0, 4], "iterations": [1, 2], "first_ps": [4, 4], "running": [1, 1], "gaps": [0, 1]},
    )
    Result(facts).check()


@given(requests=REQUESTS, seats=st.integers(1, 3))
@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_saved_and_loaded_is_equal(tmp_path: Path, requests: list[tuple[int, int, int]], seats: int) -> None:
    result = Result(served(requests, seats, 1))
    folder = tmp_path / "run"
    result.save(folder)
    again = Result.load(folder)
    assert again.metrics() == result.metrics()
    assert_same(again.facts, result.facts)
    assert json.loads((folder / "metrics.json").read_text()) == result.metrics()


def assert_same(one: Facts, other: Facts) -> None:
    for group in ("requests", "rows", "extra_gaps", "stays"):
        a, b = getattr(one, group) or {}, getattr(other, group) or {}
        assert list(a) == list(b)
        for name in a:
            assert a[name].tolist() == b[name].tolist(), name
            assert a[name].dtype == b[name].dtype, name
    for name in vars(one):
        if name not in ("requests", "rows", "extra_gaps", "stays"):
            assert plain(getattr(one, name)) == plain(getattr(other, name)), name


def test_awkward_values_survive_the_disk(tmp_path: Path) -> None:
    facts = facts_from(
        {
            "arrival_ps": [0, 2**62, 1],
            "status": [0, 1, 2],
            "finished_ps": [-1, 2**63 - 1, -1],
            "output_tokens": [0, 1, 0],
        },
        {
            "start_ps": [2**61],
            "first_ps": [7],
            "increment_ps": [-1],
            "iterations": [3],
            "gaps": [4],
            "live": [1],
            "live_mean": [1 / 3],
        },
        extra_gaps=[(5, 6, -3)],
        stays=[(2, 5, -1), (2, 2**62, 2**62 + 1)],
        capacity_tokens=7,
        ids=["001", "", 'a "quoted", id\nNA'],
        warnings=["mind this"],
        decisions=[{"step": 1}],
        gpu_memory_share=0.1,
        price_usd_per_hour=2.5,
        events=np.int64(4),
    )
    Result(facts).save(tmp_path)
    assert_same(Result.load(tmp_path).facts, facts)
    with gzip.open(tmp_path / "requests.csv.gz", "rt") as file:
        header = file.readline()
    assert header.startswith("id,arrival_s,first_scheduled_s,")
    assert pd.read_csv(tmp_path / "requests.csv.gz")["status"].tolist() == ["unfinished", "finished", "refused"]


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        Result(served(A_RUN, 2, 1)).save(tmp_path / folder)
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()


def test_folders_that_are_no_run(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is not a saved run: facts\.json is missing in it\. Give a folder that"):
        Result.load(tmp_path)
    folder = tmp_path / "run"
    Result(served(A_RUN, 2, 1)).save(folder)
    steps = folder / "steps.csv.gz"
    whole = steps.read_bytes()
    steps.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UsageError, match=r"steps\.csv\.gz cannot be read"):
        Result.load(folder)
    steps.write_bytes(gzip.compress(gzip.decompress(whole).replace(b"cause", b"because")))
    with pytest.raises(UsageError, match=r"steps\.csv\.gz is not as it was saved: 'cause' is missing"):
        Result.load(folder)
    steps.write_bytes(whole)
    single = json.loads((folder / "facts.json").read_text())
    for wrong in ({**single, "replicas": "two"}, {name: single[name] for name in single if name != "replicas"}):
        (folder / "facts.json").write_text(json.dumps(wrong))
        with pytest.raises(UsageError, match=r"facts\.json is not as it was saved: 'replicas' is missing or is not"):
            Result.load(folder)
    (folder / "facts.json").write_text('{"format": 99}')
    with pytest.raises(UsageError, match=r"has format 99, this version reads 1\. Run it again"):
        Result.load(folder)


def test_frames() -> None:
    result = Result(served(A_RUN, 1, 0))
    assert list(result.requests)[:10] == [
        "id",
        "arrival_s",
        "prompt_tokens",
        "output_tokens",
        "first_scheduled_s",
        "first_token_s",
        "finished_s",
        "preemptions",
        "cached_tokens",
        "recomputed_tokens",
    ]
    assert result.requests["status"].tolist() == ["finished"] * 5
    assert result.requests["finished_s"].tolist() == (result.facts.requests["finished_ps"] / 1e12).tolist()
    steps = result.steps
    wanted = ["start_s", "iterations", "end_s", "running", "waiting", "tokens", "prefill_tokens", "context_tokens"]
    assert list(steps)[:13] == [*wanted, "live", "reserved", "internal", "external", "free"]
    assert set(steps["held_back"]) == {"nothing", "max_num_seqs"}
    assert (steps["end_s"] - steps["start_s"]).sum() > 0
    assert (steps[["live", "reserved", "internal", "external", "free"]].sum(axis=1) == CAPACITY_TOKENS).all()


def test_what_never_happened_is_nan() -> None:
    frame = Result(facts_from({"arrival_ps": [5], "status": [2]}, {})).requests
    assert frame.loc[0, "status"] == "refused"
    assert frame[["first_scheduled_s", "first_token_s", "finished_s"]].isna().all(axis=None)


def test_asking_changes_nothing_but_the_warnings() -> None:
    result = Result(served(A_RUN, 2, 1))
    before = copy.deepcopy(result.facts)
    answer = result.metrics(ttft_s=1.0)
    answer["config"]["seed"] = "spoilt"
    assert result.metrics(ttft_s=1.0)["config"]["seed"] == 0
    assert_same(result.facts, before)
    assert result.warnings == answer["warnings"]
    assert "percentile 90 rests on 5 requests" in result.warnings[0]


def test_it_shows_itself_as_its_summary() -> None:
    result = Result(served(A_RUN, 2, 1))
    assert repr(result).startswith(result.metrics()["verdict"].upper())
    assert result._repr_html_().startswith("<pre")
    assert "&lt;" not in repr(result)
