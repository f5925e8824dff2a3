"""What every timing must keep: whole picoseconds, and progressions that go on as they began."""

from __future__ import annotations

import random
from collections.abc import Iterator

from simbatch.errors import PolicyError
from simbatch.timing.base import COUNTS, FOREVER, Iteration, Timing


def check_timing(timing: Timing, *, iterations: int = 300, seed: int = 0) -> None:
    """Ask *timing* about drawn iterations, and again at later ones of each progression.

    Durations must be whole, positive, and the same when asked twice; j iterations later the answer
    must be (first + j·increment, increment, holds - j). Raises PolicyError with the iteration at fault.
    """
    name = type(timing).__name__
    for number, iteration in enumerate(_drawn(iterations, seed)):
        told = timing.progression(iteration)
        wrong = _wrong(told)
        if wrong is None and timing.progression(iteration) != told:
            wrong = f"it says {told}, and asked again {timing.progression(iteration)}"
        if wrong is None and not iteration.prefill_tokens:
            wrong = _breaks(timing, iteration, told, random.Random(number))
        if wrong is not None:
            raise PolicyError(f"{name} breaks its contract: {wrong}\nThe iteration: {_shown(iteration)}")


def _wrong(told: tuple[int, int, int]) -> str | None:
    first, increment, holds = told
    if not all(type(value) is int for value in told):
        kinds = ", ".join(type(value).__name__ for value in told)
        return f"it says ({kinds}), but all three are whole numbers (int)"
    if first < 1 or holds < 1:
        return f"it says first {first} ps for {holds} iterations, but both are at least 1"
    if first + increment * (min(holds, 1000) - 1) < 1:
        return f"an increment of {increment} ps takes it below 1 ps within {holds} iterations"
    return None


def _breaks(timing: Timing, iteration: Iteration, told: tuple[int, int, int], draw: random.Random) -> str | None:
    """Where the progression does not go on, for an iteration in which everybody decodes."""
    first, increment, holds = told
    for later in sorted({1, 2, draw.randint(1, 50), draw.randint(1, 5000), holds - 1}):
        if 0 < later < min(holds, 10**6):
            again = timing.progression(_later(iteration, later))
            left = FOREVER if holds == FOREVER else holds - later
            if again != (first + later * increment, increment, left):
                return (
                    f"it says {told}, so {later} iterations later ({first + later * increment}, {increment}, {left}), "
                    f"but then it says {again}"
                )
    return None


def _later(iteration: Iteration, iterations: int) -> Iteration:
    other = Iteration()
    for name in COUNTS:
        setattr(other, name, getattr(iteration, name))
    other.context_tokens += iterations * iteration.sequences
    return other


def _drawn(count: int, seed: int) -> Iterator[Iteration]:
    draw = random.Random(seed)
    for _ in range(count):
        iteration = Iteration()
        decoding = draw.choice((1, 2, 7, 32, 200, 1000))
        contexts = draw.choice((1, 100, 1000, 20_000))
        iteration.tokens = iteration.sequences = decoding
        iteration.context_tokens = decoding * contexts + draw.randint(0, 100)
        iteration.waiting = draw.choice((0, 0, 3, 500))
        if draw.random() < 0.4:
            chunk, before = draw.choice((2, 17, 512, 2048)), draw.choice((0, 0, 512))
            iteration.tokens += chunk
            iteration.sequences += 1
            iteration.prefill_sequences = 1
            iteration.prefill_tokens = chunk
            iteration.prefill_context_tokens = before + chunk
            iteration.prefill_pairs = chunk * before + chunk * (chunk + 1) // 2
            iteration.context_tokens += before + chunk
        yield iteration


def _shown(iteration: Iteration) -> str:
    counts = ("tokens", "sequences", "prefill_tokens", "context_tokens", "waiting")
    return ", ".join(f"{name}={getattr(iteration, name)}" for name in counts)
