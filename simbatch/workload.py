"""Who arrives when: at recorded times, or when an answer has come.

`replay` is an open loop: nobody waits for an answer. `ClosedLoop` is for sessions, whose next turn
comes when the one before has ended and its user has thought, and for a fixed number of users, each
with one request in the system at a time. What is due at the same instant is submitted in the order
of the rows, however it came to be due, so that running ahead and stepping meet the same world.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Generator, Iterable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

import simpy

from simbatch.checks import whole
from simbatch.errors import UsageError
from simbatch.request import Request, Sequence
from simbatch.trace.chains import chains

if TYPE_CHECKING:
    from simbatch.trace import Trace

Submit = Callable[[Request], None]


def replay(env: simpy.Environment, requests: Iterable[Request], submit: Submit) -> Generator[simpy.Event, Any, None]:
    """Submit *requests*, sorted by arrival, each at its time. An open loop: nobody waits for an answer.

    A delay in front of the engine moves all times alike, so that here it need not be known.
    """
    now_ps = int(env.now)
    for request in requests:
        arrival_ps = request.arrival_ps
        if arrival_ps > now_ps:
            yield env.timeout(arrival_ps - now_ps)
            now_ps = arrival_ps
        submit(request)


class ClosedLoop:
    """Submits the turns of *trace*: a turn when the one before has ended and its user has thought.

    Without *users*, a session begins at the time of its first turn, and no turn comes before its own time.
    With *users*, as many sessions as that are in progress, recorded times do not matter, and whoever is
    done begins the next session at once. A request without a session is a session of one turn.
    A request that is refused has ended. `ended` must be told of everything that ends. A request is seen by the
    engine *delay_ps* after its user has sent it: times here are those at which it is seen.
    """

    def __init__(self, env: simpy.Environment, trace: Trace, users: int | None = None, delay_ps: int = 0) -> None:
        if users is not None and whole("the concurrency", users, least=None) < 1:
            raise UsageError(f"the concurrency is {users}, but a closed loop has at least 1 user. Give a whole number.")
        self._env = env
        self._trace = trace
        self._users = users
        self._delay_ps = delay_ps
        sample_of = None if trace.sample_of is None else trace.sample_of.tolist()
        self._first, self._following = chains(trace.session, len(trace), sample_of)
        self._sample_of = sample_of
        self._due: list[tuple[int, int]] = []
        """(time, row) of turns to submit."""
        self._begun = 0
        """Sessions that have begun, or will at a time that is known."""
        self._open: dict[int, int] = {}
        """Samples of a turn that have not ended, where it has more than one, by its first row."""
        self._submit: Submit
        self.arrival_ps = array("q", [0]) * len(trace)
        """When each request came."""

    def start(self, submit: Submit) -> None:
        """Begin; turns go to *submit*."""
        self._submit = submit
        for _ in range(1 if self._users is None else self._users):
            self._begin(int(self._env.now))

    def ended(self, sequence: Sequence, at_ps: int) -> None:
        """A request has finished or was refused."""
        turn = self._turn_of(sequence.index)
        left = self._open.pop(turn, 1) - 1
        if left:
            self._open[turn] = left
            return
        at_ps += self._delay_ps
        after = self._following[turn]
        if after >= 0:
            think_ps = 0 if self._trace.think_ps is None else int(self._trace.think_ps[after])
            self._schedule(at_ps + think_ps, after)
        elif self._users is not None:
            self._begin(at_ps)

    def _begin(self, at_ps: int) -> None:
        """The next session begins, if there is one."""
        if self._begun < len(self._first):
            row = self._first[self._begun]
            self._begun += 1
            self._schedule(at_ps, row)

    def _schedule(self, due_ps: int, row: int) -> None:
        if self._users is None and self._trace.arrival_ps is not None:
            due_ps = max(due_ps, int(self._trace.arrival_ps[row]))
        heappush(self._due, (due_ps, row))
        timer = self._env.timeout(due_ps - self._env.now)
        timer.callbacks.append(self._submit_due)

    def _submit_due(self, timer: simpy.Event) -> None:
        """Submit everything that is due now; timers of the same instant that come later find nothing."""
        now = int(self._env.now)
        while self._due and self._due[0][0] <= now:
            turn = heappop(self._due)[1]
            if self._users is None and self._begun and turn == self._first[self._begun - 1]:
                self._begin(now)
            rows = range(turn, self._end_of(turn))
            if len(rows) > 1:
                self._open[turn] = len(rows)
            for request in self._trace.requests(rows.start, rows.stop):
                self.arrival_ps[request.index] = now
                self._submit(request._replace(arrival_ps=now))

    def _turn_of(self, row: int) -> int:
        """First row of the turn that *row* is a sample of."""
        samples = self._sample_of
        while samples is not None and row > 0 and samples[row] == samples[row - 1] >= 0:
            row -= 1
        return row

    def _end_of(self, turn: int) -> int:
        samples = self._sample_of
        row = turn + 1
        while samples is not None and row < len(samples) and samples[row] == samples[turn] >= 0:
            row += 1
        return row
