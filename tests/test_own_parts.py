"""Parts of one's own need not be as strict as ours: numpy's numbers count as numbers, and copies keep what they kept.

True of the source and of a compiled core alike.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import simbatch as sb

TRACE = sb.Trace.from_columns(
    arrival_ps=np.sort(np.random.default_rng(0).integers(0, 1500, 40)) * 10**9,
    prompt_tokens=np.random.default_rng(1).integers(1, 120, 40),
    output_tokens=np.random.default_rng(2).integers(1, 60, 40),
)
TIGHT: dict[str, Any] = {
    "timing": "linear:base_ms=5,token_us=100,context_ns=1000",
    "kv_tokens": 1600,
    "max_model_len": 400,
    "async_scheduling": False,
    "enable_prefix_caching": False,
}


def starts(**parts: Any) -> list[int]:
    result = sb.simulate(TRACE, **{**TIGHT, **parts})
    result.check()
    found: list[int] = result.facts.rows["start_ps"].tolist()
    return found


def most(kind: Callable[[int], Any]) -> dict[str, Any]:
    class Most(sb.Continuous):
        def most_tokens(self, waiting: Any, running: Any) -> Any:
            return kind(64)

    return {"scheduler": Most()}


def finds(kind: Callable[[int], Any]) -> dict[str, Any]:
    class Finds(sb.PagedMemory):
        def cached_tokens(self, sequence: sb.Sequence) -> Any:
            return kind(0)

    return {"memory": Finds(100)}


def blocks(kind: Callable[[int], Any]) -> dict[str, Any]:
    return {"memory": sb.PagedMemory(kind(100), kind(16))}


def one_by_one(kind: Callable[[int], Any]) -> dict[str, Any]:
    class OneByOne(sb.Scheduler):
        def plan(self, waiting: Any, running: Any, memory: Any, now_ps: int) -> sb.Plan:
            plan = sb.Plan(waiting, running, memory)
            plan.decode(kind(0))
            for sequence in list(running.partial):
                plan.serve(sequence, kind(sequence.known - sequence.computed))
            if waiting and not len(running):
                head = waiting.head()
                plan.admit(head, kind(max(1, head.known // 2)), kind(0), kind(head.known))
            return plan

    return {"scheduler": OneByOne(), "memory": sb.PagedMemory(1000)}


@pytest.mark.parametrize("parts", [most, finds, blocks, one_by_one])
def test_whole_numbers_of_numpy_count_as_whole_numbers(parts: Callable[[Any], dict[str, Any]]) -> None:
    assert starts(**parts(np.int64)) == starts(**parts(int))


def test_a_truth_of_numpy_is_true() -> None:
    class Sure(sb.PagedMemory):
        def take(self, *what: Any, **more: Any) -> Any:
            return np.bool_(super().take(*what, **more))

        def grow(self, spare: int = 0) -> Any:
            return np.bool_(super().grow(spare))

        def fits(self, *what: Any, **more: Any) -> Any:
            return np.bool_(super().fits(*what, **more))

    class Asked(sb.Continuous):
        asks_every_iteration = 1  # type: ignore[assignment]

    assert starts(memory=Sure(100)) == starts()
    assert starts(scheduler=Asked()) == starts(scheduler=sb.Continuous())


def test_an_iterator_that_runs_empty_is_told_so() -> None:
    class Picky(sb.Continuous):
        def victim(self, running: Any) -> sb.Sequence:
            return next(sequence for sequence in running if sequence.prompt_tokens > 10**6)

    for ahead in (False, True):
        with pytest.raises(sb.PolicyError, match=r"ran empty \(StopIteration\) in Picky"):
            starts(scheduler=Picky(), kv_tokens=320, async_scheduling=ahead)


def test_a_victim_that_does_not_run_is_told_so() -> None:
    class Astray(sb.Continuous):
        def victim(self, running: Any) -> sb.Sequence:
            return sb.Sequence(next(TRACE.requests()), 400)

    with pytest.raises(sb.PolicyError, match=r"preempts <0: .*which does not run"):
        starts(scheduler=Astray(), kv_tokens=320)


class Property(sb.PagedMemory):
    caches = property(lambda self: False)  # type: ignore[assignment]


class OfTheClass(sb.PagedMemory):
    shared_tokens = 0


class Slotted(sb.PagedMemory):
    __slots__ = ("seen",)

    def __init__(self, num_blocks: int) -> None:
        super().__init__(num_blocks)
        self.seen = [1]


class Notes(sb.PagedMemory):
    def __init__(self, num_blocks: int) -> None:
        super().__init__(num_blocks)
        self.seen = [1]


@pytest.mark.parametrize("again", [copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))])
def test_copies_keep_what_a_memory_of_ones_own_keeps(again: Callable[[Any], Any]) -> None:
    assert starts(memory=again(Property(100))) == starts()
    kept = again(OfTheClass(100))
    OfTheClass.shared_tokens = 5
    assert kept.shared_tokens == 5
    OfTheClass.shared_tokens = 0
    for memory in (Slotted(100), Notes(100)):
        copied = again(memory)
        assert (copied.seen, copied.num_blocks, copied.free_tokens) == ([1], 100, 1600)
        assert copied.seen is not memory.seen


def test_a_policy_may_look_ahead_on_copies() -> None:
    class LooksAhead(sb.Continuous):
        def admit(self, sequence: sb.Sequence, tokens: int, running: Any, memory: Any) -> bool:
            there, own, mine = copy.deepcopy((running, memory, sequence))
            fits: bool = own.take(mine, mine.known)
            assert len(there) == len(running)
            assert mine is not sequence
            assert fits == memory.room(sequence, sequence.known)
            return fits

    assert starts(scheduler=LooksAhead()) == starts(scheduler=sb.Continuous())
