"""Decisions of vLLM's V0 scheduler, the one of the PagedAttention paper, reproduced exactly.

Both of its modes (prompts before decodes; chunked prefill) and both of its ways to preempt
(recompute; swap). That a log with one wrong field is found out is tested in `test_golden`.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from simbatch.testing import replay_case, replay_golden

MICRO = json.loads((Path(__file__).parent / "data" / "vllm_v0_micro.json").read_text(encoding="utf-8"))
STEP_TIME_NS = MICRO["header"]["step_time_ns"]
CASES = {case["name"]: case for case in MICRO["cases"]}
SCENARIOS = "v0_busy v0_chunked v0_light v0_recompute v0_swap".split()


@pytest.mark.parametrize("name", CASES)
def test_micro_case(name: str) -> None:
    assert replay_case(CASES[name], STEP_TIME_NS) is None


def test_no_case_is_missing() -> None:
    rules = "prefill_first budget watermark preempt_early recompute swap ignored chunked".split()
    assert list(CASES) == [f"v0_{rule}" for rule in rules]


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(name: str, shared: Path) -> None:
    assert replay_golden(shared / "data" / "vllm_v0_golden" / f"{name}.s1.steps.jsonl.gz") is None


@pytest.mark.parametrize(
    ("name", "step", "field", "wrong"),
    [
        ("v0_prefill_first", 2, "phase", "decode"),
        ("v0_swap", 6, "swap_out", 3),
        ("v0_swap", 7, "swap_in", 0),
        ("v0_swap", 6, "swapped", 2),
        ("v0_swap", 6, "cpu", 5),
        ("v0_ignored", 0, "ignored", []),
    ],
)
def test_what_only_v0_logs_is_compared_too(name: str, step: int, field: str, wrong: object) -> None:
    case = copy.deepcopy(CASES[name])
    real = case["steps"][step][field]
    case["steps"][step][field] = wrong
    told = f"step {step}, {field}: the real scheduler has {wrong!r}, the simulator {real!r}"
    assert replay_case(case, STEP_TIME_NS) == told
