"""Asynchronous scheduling: the next batch is planned while one still runs.

Two batches are in flight. The plan for batch n + 1 is made when batch n - 1 has ended and batch n
begins, and counts the tokens of batch n as if they were there. So what arrives during batch n is
first served in batch n + 2, and memory is given back one batch later. A stop by length is foreseen
and costs nothing; a stop by token is not: the request is in one batch more, for nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import Any

import simpy

from simbatch import faults
from simbatch.engine import Ask, Engine
from simbatch.progression import iterations_by
from simbatch.record import Stretch
from simbatch.request import Sequence
from simbatch.scheduler.plan import Plan


class AsyncEngine(Engine):
    """An engine with two batches in flight. State is that of the last plan; outputs come when a batch ends."""

    plans_ahead = True

    _busy_until: int
    """End of the last batch planned."""
    _unprocessed: deque[tuple[int, list[Sequence]]]
    """Batches whose outputs are still to come, if they matter: (end, who gets its last token)."""

    def _serve(self) -> Generator[simpy.Event, Any, None]:
        scheduler, waiting, running, memory, env = self.scheduler, self.waiting, self.running, self.memory, self.env
        ask: Ask = scheduler.plan
        self._busy_until, self._unprocessed = 0, deque()
        try:
            while True:
                if (
                    not running.members
                    and self._busy_until <= self.now_ps
                    and not self._unprocessed
                    and not self._busy()
                ):
                    yield self._sleep()
                    self.now_ps = int(env.now)
                asked = ask(waiting, running, memory, self.now_ps)
                if not isinstance(asked, Plan):
                    raise faults.no_plan(scheduler, asked)
                plan: Plan | None = asked
                if asked.preempted or asked.dropped or not (asked.chunks or (asked.decodes and running.decoding)):
                    plan = self._settle(asked)
                if plan is None:
                    if self._busy_until > self.now_ps:
                        yield env.late(self._busy_until, self._apply_priority)
                    else:
                        yield self._sleep()
                    self.now_ps = int(env.now)
                else:
                    stretch = self._begin(plan, self._next_start_ps())
                    boundary = stretch.start_ps
                    if not self._unprocessed:
                        if stretch.steady:
                            self._run_ahead(plan, stretch)
                        boundary = self._boundary_of(stretch)
                    if self.step or env.peek() <= boundary or (self.feedback and self._unprocessed):
                        yield self._wait(stretch)
                        self._boundary = None
                        boundary = self._boundary_of(stretch)
                    self.now_ps = boundary
                    self._busy_until = stretch.start_ps + stretch.took_ps
                    ended = self._apply(plan, stretch)
                    for sequence in ended:
                        if sequence.output_tokens == sequence.max_tokens:
                            running.drain(sequence)
                            memory.part(sequence)
                    if ended or self.log is not None:
                        self._unprocessed.append((self._busy_until, ended))
                if self._unprocessed:
                    self._process_outputs()
                if self.feedback:
                    yield env.late(self.now_ps, self._plan_priority)
        except StopIteration as error:
            raise faults.ran_empty(scheduler) from error  # compiled, it would end this process without a word

    def _process_outputs(self) -> None:
        """Batches that have ended by now have delivered their tokens."""
        while self._unprocessed and self._unprocessed[0][0] <= self.now_ps:
            end, finished = self._unprocessed.popleft()
            self._finish(finished, end)
            if self.log is not None:
                self.log.applied(finished, self.memory, end)

    def _finish(self, finished: list[Sequence], at_ps: int) -> None:
        self._report(finished, at_ps)
        for sequence in finished:
            if sequence in self.running:
                self.memory.complete(sequence)
                self.running.leave(sequence)
                self.memory.release(sequence)
            else:  # preempted while its last token was on the way
                if sequence not in self.waiting:
                    raise faults.dropped_with_its_last_token(self.scheduler, sequence, at_ps)
                self.waiting.remove(sequence)
            self.memory.forget(sequence)

    def _begin(self, plan: Plan, start_ps: int) -> Stretch:
        stretch = super()._begin(plan, start_ps)
        for _, finishing in self._unprocessed:
            for sequence in finishing:
                # Planned with, although it ends as the stretch begins.
                if sequence in self.running:
                    self.recorder.unseen(sequence.final_computed, 0)
                else:
                    self.recorder.unseen(0, 1)
        return stretch

    def _next_start_ps(self) -> int:
        return max(self.now_ps, self._busy_until)

    def _boundary_of(self, stretch: Stretch) -> int:
        """The plan after *stretch* is made when its last batch begins."""
        last_ps = stretch.first_ps + stretch.increment_ps * (stretch.iterations - 1)
        return stretch.start_ps + stretch.took_ps - last_ps

    def _iterations_at(self, stretch: Stretch, elapsed_ps: int) -> int:
        """The batch in flight, and the one behind it."""
        return 1 + (iterations_by(elapsed_ps, stretch.first_ps, stretch.increment_ps) if elapsed_ps > 0 else 0)
