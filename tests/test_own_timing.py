"""A timing of somebody's own says in one sentence what is wrong with its answer, and never sends time backwards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import simbatch as sb
from simbatch.own_timing import looked_at
from simbatch.timing import FOREVER, LinearTiming


class Says:
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def progression(self, iteration: Any) -> Any:
        return self.answer

    def describe(self) -> dict[str, Any]:
        return {"kind": "estimated", "name": "says"}


def simulated(timing: Any) -> sb.Result:
    trace = sb.Trace.from_lengths([10, 20], [30, 5])
    return sb.simulate(trace, timing=timing, kv_tokens=1600, max_model_len=100)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (None, r"Says.progression\(\) returned None. It must return three whole numbers"),
        ((10, 0), r"returned \(10, 0\). It must"),
        ((10.0, 0, 5), r"returned \(10.0, 0, 5\). It must"),
        ((10, 0, 0), r"returned \(10, 0, 0\). It must return .* at least 1, that holds"),
        ((0, 0, 5), "says that one iteration of 30 tokens takes 0 ps. An iteration must take at least 1 ps"),
        ((100, -10, 11), "says that the last of 11 iterations of 30 tokens takes 0 ps"),
        ((100, -10, FOREVER), "a progression may hold only for as long as each does"),
    ],
)
def test_a_wrong_answer_is_told(answer: Any, says: str) -> None:
    with pytest.raises(sb.PolicyError, match=says):
        simulated(Says(answer))


def test_whole_numbers_of_numpy_are_whole_numbers() -> None:
    theirs = simulated(Says((np.int64(10**10), np.int32(7), np.int64(9))))
    ours = simulated(Says((10**10, 7, 9)))
    for name, column in ours.facts.rows.items():
        assert theirs.facts.rows[name].tolist() == column.tolist()


def test_built_in_timings_are_not_asked_twice() -> None:
    timing = LinearTiming(base_ms=1)
    assert looked_at(timing) is timing
