"""One record of several engines: each request's entry from the replica that served it, all rows with their replica.

Rows of different replicas overlap in time. What a metric makes of that is said in `docs/metrics.md`: sums
over requests are those of all replicas together, means over time are those of a replica that runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from simbatch.facts import Ints
from simbatch.record import Recorder

Columns = dict[str, Any]


def one_record(recorders: Sequence[Recorder], sent: Ints | None) -> tuple[Columns, Columns, Columns, Columns]:
    """(rows, requests, extra gaps, stays outside) of all *recorders*.

    *sent* is the replica of each request, -1 for none. With several, rows and requests get a column `replica`,
    and rows are in order of their start.
    """
    frames = [recorder.frames() for recorder in recorders]
    if sent is None or len(frames) == 1:
        return frames[0]
    requests = dict(frames[0][1])
    for replica, (_, own, _, _) in enumerate(frames[1:], start=1):
        here = sent == replica
        for name, column in requests.items():
            column[here] = own[name][here]
    rows: Columns = {name: np.concatenate([frame[0][name] for frame in frames]) for name in frames[0][0]}
    rows["replica"] = np.repeat(np.arange(len(frames)), [frame[0]["start_ps"].size for frame in frames])
    order = np.lexsort((rows["replica"], rows["start_ps"]))
    gaps, stays = (
        {name: np.concatenate([frame[table][name] for frame in frames]) for name in frames[0][table]}
        for table in (2, 3)
    )
    return {name: column[order] for name, column in rows.items()}, {**requests, "replica": sent}, gaps, stays


def one_log(logs: Sequence[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The steps of all replicas in order of time, each with its `replica`."""
    steps = [{**step, "replica": replica} for replica, log in enumerate(logs) for step in log]
    return sorted(steps, key=lambda step: step["t0"])


def progress_of_each(
    on_progress: Callable[[int, int], None] | None, replicas: int, total: int
) -> list[Callable[[int, int], None] | None]:
    """What each replica's recorder reports to, so that *on_progress* hears of all of them together."""
    if on_progress is None or replicas == 1:
        return [on_progress] * replicas
    done_by = [0] * replicas

    def reporter(index: int) -> Callable[[int, int], None]:
        def report(done: int, _: int) -> None:
            done_by[index] = done
            on_progress(sum(done_by), total)

        return report

    return [reporter(index) for index in range(replicas)]
