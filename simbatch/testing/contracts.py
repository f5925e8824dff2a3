"""What every scheduler and every memory must keep, tried on a few hundred tiny worlds.

The worlds are drawn from coarse integers, so that arrivals, finishes and boundaries collide, and
from tight memory, so that preemption is common. A failure is shrunk before it is shown.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from simbatch.decisions import DecisionLog
from simbatch.errors import PolicyError, SimbatchError, UsageError
from simbatch.memory.base import Memory
from simbatch.memory.paged import PagedMemory
from simbatch.request import Sequence
from simbatch.result import Result
from simbatch.scheduler import Continuous, Scheduler, Static, VllmV0, VllmV1
from simbatch.scheduler.plan import Plan
from simbatch.simulate import simulate
from simbatch.timing import Iteration, LinearTiming
from simbatch.trace import Trace
from simbatch.units import PS_PER_MS

_TIMING = LinearTiming(base_ms=2, token_us=500, context_ns=250_000)


@dataclass(frozen=True)
class World:
    """A tiny workload and the engine it meets. Reads as the call that repeats it."""

    requests: tuple[tuple[int, int, int], ...]
    """(arrival in ms, prompt tokens, output tokens)"""
    num_blocks: int
    block_size: int
    max_num_seqs: int
    max_num_batched_tokens: int
    enable_chunked_prefill: bool = True
    scheduler_reserve_full_isl: bool = True
    watermark: float = 0.0

    def __str__(self) -> str:
        lines = [f"{ms} ms: {prompt} prompt tokens, {output} output tokens" for ms, prompt, output in self.requests]
        settings = ", ".join(f"{name}={value}" for name, value in vars(self).items() if name != "requests")
        return "\n".join([*(f"  request {i} at {line}" for i, line in enumerate(lines)), f"  with {settings}"])


class Audit(DecisionLog):
    """A step log that recounts batch and memory after every plan and every iteration.

    Beside what a memory says of itself, its public numbers must make sense.
    """

    def planned(
        self,
        plan: Plan,
        work: Iteration,
        memory: Memory,
        start_ps: int,
        scheduler: Scheduler,
        planned_ps: int | None = None,
    ) -> None:
        super().planned(plan, work, memory, start_ps, scheduler, planned_ps)
        self.running = plan.running
        self._recount(memory)

    def applied(self, finished: list[Sequence], memory: Memory, end_ps: int) -> None:
        super().applied(finished, memory, end_ps)
        self.running.check()
        self._recount(memory)

    def _recount(self, memory: Memory) -> None:
        memory.check(self.running)
        held, free, capacity = memory.held_tokens, memory.free_tokens, memory.capacity_tokens
        assert held >= 0, f"the memory holds {held} tokens"
        assert free >= 0, f"the memory has {free} tokens free"
        assert held + free <= capacity, f"{held} tokens held and {free} free are more than its {capacity}"
        live = self.running.live_tokens - memory.shared_tokens
        assert live <= held, f"{live} tokens are in the cache, and only {held} held"
        assert 0 <= memory.internal_tokens <= held, f"{memory.internal_tokens} of {held} tokens held are internal"


def check_scheduler(
    policy: type[Scheduler] | Scheduler | Callable[[], Scheduler],
    *,
    memory: Callable[[int, int], Memory] = PagedMemory,
    worlds: int = 300,
    seed: int = 0,
) -> None:
    """Try *policy* (a class, an object, or a function that makes one) on tiny worlds.

    It must serve everybody, admit somebody when the machine is idle, give back all memory, and
    decide the same whether asked at every iteration or run ahead. *memory* is made with (blocks,
    block size). Raises PolicyError with the smallest failing world found.
    """
    make = (lambda: policy) if isinstance(policy, Scheduler) else policy
    for world in _worlds(worlds, seed):
        failure = fault(world, make, memory)
        if failure is not None:
            world, failure = _smallest(world, failure, make, memory)
            name = type(make()).__name__
            raise PolicyError(
                f"{name} breaks its contract: {failure}\nThe smallest world found in which it does:\n{world}"
            )


def check_memory(memory: Callable[[int, int], Memory], *, worlds: int = 300, seed: int = 0) -> None:
    """Try *memory*, made with (blocks, block size), under schedulers that press it in different ways.

    It must give all or nothing, take back what it gave, never hold more than it has, and say the
    same about a stretch of iterations at once as one by one. Raises PolicyError with the smallest
    failing world found.
    """
    policies = [VllmV1, Continuous, VllmV0, *([Static] if memory(16, 4).takes_padding else [])]
    for number, policy in enumerate(policies):
        for world in _worlds(worlds // 4, seed + number):
            failure = fault(world, policy, memory)
            if failure is not None:
                world, failure = _smallest(world, failure, policy, memory)
                name = type(memory(world.num_blocks, world.block_size)).__name__
                raise PolicyError(
                    f"{name} breaks its contract under {policy.__name__}: {failure}\n"
                    f"The smallest world found in which it does:\n{world}"
                )


def fault(
    world: World, make: Callable[[], Scheduler], memory: Callable[[int, int], Memory] = PagedMemory
) -> str | None:
    """What goes wrong in *world*, in one line; None when nothing does."""
    try:
        stepped = _run(world, make, memory, step=True)
        ahead = _run(world, make, memory, step=False)
        stepped.check()
        ahead.check()
    except UsageError:
        raise
    except SimbatchError as error:
        return str(error)
    except AssertionError as error:
        return f"a count is wrong: {error}"
    except Exception as error:  # whatever a policy of somebody's own may raise
        return f"{type(error).__name__}: {error}"
    for what in ("requests", "rows", "extra_gaps", "stays"):
        one, other = getattr(stepped.facts, what), getattr(ahead.facts, what)
        for column in one:
            if not np.array_equal(one[column], other[column]):
                return f"stepping and running ahead differ in {what}, {column}: {_first(one[column], other[column])}"
    if stepped.facts.peak_held_tokens != ahead.facts.peak_held_tokens:
        return "stepping and running ahead differ in the peak of memory held"
    return None


def _run(world: World, make: Callable[[], Scheduler], memory: Callable[[int, int], Memory], step: bool) -> Result:
    arrivals, prompts, outputs = zip(*world.requests, strict=True)
    trace = Trace.from_columns(
        name="world", arrival_ps=[ms * PS_PER_MS for ms in arrivals], prompt_tokens=prompts, output_tokens=outputs
    )
    return simulate(
        trace,
        scheduler=make(),
        memory=memory(world.num_blocks, world.block_size),
        timing=_TIMING,
        step=step,
        log=Audit() if step else None,
        kv_tokens=world.num_blocks * world.block_size,
        max_model_len=64,
        max_num_seqs=world.max_num_seqs,
        max_num_batched_tokens=world.max_num_batched_tokens,
        enable_chunked_prefill=world.enable_chunked_prefill,
        scheduler_reserve_full_isl=world.scheduler_reserve_full_isl,
        watermark=world.watermark,
    )


def _worlds(count: int, seed: int) -> Iterator[World]:
    draw = random.Random(seed)
    for _ in range(count):
        block_size = draw.choice((1, 2, 4))
        requests = sorted(
            (draw.choice((0, 0, 3, 6, 9, 12, 20, 40)), draw.randint(1, 12), draw.randint(1, 12))
            for _ in range(draw.randint(1, 8))
        )
        yield World(
            requests=tuple(requests),
            num_blocks=draw.choice((24, 32, 48, 200)) // block_size,
            block_size=block_size,
            max_num_seqs=draw.choice((1, 2, 4, 8)),
            max_num_batched_tokens=draw.choice((8, 12, 64)),
            enable_chunked_prefill=draw.random() < 0.8,
            scheduler_reserve_full_isl=draw.random() < 0.7,
            watermark=draw.choice((0.0, 0.0, 0.2)),
        )


def _smallest(
    world: World, failure: str, make: Callable[[], Scheduler], memory: Callable[[int, int], Memory]
) -> tuple[World, str]:
    """Take requests out and lengths down for as long as something still goes wrong."""
    smaller = True
    while smaller:
        smaller = False
        for candidate in _simpler(world):
            still = fault(candidate, make, memory)
            if still is not None:
                world, failure, smaller = candidate, still, True
                break
    return world, failure


def _simpler(world: World) -> Iterator[World]:
    requests = world.requests
    for i in range(len(requests)):
        if len(requests) > 1:
            yield replace(world, requests=requests[:i] + requests[i + 1 :])
    for i, (ms, prompt, output) in enumerate(requests):
        for lower in ((0, prompt, output), (ms, prompt // 2, output), (ms, prompt, output // 2)):
            if lower != requests[i] and min(lower[1:]) > 0:
                yield replace(world, requests=tuple(sorted((*requests[:i], lower, *requests[i + 1 :]))))
    for name, plain in (("watermark", 0.0), ("enable_chunked_prefill", True), ("scheduler_reserve_full_isl", True)):
        if getattr(world, name) != plain:
            simple: dict[str, Any] = {name: plain}
            yield replace(world, **simple)


def _first(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> str:
    for i, (a, b) in enumerate(zip(one.tolist(), other.tolist(), strict=False)):
        if a != b:
            return f"entry {i} is {a} and {b}"
    return f"{len(one)} and {len(other)} entries"
