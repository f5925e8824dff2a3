"""`check_scheduler` lets sound policies pass and catches broken ones with a world a person can read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import simbatch as sb
from simbatch.growth import Growth
from simbatch.memory import ContiguousMemory, CopyOnWriteMemory, OwnPrefixMemory, PrefixCachingMemory
from simbatch.scheduler.queue import Queue
from simbatch.testing import check_memory, check_scheduler, check_timing
from simbatch.timing import FOREVER


class Smallest(sb.Continuous):
    """A sound policy of one's own: only so many prompts at a time."""

    def admit(self, sequence: sb.Sequence, tokens: int, running: sb.Batch, memory: sb.Memory) -> bool:
        return len(running.partial) < 2 and super().admit(sequence, tokens, running, memory)


class AdmitsNobody(sb.Continuous):
    def admit(self, sequence: sb.Sequence, tokens: int, running: sb.Batch, memory: sb.Memory) -> bool:
        return False


class ThrowsOut(sb.Continuous):
    """Builds on the plan of `Continuous`, which decodes, and throws somebody out."""

    def plan(self, waiting: Queue, running: sb.Batch, memory: sb.Memory, now_ps: int) -> sb.Plan:
        plan = super().plan(waiting, running, memory, now_ps)
        if len(running) > 3 and not plan.chunks:
            plan.preempt(running.newest())
        return plan


class GivesUp(sb.Continuous):
    """Drops whoever is not admitted, one an iteration."""

    def plan(self, waiting: Queue, running: sb.Batch, memory: sb.Memory, now_ps: int) -> sb.Plan:
        plan = super().plan(waiting, running, memory, now_ps)
        if waiting and not plan.preempted:
            plan.drop(waiting.head())
        return plan


class DriftsWithTheClock(sb.Continuous):
    """Admits in odd milliseconds only, and does not say that it must be asked every iteration."""

    def plan(self, waiting: Queue, running: sb.Batch, memory: sb.Memory, now_ps: int) -> sb.Plan:
        self.now_ps = now_ps
        return super().plan(waiting, running, memory, now_ps)

    def admit(self, sequence: sb.Sequence, tokens: int, running: sb.Batch, memory: sb.Memory) -> bool:
        odd = self.now_ps // 10**9 % 2 == 1
        return (odd or not running) and super().admit(sequence, tokens, running, memory)


class Drifts(DriftsWithTheClock):
    asks_every_iteration = True


class ForgetsSomebody(sb.Continuous):
    def plan(self, waiting: Queue, running: sb.Batch, memory: sb.Memory, now_ps: int) -> sb.Plan:
        plan = super().plan(waiting, running, memory, now_ps)
        for sequence in plan.preempted:
            waiting.remove(sequence)
        return plan


class LeakyMemory(sb.PagedMemory):
    def release(self, sequence: sb.Sequence) -> None:
        super().release(sequence)
        if sequence.preemptions:
            self.free_blocks -= 1


class GenerousMemory(sb.PagedMemory):
    """Lets one sequence have what is not there."""

    def room(self, sequence: sb.Sequence, tokens: int, spare: int = 0) -> bool:
        return True

    def take(self, sequence: sb.Sequence, tokens: int, spare: int = 0) -> bool:
        need = -(-tokens // self.block_size) - sequence.held
        self.free_blocks -= need
        sequence.held += need
        return True


@pytest.mark.parametrize(
    "policy",
    [
        sb.VllmV1,
        sb.Continuous,
        sb.Continuous(order=lambda sequence: -sequence.prompt_tokens),
        lambda: sb.Continuous(order=lambda sequence: sequence.output_tokens),
        Smallest,
        ThrowsOut,
        GivesUp,
        Drifts,
    ],
)
def test_sound_policies_pass(policy: type[sb.Scheduler]) -> None:
    check_scheduler(policy)


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        (AdmitsNobody, "AdmitsNobody plans nothing at 0.000000 s while 1 requests wait, 0 run"),
        (DriftsWithTheClock, "stepping and running ahead differ in"),
        (ForgetsSomebody, "ForgetsSomebody has lost 1 requests"),
    ],
)
def test_broken_policies_are_caught(policy: type[sb.Scheduler], says: str) -> None:
    with pytest.raises(sb.PolicyError) as caught:
        check_scheduler(policy)
    told = str(caught.value)
    assert told.startswith(f"{policy.__name__} breaks its contract: ")
    assert says in told
    assert told.count("  request ") <= 3, "the smallest world should be small"


class ForgetfulMemory(sb.PagedMemory):
    """Says that a stretch took no blocks beyond its first iteration."""

    def advance(self, iterations: int, growth: Growth) -> None:
        free = self.free_blocks
        super().advance(iterations, growth)
        self.free_blocks = free


class HighHeadroom(sb.PagedMemory):
    def headroom(self, most: int, spare: int = 0) -> int:
        return most


class NoHeadroom(sb.PagedMemory):
    def headroom(self, most: int, spare: int = 0) -> int:
        return -1


def test_headroom_that_is_none_is_told_so() -> None:
    trace = sb.Trace.from_lengths([10], [10])
    with pytest.raises(sb.PolicyError, match=r"NoHeadroom.headroom\(8\) returned -1. It must say how often grow"):
        sb.simulate(trace, memory=NoHeadroom(10), timing="linear:base_ms=1", kv_tokens=160, max_model_len=100)


class SaysNothing(sb.PagedMemory):
    def grow(self, spare: int = 0) -> bool:
        return None  # type: ignore[return-value]


def test_a_memory_that_grows_for_nobody_is_told_so() -> None:
    trace = sb.Trace.from_lengths([10], [10])
    with pytest.raises(sb.PolicyError, match=r"nobody runs. A memory's grow\(\) must return True"):
        sb.simulate(trace, memory=SaysNothing(10), timing="linear:base_ms=1", kv_tokens=160, max_model_len=100)


@pytest.mark.parametrize("memory", [LeakyMemory, GenerousMemory, ForgetfulMemory, HighHeadroom, NoHeadroom])
def test_broken_memories_are_caught(memory: type[sb.PagedMemory]) -> None:
    with pytest.raises(sb.PolicyError) as caught:
        check_memory(memory)
    told = str(caught.value)
    assert told.startswith(f"{memory.__name__} breaks its contract under ")
    assert told.count("  request ") <= 3, told


@pytest.mark.parametrize(
    "memory",
    [
        sb.PagedMemory,
        OwnPrefixMemory,
        PrefixCachingMemory,
        CopyOnWriteMemory,
        lambda blocks, size: ContiguousMemory(blocks * size, "oracle", "buddy", 64),
        lambda blocks, size: ContiguousMemory(blocks * size, "limit", "first-fit", 64),
        lambda blocks, size: ContiguousMemory(blocks * size, "pow2", "best-fit", 64),
    ],
)
def test_built_in_memories_pass(memory: type[sb.PagedMemory]) -> None:
    check_memory(memory)


class DriftingTiming:
    """Slower with every question: the same iteration does not take the same time."""

    def __init__(self) -> None:
        self.asked = 0

    def progression(self, iteration: sb.Iteration) -> tuple[int, int, int]:
        self.asked += 1
        return 10**9 + self.asked, 0, FOREVER

    def describe(self) -> dict[str, object]:
        return {}


class BentTiming(DriftingTiming):
    """A square, told as if it were a line."""

    def progression(self, iteration: sb.Iteration) -> tuple[int, int, int]:
        return 10**9 + iteration.context_tokens**2, iteration.context_tokens, FOREVER


class FloatTiming(DriftingTiming):
    def progression(self, iteration: sb.Iteration) -> tuple[int, int, int]:
        return 1e9, 0, 1  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("timing", "says"),
    [(DriftingTiming(), "asked again"), (BentTiming(), "iterations later"), (FloatTiming(), "whole numbers")],
)
def test_broken_timings_are_caught(timing: sb.Timing, says: str) -> None:
    with pytest.raises(sb.PolicyError, match=says):
        check_timing(timing)


@pytest.mark.parametrize("gpu", ["h100", "a100-40", "l4"])
def test_built_in_timings_pass(gpu: str) -> None:
    check_timing(sb.LinearTiming(base_ms=5, token_us=20, context_ns=20))
    check_timing(sb.RooflineTiming(sb.Deployment("qwen2.5-3b", gpu=gpu)))


class Silent(sb.Continuous):
    """Makes a plan and keeps it to itself."""

    def plan(self, *args: Any) -> Any:
        super().plan(*args)


@pytest.mark.parametrize("system", ["vllm", "vllm-v0"])
def test_a_policy_that_returns_no_plan_is_told_so(system: str) -> None:
    trace = sb.Trace.from_lengths([10], [5])
    with pytest.raises(sb.PolicyError, match=r"^Silent\.plan\(\) returned None\. It must return the Plan"):
        sb.simulate(trace, system=system, scheduler=Silent(), timing="linear:base_ms=1", kv_tokens=64, max_model_len=32)


CRAMPED: dict[str, Any] = {
    "timing": "linear:base_ms=1",
    "kv_tokens": 40,
    "block_size": 4,
    "max_model_len": 32,
}


class Impatient(sb.VllmV1):
    """Gives up on whoever was preempted."""

    def plan(self, waiting: Any, running: Any, memory: Any, now_ps: int) -> sb.Plan:
        plan = super().plan(waiting, running, memory, now_ps)
        while waiting and waiting.head().preemptions:
            plan.drop(waiting.head())
        return plan


def test_a_request_whose_last_token_is_on_its_way_must_not_be_given_up() -> None:
    """It was preempted with a token in flight."""
    said = set()
    for seed in range(60):
        prompts, outputs = np.random.default_rng(seed).integers(1, 14, (2, 8))
        trace = sb.Trace.from_lengths(prompts, outputs)
        try:
            sb.simulate(trace, scheduler=Impatient(), async_scheduling=True, **CRAMPED)
        except sb.PolicyError as error:
            said.add(str(error).split(" gave up on ")[0])
    assert said == {"Impatient"}
