"""One replica: a SimPy process that plans, runs ahead, applies and records.

A decision holds until something happens, so between two events many equal iterations are taken
at once: a stretch is bounded by the next finish, by the room that is left, by how long the
timing's progression is good, and cut short by an arrival. The iteration in flight is always
finished; what arrives meanwhile is seen at the next boundary. See `docs/design.md`.

Ties: a boundary is a late event, so everything else of its instant has happened when it comes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import simpy

from simbatch import faults
from simbatch.batch import Batch
from simbatch.decisions import DecisionLog
from simbatch.describe import describe
from simbatch.memory.base import Memory
from simbatch.progression import iterations_by, span
from simbatch.record import Recorder, Stretch
from simbatch.request import Request, Sequence
from simbatch.scheduler.base import Scheduler
from simbatch.scheduler.plan import Cause, Plan
from simbatch.scheduler.queue import Queue
from simbatch.timing.base import FOREVER, Timing
from simbatch.units import MAX_PS
from simbatch.world import World

_LATE = 1 << 40
"""Priority number of boundaries: after everything else of their instant."""
_REPLICAS = 1 << 20
_AFTER_PLANS = _LATE + 2 * _REPLICAS
"""Priority number of what a drop causes: when every replica has planned that plans at this instant."""
_HELD_BACK_BY_HITS = (Cause.KV, Cause.TOKEN_BUDGET)
"""Causes that a block found, or lost, can end without any other event."""
Ask = Callable[[Queue, Batch, Memory, int], object]
"""What a policy answers when it is asked for a plan may be anything, until it has been looked at."""
_NOBODY: list[Sequence] = []
_MOST_BARREN = 100
"""Preemptions for each request in the engine after which a policy that yields no token is livelocked."""


class Engine:
    """Serves requests on one replica with *scheduler*, *memory* and *timing*; *recorder* gets the facts.

    With *step* every iteration is taken alone, with an event of its own: the plain reference path.
    *log* is told of each plan and what came of it. With *feedback* a finish may cause an arrival at
    the same instant (closed loops, sessions): *on_finish* is called at its time, and for a request
    that is refused when it is.
    """

    plans_ahead = False
    """Is a plan made while the batch before it runs?"""

    def __init__(
        self,
        env: World,
        scheduler: Scheduler,
        memory: Memory,
        timing: Timing,
        recorder: Recorder,
        *,
        step: bool = False,
        feedback: bool = False,
        replica: int = 0,
        log: DecisionLog | None = None,
        on_finish: Callable[[Sequence, int], None] | None = None,
    ) -> None:
        self.env = env
        self.scheduler = scheduler
        self.memory = memory
        self.timing = timing
        self.recorder = recorder
        self.step = step
        self.feedback = feedback
        self.log = log
        self.on_finish = on_finish
        self.waiting = scheduler.queue()
        own: Any = scheduler  # may be somebody's own: true or false, of whatever kind
        self.running = Batch(decodes_first=bool(own.decodes_first))
        self.now_ps = 0
        """The engine's own clock: ahead of the environment's when nobody else acts in between."""
        self._apply_priority = _LATE + replica
        self._plan_priority = _LATE + _REPLICAS + replica
        self._idle: simpy.Event | None = None
        self._boundary: simpy.Event | None = None
        self._stretch = Stretch(self.running)
        """The stretch that runs; while the process waits for its boundary, `submit` may shorten it."""
        self._barren = 0
        """Preemptions since the last token came out of anybody."""
        self._in_care = 0
        """Requests accepted and not finished."""
        env.engines += 1
        env.process(self._serve())

    # -- the outside -----------------------------------------------------------------------------

    def submit(self, request: Request) -> None:
        """A request arrives now. It is seen at the next boundary, which may be brought nearer."""
        sequence = Sequence(request, self.scheduler.limits.max_model_len)
        reason = self._refusal(sequence)
        if reason is not None:
            self._refuse(sequence, reason, int(self.env.now))
            return
        self._in_care += 1
        self.waiting.push(sequence)
        if self.log is not None:
            self.log.added(sequence)
        idle = self._idle
        if idle is not None:
            self._idle = None
            self.env.late(int(self.env.now), self._plan_priority, idle)
        elif self._boundary is not None and self._stretch.iterations > 1:
            self._cut(self._boundary)

    def _refusal(self, sequence: Sequence) -> str | None:
        if sequence.max_tokens < 1:
            return "prompt reaches max_model_len"
        memory: Any = self.memory  # may be somebody's own: true or false, of whatever kind
        if not memory.fits(sequence):
            return "exceeds the KV memory"
        return self.scheduler.refuses(sequence)

    def _refuse(self, sequence: Sequence, reason: str, at_ps: int) -> None:
        self.recorder.refuse(sequence, reason)
        if self.on_finish is not None:
            self.on_finish(sequence, at_ps)

    def check_served(self) -> None:
        """Raises PolicyError when the world has ended and somebody is still here, or something is still held."""
        if self._busy():
            raise faults.plans_nothing(self.scheduler, self._waiting(), len(self.running), self.now_ps)
        if self._in_care:
            raise faults.lost(self.scheduler, self._in_care)
        if self.memory.held:
            raise faults.still_held(self.scheduler, self.memory, self.memory.held_tokens)

    # -- the loop --------------------------------------------------------------------------------

    def _serve(self) -> Generator[simpy.Event, Any, None]:
        scheduler, waiting, running, memory, env = self.scheduler, self.waiting, self.running, self.memory, self.env
        ask: Ask = scheduler.plan
        try:
            while True:
                if not running.members and not self._busy():
                    yield self._sleep()
                    self.now_ps = int(env.now)
                plan = ask(waiting, running, memory, self.now_ps)
                if not isinstance(plan, Plan):
                    raise faults.no_plan(scheduler, plan)
                if plan.preempted or plan.dropped or not (plan.chunks or (plan.decodes and running.decoding)):
                    other = self._settle(plan)
                    if other is None:
                        yield self._sleep()
                        self.now_ps = int(env.now)
                        continue
                    plan = other
                stretch = self._begin(plan, self.now_ps)
                if stretch.steady:
                    self._run_ahead(plan, stretch)
                end = stretch.start_ps + stretch.took_ps
                # Could anybody else act up to the boundary, or have to act there?
                if self.step or env.peek() <= end or (self.feedback and self._may_finish(stretch)):
                    yield self._wait(stretch)
                    self._boundary = None
                    end = stretch.start_ps + stretch.took_ps
                self.now_ps = end
                finished = self._apply(plan, stretch)
                if finished:
                    self._finish(finished, end)
                if self.log is not None:
                    self.log.applied(finished, memory, end)
                if self.feedback:
                    yield self.env.late(end, self._plan_priority)
        except StopIteration as error:
            raise faults.ran_empty(scheduler) from error  # compiled, it would end this process without a word

    def _busy(self) -> bool:
        return bool(self.running.members or self.waiting or self.scheduler.aside)

    def _waiting(self) -> int:
        return len(self.waiting) + len(self.scheduler.aside)

    def _settle(self, plan: Plan) -> Plan | None:
        """The first plan, from *plan* on, that runs anything; None when there is nothing to run."""
        while True:
            if plan.preempted:
                self._watch(plan)
            for sequence in plan.dropped:
                self._drop(sequence)
            if plan.chunks or (plan.decodes and self.running.decoding):
                return plan
            self.running.clock += plan.decodes  # the memory has counted an iteration of nobody
            if not plan.preempted and not plan.dropped:
                return None
            if self.log is not None:  # something has changed: ask again at once
                self.log.nothing_planned(plan)
            ask: Ask = self.scheduler.plan
            again = ask(self.waiting, self.running, self.memory, self.now_ps)
            if not isinstance(again, Plan):
                raise faults.no_plan(self.scheduler, again)
            plan = again

    def _drop(self, sequence: Sequence) -> None:
        """*sequence* can never be scheduled. What that causes comes after all plans of this instant."""
        self._in_care -= 1
        self.recorder.refuse(sequence, "can never be scheduled")
        on_finish = self.on_finish
        if on_finish is None:
            return
        now_ps = self.now_ps

        def told(_: simpy.Event) -> None:
            self.env.after_plans_ps = now_ps
            on_finish(sequence, now_ps)

        event = self.env.late(now_ps, _AFTER_PLANS)
        assert event.callbacks is not None
        event.callbacks.append(told)

    def _begin(self, plan: Plan, start_ps: int) -> Stretch:
        """The first iteration of *plan*, which starts at *start_ps*, and how long it takes."""
        stretch = self._stretch
        describe(stretch, plan, len(self.scheduler.aside))
        first, increment, holds = self.timing.progression(stretch)
        stretch.start_ps, stretch.first_ps, stretch.increment_ps = start_ps, first, increment
        stretch.holds = holds if holds < FOREVER else FOREVER
        stretch.iterations, stretch.took_ps = 1, first
        stretch.steady = plan.decodes and not (plan.chunks or plan.preempted or plan.dropped)
        self.recorder.begin(stretch, plan)
        if self.log is not None:
            self.log.planned(
                plan, stretch, self.memory, start_ps, self.scheduler, self.now_ps if self.plans_ahead else None
            )
        return stretch

    def _run_ahead(self, plan: Plan, stretch: Stretch) -> None:
        """Lengthen *stretch*, which is steady, by the iterations in which the plan, asked again, would be the same."""
        running = self.running
        scheduler: Any = self.scheduler  # may be somebody's own, and say so with a 1
        memory: Any = self.memory
        if running.ended and len(running.ended) == running.decoding:
            raise faults.lets_nobody_leave(self.scheduler, len(running), self.now_ps)
        most = running.next_end - running.clock
        if most > stretch.holds:
            most = stretch.holds
        if (
            most > 1
            and not self.step
            and not scheduler.asks_every_iteration
            and not (memory.caches and plan.held_back in _HELD_BACK_BY_HITS)
        ):
            more = memory.headroom(most - 1, plan.spare)
            if type(more) is not int or not 0 <= more < most:
                raise faults.no_headroom(memory, more, most - 1)
            stretch.iterations = iterations = 1 + more
            stretch.took_ps = span(iterations, stretch.first_ps, stretch.increment_ps)

    def _apply(self, plan: Plan, stretch: Stretch) -> list[Sequence]:
        """The iterations are done: tokens come out, and prompts that are complete begin to decode.

        Returns who has got its last token.
        """
        running, iterations, start = self.running, stretch.iterations, stretch.start_ps
        end = start + stretch.took_ps
        if end > MAX_PS:
            raise faults.too_long()
        if iterations > 1:
            self.recorder.last(iterations, self.memory)
        if plan.decodes:
            if running.decoding:
                self._barren = 0
            if running.paused:
                self._resume(start, stretch.first_ps)
            running.clock += iterations
            running.last_decode_ps = end
        elif running.decoding:
            running.pause(start)
        if plan.chunks:
            self._apply_chunks(plan.chunks, start, end)
        return running.finished() if running.clock == running.next_end else _NOBODY

    def _resume(self, start: int, first: int) -> None:
        """Decoding members that were left out for a while get their token from an iteration of *first* again."""
        for since, count in self.running.paused.items():
            self.recorder.gap(start + first, start + first - since, count)
            self.recorder.gap(start + first, first, -count)
        self.running.paused.clear()

    def _apply_chunks(self, chunks: dict[Sequence, int], start: int, end: int) -> None:
        """Prompts got on, and those that are complete begin to decode."""
        if self.recorder.outside:
            self.recorder.run_again(chunks, start)
        for sequence, count in chunks.items():
            if sequence.first_scheduled_ps < 0:
                sequence.first_scheduled_ps = start
            if sequence.resuming:
                sequence.recomputed_tokens += count
            sequence.computed += count
            if sequence.computed < sequence.known:
                continue
            if sequence.first_token_ps < 0:
                sequence.first_token_ps = end
            else:
                self.recorder.gap(end, end - sequence.last_token_ps)
            sequence.resuming = False
            self._barren = 0
            self.running.join(sequence, end)
            self.memory.join(sequence)

    def _finish(self, finished: list[Sequence], at_ps: int) -> None:
        """*finished* have got their last token; who the policy lets go leaves."""
        self._report(finished, at_ps)
        leaving = self.scheduler.leaves(finished, self.running)
        if leaving is not finished:
            for sequence in finished:
                self.memory.end(sequence)
        for sequence in leaving:
            self.running.leave(sequence)
            self.memory.release(sequence)
            self.memory.forget(sequence)

    def _report(self, finished: list[Sequence], at_ps: int) -> None:
        self._in_care -= len(finished)
        for sequence in finished:
            self.recorder.finish(sequence, at_ps)
            if self.on_finish is not None:
                self.on_finish(sequence, at_ps)

    def _watch(self, plan: Plan) -> None:
        """Note who is out. Raises PolicyError when preemption goes on and on while nobody gets a token."""
        self.recorder.preempt(plan.preempted, self._next_start_ps())
        self._barren += len(plan.preempted)
        if self._barren > _MOST_BARREN * (self._waiting() + len(self.running)):
            sequences = (*plan.preempted, *self.waiting)
            raise faults.livelock(self.scheduler, self._barren, sequences, self.now_ps)

    # -- time ------------------------------------------------------------------------------------

    def _next_start_ps(self) -> int:
        """When an iteration planned now starts."""
        return self.now_ps

    def _boundary_of(self, stretch: Stretch) -> int:
        """When the next plan is made."""
        return stretch.start_ps + stretch.took_ps

    def _may_finish(self, stretch: Stretch) -> bool:
        """Could somebody finish at the boundary, so that an answer may come there?"""
        running = self.running
        return len(running.partial) > 0 or running.clock + stretch.iterations >= running.next_end

    def _wait(self, stretch: Stretch) -> simpy.Event:
        """The boundary of *stretch*.

        An engine that is alone ends it with the iteration in flight when the world goes on. Of several, each would be
        cut by what happens to the others, so theirs are cut only by their own arrivals.
        """
        env = self.env
        if env.engines == 1:
            if stretch.iterations > 1:
                soon = env.peek()
                if soon <= stretch.start_ps + stretch.took_ps:
                    self._shorten(stretch, int(soon) - stretch.start_ps)
            return env.late(self._boundary_of(stretch), self._apply_priority)
        self._boundary = env.late(self._boundary_of(stretch), self._apply_priority)
        return self._boundary

    def _cut(self, boundary: simpy.Event) -> None:
        """Somebody arrives now: end the stretch, which would have ended at *boundary*, with the iteration in flight."""
        stretch = self._stretch
        elapsed_ps = int(self.env.now) - stretch.start_ps
        if self.env.now == self.env.after_plans_ps:
            elapsed_ps += 1  # a boundary of this instant has passed
        if not self._shorten(stretch, elapsed_ps):
            return
        self._boundary = self.env.late(self._boundary_of(stretch), self._apply_priority)
        # The process that waits moves over; the stale event finds nobody and does nothing.
        self._boundary.callbacks, boundary.callbacks = boundary.callbacks, []

    def _shorten(self, stretch: Stretch, elapsed_ps: int) -> bool:
        """End *stretch* with the iteration in flight *elapsed_ps* after its start; False if it ends by then anyway."""
        done = self._iterations_at(stretch, elapsed_ps)
        if done >= stretch.iterations:
            return False
        stretch.iterations = done
        stretch.took_ps = span(done, stretch.first_ps, stretch.increment_ps)
        return True

    def _iterations_at(self, stretch: Stretch, elapsed_ps: int) -> int:
        """Iterations of *stretch* that are decided already *elapsed_ps* after its start."""
        return iterations_by(elapsed_ps, stretch.first_ps, stretch.increment_ps)

    def _sleep(self) -> simpy.Event:
        """Until somebody submits."""
        self._idle = simpy.Event(self.env)
        return self._idle
