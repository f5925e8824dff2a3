"""Sweeps: the same frame wherever they run, nothing lost when they end early, and no wrong answer found again."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import simbatch as sb
from simbatch.answers import kept
from simbatch.answers.parallel import run_all

SMALL: dict[str, Any] = {"timing": "linear:base_ms=10,token_us=100", "kv_tokens": 8_000, "max_model_len": 4096}
GRID: dict[str, Any] = {"rate_per_s": [2, 8], "system": ["vllm", "orca-max"], "seed": [0, 1]}
TRACE = sb.Trace.load("sharegpt").head(40)

NOTEBOOK = """
import os, signal
import simbatch as sb

class Shortest(sb.Continuous):
    def __init__(self):
        super().__init__(order=lambda sequence: sequence.prompt_tokens)

class Killed(sb.Continuous):
    '''Ends the process it runs in, as often as *mark* has letters.'''
    def __init__(self, mark):
        super().__init__()
        self.mark = mark

    def plan(self, waiting, running, memory, now_ps):
        with open(self.mark) as file:
            left = file.read()
        if left:
            with open(self.mark, "w") as file:
                file.write(left[1:])
            os.kill(os.getpid(), signal.SIGKILL)
        return super().plan(waiting, running, memory, now_ps)
"""


def notebook() -> dict[str, Any]:
    """Classes as a notebook defines them: in a module that no other process can import."""
    cells: dict[str, Any] = {"__name__": "__main__"}
    exec(NOTEBOOK, cells)
    return cells


def swept(**more: Any) -> pd.DataFrame:
    return sb.sweep(TRACE, **{"grid": GRID, "n_jobs": 1, **SMALL, **more})


def test_a_row_is_a_run() -> None:
    frame = swept(ttft_s=0.5)
    assert list(frame.columns[:3]) == ["rate_per_s", "system", "seed"]
    assert frame["rate_per_s"].tolist() == [2] * 4 + [8] * 4
    assert frame["seed"].tolist() == [0, 1] * 4
    assert (frame["failed"] == "").all()
    alone = sb.simulate(TRACE.at_rate(8, seed=1), system="orca-max", seed=1, **SMALL).metrics(ttft_s=0.5)
    row = frame.iloc[7]
    assert row["ttft_mean_s"] == alone["latency_s"]["ttft"]["mean"]
    assert row["good_share"] == alone["goodput"]["share"]
    assert row["events"] == alone["simulation"]["events"]
    assert frame.attrs["interrupted"] is False


def test_points_may_be_listed_and_deployments_varied_and_failures_have_their_row() -> None:
    points = [
        {"gpu": "h100", "max_num_seqs": 64, "rate_per_s": 5},
        {"gpu": "l4", "rate_per_s": 5},
        {"gpu": "h100", "tensor_parallel_size": 2, "rate_per_s": 5, "replicas": 2},
    ]
    frame = sb.sweep(TRACE, sb.Deployment("llama-13b"), grid=points, n_jobs=1)
    assert frame["gpu"].tolist() == ["h100", "l4", "h100"]
    assert frame["failed"].tolist()[::2] == ["", ""]
    assert "24" in frame["failed"][1]
    assert frame["kv_capacity_tokens"][2] > frame["kv_capacity_tokens"][0]


def test_a_function_makes_the_trace_of_a_point() -> None:
    frame = sb.sweep(
        lambda rate_per_s, seed: TRACE.sample(20, seed).at_rate(rate_per_s, seed=seed),
        grid={"rate_per_s": [4], "seed": [1, 2]},
        n_jobs=1,
        **SMALL,
    )
    assert frame["arrived"].tolist() == [20, 20]
    assert frame["ttft_mean_s"][0] != frame["ttft_mean_s"][1]


def test_one_worker_two_and_a_policy_of_a_notebook_give_the_same_frame() -> None:
    grid = {**GRID, "scheduler": [notebook()["Shortest"]()]}
    one, two = (swept(grid=grid, n_jobs=n_jobs) for n_jobs in (1, 2))
    assert one["scheduler"].tolist() == ["Shortest"] * 8
    pd.testing.assert_frame_equal(one, two)


@pytest.mark.filterwarnings("ignore")  # what a cluster warns of is its own affair
def test_a_dask_cluster_of_two_processes_gives_the_same_frame() -> None:
    distributed = pytest.importorskip("distributed", reason="needs simbatch[dask]")
    import joblib

    grid = {**GRID, "scheduler": [notebook()["Shortest"]()]}
    cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None)
    with cluster, distributed.Client(cluster), joblib.parallel_config("dask"):
        there = swept(grid=grid, n_jobs=-1)
    pd.testing.assert_frame_equal(swept(grid=grid), there)


# -- ends early ------------------------------------------------------------------------------------


def test_a_killed_worker_costs_nothing_but_its_own_run(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    mark.write_text("x")
    points: list[dict[str, Any]] = [{"seed": seed, "rate_per_s": 5} for seed in range(5)]
    points[2]["scheduler"] = notebook()["Killed"](str(mark))
    frame = swept(grid=points, n_jobs=2)
    assert len(frame) == 5
    assert (frame["failed"] == "").all()
    assert mark.read_text() == ""


def test_workers_that_die_again_and_again_are_an_error(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    mark.write_text("x" * 100)
    with pytest.raises(sb.SimbatchError, match=r"killed 3 times in a row, with 1 of 1 runs left"):
        swept(grid=[{"rate_per_s": 5, "scheduler": notebook()["Killed"](str(mark))}], n_jobs=2)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_interruption_keeps_what_is_finished_and_a_second_start_goes_on(tmp_path: Path, n_jobs: int) -> None:
    def until_three(done: int, total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    first = swept(folder=tmp_path, n_jobs=n_jobs, on_progress=until_three)
    assert first.attrs["interrupted"] is True
    assert len(first) == 3
    assert len(list(tmp_path.glob("*.json"))) == 3
    seen: list[int] = []
    whole = swept(folder=tmp_path, n_jobs=n_jobs, on_progress=lambda done, total: seen.append(done))
    assert seen == [3, 4, 5, 6, 7, 8]
    pd.testing.assert_frame_equal(whole, swept())


def test_a_full_disk_is_said_and_leaves_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace, left = os.replace, iter([True, True, False])

    def full(source: Any, target: Any) -> None:
        if not next(left):
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(kept.os, "replace", full)
    with pytest.raises(sb.SimbatchError, match="No space left on device"):
        swept(folder=tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    monkeypatch.undo()
    assert len(swept(folder=tmp_path)) == 8


def test_a_file_that_is_not_whole_counts_as_absent(tmp_path: Path) -> None:
    frame = swept(folder=tmp_path)
    victim = next(tmp_path.glob("*.json"))
    victim.write_text(victim.read_text()[:20])
    pd.testing.assert_frame_equal(swept(folder=tmp_path), frame)


def test_another_question_never_finds_this_answer(tmp_path: Path) -> None:
    def files(**more: Any) -> int:
        before = len(list(tmp_path.iterdir()))
        swept(**{"grid": {"rate_per_s": [5]}, "folder": tmp_path, **more})
        return len(list(tmp_path.iterdir())) - before

    assert files() == 1
    assert files() == 0
    assert files(max_num_seqs=7) == 1
    assert files(ttft_s=1.0) == 1
    shortest = notebook()["Shortest"]
    assert files(scheduler=shortest()) == 1
    assert files(scheduler=notebook()["Shortest"]()) == 0
    other = sb.sweep(TRACE.head(39), grid={"rate_per_s": [5]}, folder=tmp_path, n_jobs=1, **SMALL)
    assert other["arrived"][0] == 39


@pytest.mark.parametrize(
    ("grid", "text"),
    [
        ({}, "the grid has no point"),
        ([], "the grid has no point"),
        ({"rate_per_s": []}, "the grid has no point"),
        ({"rate_per_s": 5}, "rate_per_s is 5, which is no list"),
        ({"system": "vllm"}, "system is 'vllm', which is no list"),
    ],
)
def test_grids_that_are_none(grid: Any, text: str) -> None:
    with pytest.raises(sb.UsageError) as caught:
        swept(grid=grid)
    assert text in str(caught.value)


def test_jobs_come_as_they_are_finished() -> None:
    assert dict(run_all(pow, [(2, 3), (3, 2)], n_jobs=1)) == {0: 8, 1: 9}
    assert dict(run_all(pow, [(2, 3), (3, 2)], n_jobs=2)) == {0: 8, 1: 9}


@pytest.mark.parametrize("where", [{"grid": {"max_num_seq": [1, 2]}}, {"max_num_seq": 2}])
def test_a_name_that_nothing_has_is_told_before_anything_runs(where: dict[str, Any]) -> None:
    with pytest.raises(sb.UsageError, match=r"unknown name in the grid 'max_num_seq'. Did you mean max_num_seqs"):
        swept(**where)
