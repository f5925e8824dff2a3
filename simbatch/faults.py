"""What only a run can show to be wrong with a policy, a memory or a timing: one error for each, with what to do."""

from __future__ import annotations

from collections.abc import Iterable

from simbatch.checks import shown
from simbatch.errors import PolicyError, SimbatchError
from simbatch.request import Sequence
from simbatch.units import MAX_PS, PS_PER_S


def plans_nothing(scheduler: object, waiting: int, running: int, now_ps: int) -> PolicyError:
    return PolicyError(
        f"{_name(scheduler)} plans nothing at {_seconds(now_ps)} while "
        f"{waiting} requests wait, {running} run and nobody else arrives. "
        "A policy must admit somebody when the machine is idle, and serve whoever runs."
    )


def lost(scheduler: object, requests: int) -> PolicyError:
    return PolicyError(
        f"{_name(scheduler)} has lost {requests} requests: they neither wait nor run, and have not finished. "
        "A sequence taken from the queue must be admitted, and a preempted one must wait again."
    )


def still_held(scheduler: object, memory: object, tokens: int) -> PolicyError:
    return PolicyError(
        f"everybody has left, and {_name(memory)} under {_name(scheduler)} still holds {tokens} tokens. "
        "What is taken for a sequence must be given back when it leaves."
    )


def lets_nobody_leave(scheduler: object, running: int, now_ps: int) -> PolicyError:
    return PolicyError(
        f"{_name(scheduler)} lets nobody leave at {_seconds(now_ps)}, although "
        f"all {running} that run have got their last token. "
        "Its leaves() must let them go when the last one has finished."
    )


def dropped_with_its_last_token(scheduler: object, sequence: Sequence, now_ps: int) -> PolicyError:
    return PolicyError(
        f"{_name(scheduler)} gave up on {sequence.id}, whose last token came at {_seconds(now_ps)}. "
        "Whoever was preempted with a token on its way (`last_token_ps` lies ahead) must wait until that has come."
    )


def no_plan(scheduler: object, given: object) -> PolicyError:
    return PolicyError(
        f"{_name(scheduler)}.plan() returned {shown(given)}. "
        "It must return the Plan that it made, also where nothing is to be done."
    )


def ran_empty(scheduler: object) -> PolicyError:
    return PolicyError(
        f"an iterator ran empty (StopIteration) in {_name(scheduler)}, or in what runs with it. "
        "Give next() a default for when there is nothing."
    )


def livelock(scheduler: object, preemptions: int, sequences: Iterable[Sequence], now_ps: int) -> PolicyError:
    """*preemptions* in a row, of some of *sequences*, and not one token."""
    sequence = max(sequences, key=lambda sequence: sequence.preemptions)
    return PolicyError(
        f"{_name(scheduler)} livelocks at {_seconds(now_ps)}: {preemptions} "
        f"preemptions and not one token; {sequence.id} was preempted {sequence.preemptions} times with "
        f"{sequence.known} tokens to hold. Whoever is preempted must get further the next time: "
        "admit fewer at once, or give more KV memory."
    )


def no_headroom(memory: object, given: object, most: int) -> PolicyError:
    return PolicyError(
        f"{_name(memory)}.headroom({most}) returned {shown(given)}. "
        f"It must say how often grow would succeed: an int from 0 to {most}."
    )


def no_progression(timing: object, given: object) -> PolicyError:
    return PolicyError(
        f"{_name(timing)}.progression() returned {shown(given)}. It must return three whole numbers: picoseconds of "
        "the iteration, by how many each next one is longer, and for how many iterations, at least 1, that holds."
    )


def takes_no_time(timing: object, tokens: int, iterations: int, last_ps: int) -> PolicyError:
    which = "one iteration" if iterations == 1 else f"the last of {iterations} iterations"
    return PolicyError(
        f"{_name(timing)} says that {which} of {tokens} tokens takes {last_ps} ps. "
        "An iteration must take at least 1 ps, and a progression may hold only for as long as each does."
    )


def too_long() -> SimbatchError:
    return SimbatchError(
        f"simulated time passes {MAX_PS / PS_PER_S / 86400:.0f} days, the longest span that 64 bits of "
        "picoseconds hold. Simulate fewer requests, a higher rate or shorter iterations."
    )


def _name(part: object) -> str:
    return type(part).__name__


def _seconds(ps: int) -> str:
    return f"{ps / PS_PER_S:.6f} s"
