"""Contiguous memory in a running engine: the same rows stepping and running ahead, and all memory accounted for."""

from __future__ import annotations

from collections.abc import Sequence as List
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simbatch.batch import Batch
from simbatch.engine import Engine
from simbatch.memory import ContiguousMemory, Memory
from simbatch.memory.placement import PLACEMENTS
from simbatch.memory.reserve import RESERVES
from simbatch.record import Recorder
from simbatch.request import Request, Sequence
from simbatch.scheduler import Continuous, Limits
from simbatch.timing import LinearTiming
from simbatch.world import World

PARTS = ("live", "reserved", "internal", "external", "free")


class RequestLevel(Continuous):
    """A batch is let in only when nobody decodes, and leaves as a whole."""

    def admit(self, sequence: Sequence, tokens: int, running: Batch, memory: Memory) -> bool:
        return not running.decoding and super().admit(sequence, tokens, running, memory)

    def leaves(self, finished: List[Sequence], running: Batch) -> List[Sequence]:
        return list(running) if len(running.ended) == len(running) else []


POLICIES = {
    "first come": Continuous,
    "shortest first": lambda: Continuous(order=lambda one: one.prompt_tokens),
    "request level": RequestLevel,
}


def frames(
    requests: List[Request], policy: str, memory: ContiguousMemory, limits: Limits, step: bool
) -> tuple[dict[str, Any], ...]:
    """Rows, requests and gaps of a run, checked on the way."""
    env, scheduler = World(), POLICIES[policy]()
    scheduler.start(limits)
    recorder = Recorder(len(requests), memory.capacity_tokens)
    engine = Engine(env, scheduler, memory, LinearTiming(base_ms=3e-9, context_ns=1e-3), recorder, step=step)

    def source() -> Any:
        for request in requests:
            if request.arrival_ps > env.now:
                yield env.timeout(request.arrival_ps - env.now)
            engine.submit(request)
            memory.check(engine.running)

    env.process(source())
    env.run()
    engine.check_served()
    memory.check(engine.running)
    assert memory.free_tokens == memory.capacity_tokens
    return recorder.frames()


LENGTH = 32
REQUESTS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 20), st.integers(1, 12), st.integers(12, 20)), min_size=1, max_size=14
)


@pytest.mark.parametrize("policy", sorted(POLICIES))
@pytest.mark.parametrize("placement", sorted(PLACEMENTS))
@pytest.mark.parametrize("reserve", RESERVES)
@settings(max_examples=25, deadline=None)
@given(drawn=REQUESTS, capacity=st.integers(LENGTH, 3 * LENGTH), budget=st.sampled_from([None, 8]))
def test_running_ahead_equals_stepping(
    reserve: str, placement: str, policy: str, drawn: list[tuple[int, ...]], capacity: int, budget: int | None
) -> None:
    drawn = sorted(drawn)
    requests = [Request(i, f"r{i}", at, *rest) for i, (at, *rest) in enumerate(drawn)]
    limits = Limits(LENGTH, max_num_batched_tokens=budget)
    runs = [
        frames(requests, policy, ContiguousMemory(capacity, reserve, placement, LENGTH), limits, step)
        for step in (True, False)
    ]
    for stepped, ahead in zip(*runs, strict=True):
        for name in stepped:
            assert np.array_equal(stepped[name], ahead[name]), name
    rows = runs[0][0]
    assert (sum(rows[name] for name in PARTS) == capacity).all()
    assert all((rows[name] >= 0).all() for name in PARTS)
    assert (runs[0][1]["preemptions"] == 0).all()


def test_a_story_of_the_parts() -> None:
    """Two of three fit into 64 tokens; the third waits while 4 rounded-away and 16 free tokens are of no use to it."""
    requests = [Request(0, "a", 0, 24, 4), Request(1, "b", 0, 14, 2), Request(2, "c", 0, 28, 4)]
    memory = ContiguousMemory(64, "oracle", "buddy", 64)
    rows, *_ = frames(requests, "first come", memory, Limits(64), False)
    assert [tuple(int(rows[name][i]) for name in ("iterations", "waiting", *PARTS)) for i in range(5)] == [
        (1, 1, 0, 24 + 14 + 3 + 1, 2, 4 + 16, 0),  # a holds 28 of 32, b 16 of 16; c would need 32
        (1, 1, 24 + 14, 3 + 1, 2, 4 + 16, 0),
        (1, 0, 25, 2 + 28 + 3, 2, 4, 0),  # b has gone: its 16 and the 16 beside it are c's block
        (1, 0, 26 + 28, 1 + 3, 2, 4, 0),
        (2, 0, 29, 2, 1, 0, 32),
    ]
