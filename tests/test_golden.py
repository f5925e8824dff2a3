"""Decisions of the real vLLM scheduler, reproduced exactly; and a log that is wrong anywhere is found out."""

from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import simbatch as sb
from simbatch.testing import replay_case, replay_golden

MICRO = json.loads((Path(__file__).parent / "data" / "vllm_v1_micro.json").read_text(encoding="utf-8"))
STEP_TIME_NS = MICRO["header"]["step_time_ns"]
CASES = {case["name"]: case for case in MICRO["cases"]}
SCENARIOS = (
    "a_burst a_light b_cached b_pressure b_reserve b_tiny c_chunk2048 c_chunk512 d_seqs32 d_seqs8 e_multiturn "
    "e_prefix_off e_prefix_on e_prefix_tight f_priority f_priority_mem g_longcap h_async h_async_stop i_lencap"
).split()


@pytest.mark.parametrize("name", CASES)
def test_micro_case(name: str) -> None:
    assert replay_case(CASES[name], STEP_TIME_NS) is None


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(name: str, shared: Path) -> None:
    assert replay_golden(shared / "data" / "vllm_golden" / f"{name}.s1.steps.jsonl.gz") is None


def test_every_scenario_of_the_reference_data_is_tried(shared: Path) -> None:
    found = {path.name.split(".")[0] for path in (shared / "data" / "vllm_golden").glob("*.steps.jsonl.gz")}
    assert found == set(SCENARIOS)
    assert len(CASES) == 42


def wrong(value: Any) -> Any:
    """*value* with one number or name changed."""
    if isinstance(value, int):
        return value + 1
    if not value:
        return ["r9999"]
    if isinstance(value[0], list):
        who, tokens, before = value[0]
        return [[who, tokens, before + 1], *value[1:]]
    return value[1:]


@pytest.mark.parametrize("field", "t0 t1 add sched nout pre fin tok ctx run wait kv kv_end".split())
@pytest.mark.parametrize("step", [0, 5, 16])
def test_a_wrong_field_is_reported_with_its_step(field: str, step: int) -> None:
    case = copy.deepcopy(CASES["preempt_two"])
    real = case["steps"][step][field]
    case["steps"][step][field] = wrong(real)
    told = replay_case(case, STEP_TIME_NS)
    assert told is not None
    assert told.startswith(f"step {step}, {field}: the real scheduler has {wrong(real)!r}")
    assert told.endswith(f"the simulator {real!r}")


@pytest.mark.parametrize("field", "first_sched_ns first_token_ns finish_ns output_tokens preemptions".split())
def test_a_wrong_result_is_reported_with_its_request(field: str) -> None:
    case = copy.deepcopy(CASES["preempt_two"])
    case["results"][1][field] += 1
    told = replay_case(case, STEP_TIME_NS)
    assert told is not None
    assert told.startswith(f"request r0001, {field}, step by step: the real scheduler has {case['results'][1][field]}")


def test_a_missing_or_surplus_step_is_reported() -> None:
    case = copy.deepcopy(CASES["join"])
    steps = case["steps"]
    case["steps"] = steps[:-1]
    assert replay_case(case, STEP_TIME_NS) == "step 5: the real scheduler took 5 steps, the simulator 6"
    case["steps"] = [*steps, {**steps[-1], "i": 6}]
    assert replay_case(case, STEP_TIME_NS) == "step 6: the real scheduler took 7 steps, the simulator 6"


def test_a_log_from_files(tmp_path: Path) -> None:
    case = CASES["preempt_tail"]
    config = {"kind": "config", "scenario": "tail", "engine": case["engine"], "step_time_ns": STEP_TIME_NS}
    log = tmp_path / "tail.s1.steps.jsonl.gz"
    for path, lines in (
        (log, [config, *case["steps"], *case["results"]]),
        (tmp_path / "tail.s1.requests.jsonl.gz", [config, *case["requests"]]),
    ):
        path.write_bytes(gzip.compress("\n".join(map(json.dumps, lines)).encode()))
    assert replay_golden(log) is None


def test_what_is_no_log(tmp_path: Path) -> None:
    broken = tmp_path / "x.steps.jsonl.gz"
    broken.write_bytes(b"not gzip")
    with pytest.raises(sb.UsageError, match="cannot be read as a log"):
        replay_golden(broken)
    with pytest.raises(sb.UsageError, match=r"requests\.jsonl is not the steps file of a log"):
        replay_golden(tmp_path / "x.requests.jsonl")


@pytest.mark.parametrize(
    ("name", "field", "step"), [("async_stop", "td", 2), ("lru", "hashed", 3), ("lru", "kv_end", 1)]
)
def test_fields_of_some_logs_only_are_compared_too(name: str, field: str, step: int) -> None:
    case = copy.deepcopy(CASES[name])
    real = case["steps"][step][field]
    case["steps"][step][field] = real + 1
    told = replay_case(case, STEP_TIME_NS)
    assert told == f"step {step}, {field}: the real scheduler has {real + 1}, the simulator {real}"


def test_the_watermark_is_a_share_of_all_blocks() -> None:
    """The null block counts: a quarter of 20 blocks are 5, although 19 are usable."""
    trace = sb.Trace.from_columns(id=["a", "b"], arrival_s=[0, 0], prompt_tokens=[56, 4], output_tokens=[2, 2])
    result = sb.simulate(
        trace, kv_tokens=76, block_size=4, max_model_len=64, watermark=0.25, timing="linear:base_ms=5", step=True
    )
    assert result.decisions is not None
    assert result.decisions[0]["sched"] == [["a", 56, 0]]
