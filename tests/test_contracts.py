"""`check_scheduler` lets sound policies pass and catches broken ones with a world a person can read."""

from __future__ import annotations

import pytest

import simbatch as sb
from simbatch.scheduler.queue import Queue
from simbatch.testing import check_scheduler


class Smallest(sb.Continuous):
    """A sound policy of one's own: only so many prompts at a time."""

    def admit(self, sequence: sb.Sequence, tokens: int, running: sb.Batch, memory: sb.Memory) -> bool:
        return len(running.partial) < 2 and super().admit(sequence, tokens, running, memory)


class AdmitsNobody(sb.Continuous):
    def admit(self, sequence: sb.Sequence, tokens: int, running: sb.Batch, memory: sb.Memory) -> bool:
        return False


class DriftsWithTheClock(sb.Continuous):
    """Admits in odd milliseconds only, and does not say that it must be asked every iteration."""

    def plan(self, waiting: Queue, running: sb.Batch, memory: sb.Memory, now_ps: int) -> sb.Plan:
        plan = sb.Plan(waiting, running, memory)
        budget = self._go_on(plan)
        if waiting and not plan.preempted and (now_ps // 10**9 % 2 or not running):
            self._let_in(plan, budget)
        return plan


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


@pytest.mark.parametrize(
    ("memory", "says"),
    [(LeakyMemory, "a count is wrong"), (GenerousMemory, "a count is wrong")],
)
def test_broken_memories_are_caught(memory: type[sb.PagedMemory], says: str) -> None:
    with pytest.raises(sb.PolicyError, match=says):
        check_scheduler(sb.VllmV1, memory=memory)
