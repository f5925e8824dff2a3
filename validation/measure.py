"""Runs the jobs until they are done or the time is up; what is measured is on disk at once.

A job is begun only if it is expected to end before the deadline, by the estimates corrected with what
earlier jobs really took. Run again with the same folder, it goes on with what is missing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from validation.jobs import Job
from validation.measurements import Table, row_of


@dataclass(frozen=True)
class Timed:
    """What a backend gives for a job."""

    times_s: list[float]
    bytes: int = 0
    host_s: float = 0.0
    """Beside the GPU's time, for each step of the real loop."""


class Backend(Protocol):
    """Something that can time a job: a card (`validation.card`) or a stand-in (`validation.fake`)."""

    def time(self, job: Job) -> Timed: ...


@dataclass
class Progress:
    """How a run ended."""

    measured: int = 0
    skipped: int = 0
    """Found in the table."""
    left: int = 0
    """No time for them."""
    took_s: float = 0.0


def measure(
    backend: Backend,
    table: Table,
    jobs: Iterable[Job],
    *,
    minutes: float | None = None,
    clock: Callable[[], float] = time.monotonic,
    started: float | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Progress:
    """Time *jobs* in order and add their rows to *table*; jobs that it has are skipped.

    With *minutes*, counted from *started* on *clock*, a job that would end later is left, and so is
    everything after it: the order is one of worth. *say* gets a line for each row.
    """
    begun = clock() if started is None else started
    deadline = None if minutes is None else begun + 60 * minutes
    progress = Progress()
    slow = 1.0
    done = table.done
    out_of_time = False
    for job in jobs:
        if (job.stage, job.key) in done:
            progress.skipped += 1
            continue
        before = clock()
        if out_of_time or (deadline is not None and before + slow * job.estimate_s > deadline):
            out_of_time = True
            progress.left += 1
            continue
        timed = backend.time(job)
        counts = job.point.counts if job.point is not None else None
        more: dict[str, Any] = {"bytes": timed.bytes or "", "held_back": int(job.held_back)}
        more["host_s"] = f"{timed.host_s:.6g}" if timed.host_s else ""
        row = row_of(job.stage, job.key, counts, timed.times_s, **more)
        table.add(row)
        progress.measured += 1
        took = clock() - before
        # Slower than thought: believe it at once. Faster: slowly, since compilation comes and goes.
        ratio = took / job.estimate_s
        slow = max(0.2, ratio if ratio > slow else 0.7 * slow + 0.3 * ratio)
        say(f"{job.stage:9} {job.key:34} {float(row['duration_s']) * 1e3:10.4f} ms")
    progress.took_s = clock() - begun
    return progress
