"""Who is at the head of the queue, and who is outside since when: recorded alike however the run is taken."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import simbatch as sb

STORY: dict[str, Any] = {"kv_tokens": 16, "block_size": 4, "max_model_len": 64, "enable_prefix_caching": False}
BOTH = pytest.mark.parametrize("step", [True, False], ids=["stepping", "running ahead"])


def run(step: bool, **options: Any) -> sb.Result:
    """Ann and bob do not both fit to the end, and cat comes when memory is full."""
    trace = sb.Trace.from_columns(
        id=["ann", "bob", "cat"],
        arrival_s=[0.0, 0.0, 0.02],
        prompt_tokens=[6, 6, 6],
        output_tokens=[5, 5, 2],
    )
    return sb.simulate(trace, timing="linear:base_ms=10,token_us=1000", step=step, **STORY, **options)


def told(result: sb.Result) -> list[tuple[float, str, str]]:
    """(start in ms, head of the queue, why it was held back), where either changes."""
    rows, ids = result.facts.rows, [*result.facts.ids, "nobody"]
    causes = result.steps["held_back"]
    lines = [(at / 1e9, ids[who], why) for at, who, why in zip(rows["start_ps"], rows["head"], causes, strict=True)]
    before = [None, *(line[1:] for line in lines)]
    return [line for last, line in zip(before, lines, strict=False) if last != line[1:]]


@BOTH
def test_a_stay_lasts_from_the_iteration_thrown_out_of_to_the_one_taken_back_into(step: bool) -> None:
    result = run(step, async_scheduling=False)
    assert told(result) == [
        (0, "nobody", "nothing"),
        (22, "cat", "kv"),
        (46, "bob", "kv"),  # out of blocks: bob, the newest, waits in front of cat
        (68, "cat", "kv"),  # ann has left, bob is back and has three of four blocks
        (98, "nobody", "nothing"),
    ]
    assert result.facts.stays is not None
    stays = {name: column.tolist() for name, column in result.facts.stays.items()}
    assert stays == {"request": [1], "out_ps": [46 * 10**9], "back_ps": [68 * 10**9]}


def test_every_preemption_is_a_stay_and_stays_of_one_request_do_not_overlap() -> None:
    trace = sb.Trace.load("sharegpt").head(300).at_rate(100, seed=0)
    result = sb.simulate(trace, kv_tokens=6000, max_model_len=4096, timing="linear:base_ms=6,token_us=20")
    stays = pd.DataFrame(result.facts.stays)
    assert len(stays) == result.requests["preemptions"].sum() > 20
    for _, own in stays.groupby("request"):
        assert (own["out_ps"] <= own["back_ps"]).all()
        assert (own["back_ps"].iloc[:-1].to_numpy() <= own["out_ps"].iloc[1:].to_numpy()).all()


def test_a_run_saved_before_they_were_recorded_loads_without_them(tmp_path: Path) -> None:
    result = run(step=False)
    result.save(tmp_path)
    (tmp_path / "stays.csv.gz").unlink()
    steps = pd.read_csv(tmp_path / "steps.csv.gz", dtype=str, na_filter=False).drop(columns="head")
    (tmp_path / "steps.csv.gz").write_bytes(gzip.compress(steps.to_csv(index=False).encode()))
    old = sb.Result.load(tmp_path)
    assert old.facts.stays is None
    assert "head" not in old.facts.rows
    assert old.metrics() == result.metrics()
