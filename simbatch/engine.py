"""One replica: a SimPy process that plans, runs ahead, applies and records.

A decision holds until something happens, so between two events many equal iterations are taken
at once: `_Stretch` lengths are bounded by the next finish, by the room that is left, by how long
the timing's progression is good, and cut short by an arrival. The iteration in flight is always
finished; what arrives meanwhile is seen at the next boundary. See `docs/design.md`.

Ties: a boundary is a late event, so everything else of its instant has happened when it comes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from math import isqrt
from typing import Any

import simpy

from simbatch.batch import Batch
from simbatch.decisions import DecisionLog
from simbatch.errors import PolicyError, SimbatchError
from simbatch.memory.base import Memory
from simbatch.record import Recorder, Stretch
from simbatch.request import Request, Sequence
from simbatch.scheduler.base import Scheduler
from simbatch.scheduler.plan import Cause, Plan
from simbatch.timing.base import Iteration, Timing
from simbatch.units import MAX_PS, PS_PER_S

_LATE = 1 << 40
"""Priority number of boundaries: after everything else of their instant."""
_REPLICAS = 1 << 20
_HELD_BACK_BY_HITS = (Cause.KV, Cause.TOKEN_BUDGET)
"""Causes that a block found, or lost, can end without any other event."""
_MOST_BARREN = 100
"""Preemptions for each request in the engine after which a policy that yields no token is livelocked."""


class Engine:
    """Serves requests on one replica with *scheduler*, *memory* and *timing*; *recorder* gets the facts.

    With *step* every iteration is taken alone, with an event of its own: the plain reference path.
    *log* is told of each plan and what came of it. With *feedback* a finish may cause an arrival at
    the same instant (closed loops, sessions): *on_finish* is called at its time.
    """

    def __init__(
        self,
        env: simpy.Environment,
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
        self.running = Batch(decodes_first=scheduler.decodes_first)
        self.now_ps = 0
        """The engine's own clock: ahead of the environment's when nobody else acts in between."""
        self._apply_priority = _LATE + replica
        self._plan_priority = _LATE + _REPLICAS + replica
        self._idle: simpy.Event | None = None
        self._boundary: simpy.Event | None = None
        self._barren = 0
        """Preemptions since the last token came out of anybody."""
        self._in_care = 0
        """Requests accepted and not finished."""
        self._iterations = 0
        """Iterations of the stretch in flight; `submit` may lower it."""
        self._first_ps = 0
        self._increment_ps = 0
        env.process(self._serve())

    # -- the outside -----------------------------------------------------------------------------

    def submit(self, request: Request) -> None:
        """A request arrives now. It is seen at the next boundary, which may be brought nearer."""
        sequence = Sequence(request, self.scheduler.limits.max_model_len)
        reason = self._refusal(sequence)
        if reason is not None:
            self.recorder.refuse(sequence, reason)
            return
        self._in_care += 1
        self.waiting.push(sequence)
        if self.log is not None:
            self.log.added(sequence)
        if self._idle is not None:
            self._idle, event = None, self._idle
            self._late(int(self.env.now), self._plan_priority, event)
        elif self._iterations > 1 and self._boundary is not None:
            self._cut()

    def _refusal(self, sequence: Sequence) -> str | None:
        if sequence.max_tokens < 1:
            return "prompt reaches max_model_len"
        if not self.memory.fits(sequence):
            return "exceeds the KV memory"
        return self.scheduler.refuses(sequence)

    # -- the loop --------------------------------------------------------------------------------

    def _serve(self) -> Generator[simpy.Event, Any, None]:
        env, running, waiting = self.env, self.running, self.waiting
        scheduler, memory, recorder = self.scheduler, self.memory, self.recorder
        work = Iteration()
        while True:
            if not (waiting or running or scheduler.aside):
                yield self._sleep()
                self.now_ps = int(env.now)
            now = self.now_ps
            plan = scheduler.plan(waiting, running, memory, now)
            if plan.preempted:
                self._watch(plan)
            for sequence in plan.dropped:
                self._in_care -= 1
                recorder.refuse(sequence, "can never be scheduled")
            if not plan.chunks and not (plan.decodes and running.decoding):
                running.clock += plan.decodes  # the memory has counted an iteration of nobody
                if plan.preempted or plan.dropped:  # something has changed: ask again at once
                    if self.log is not None:
                        self.log.nothing_planned(plan)
                    continue
                yield self._sleep()
                self.now_ps = int(env.now)
                continue
            self._describe(plan, work)
            first, increment, holds = self.timing.progression(work)
            if first < 1:
                raise PolicyError(
                    f"{type(self.timing).__name__} says that an iteration of {work.tokens} tokens takes {first} ps. "
                    "An iteration must take at least 1 ps."
                )
            stretch = Stretch()
            steady = plan.steady
            iterations = 1
            if steady and not self.step and not scheduler.asks_every_iteration:
                iterations = 1 if memory.caches and plan.held_back in _HELD_BACK_BY_HITS else holds
                iterations = min(iterations, running.iterations_to_finish())
                if iterations > 1:
                    iterations = 1 + memory.headroom(iterations - 1, plan.spare)
            took = _span(iterations, first, increment)
            if now + took > MAX_PS:
                raise SimbatchError(
                    f"simulated time passes {MAX_PS / PS_PER_S / 86400:.0f} days, the longest span that 64 bits of "
                    "picoseconds hold. Simulate fewer requests, a higher rate or shorter iterations."
                )
            self._before(stretch, plan, work, now)
            if self.log is not None:
                self.log.planned(plan, work, memory, now, scheduler)
            if self.step or self._must_wait(now + took, iterations):
                self._first_ps, self._increment_ps, self._iterations = first, increment, iterations
                self._boundary = self._late(now + took, self._apply_priority)
                yield self._boundary
                self._boundary = None
                iterations = self._iterations
                self._iterations = 0
                took = _span(iterations, first, increment)
            end = self.now_ps = now + took
            stretch.iterations, stretch.first_ps, stretch.increment_ps = iterations, first, increment
            stretch.took_ps, stretch.holds = took, holds
            stretch.held_integral, stretch.internal_integral = memory.advance(iterations, first, increment)
            held = memory.held_tokens
            if held > recorder.peak_held_tokens:
                recorder.peak_held_tokens = held
            recorder.stretch(stretch)
            finished = self._apply(plan, iterations, now, first, end)
            if self.log is not None:
                self.log.applied(finished, memory, end)
            if self.feedback:
                yield self._late(end, self._plan_priority)

    def _describe(self, plan: Plan, work: Iteration) -> None:
        """Tell the timing what the first iteration of *plan* does."""
        running = self.running
        decoding = running.decoding if plan.decodes else 0
        tokens = sequences = decoding
        context = running.context_tokens + decoding if decoding else 0
        prefill = prefilling = prefill_context = pairs = 0
        for sequence, count in plan.chunks.items():
            before = sequence.computed
            tokens += count
            sequences += 1
            context += before + count
            if sequence.known - before > 1:
                prefill += count
                prefilling += 1
                prefill_context += before + count
                pairs += count * before + count * (count + 1) // 2
        work.tokens, work.sequences, work.context_tokens = tokens, sequences, context
        work.prefill_tokens, work.prefill_sequences = prefill, prefilling
        work.prefill_context_tokens, work.prefill_pairs = prefill_context, pairs
        work.waiting = len(self.waiting) + len(self.scheduler.aside)
        work.plan, work.batch = plan, running

    def _before(self, stretch: Stretch, plan: Plan, work: Iteration, now: int) -> None:
        """What the row says about the start of the stretch."""
        running, memory, waiting = self.running, self.memory, self.waiting
        live_decoding = running.decoding - len(running.ended) if plan.decodes else 0
        stretch.start_ps, stretch.steady = now, plan.steady
        stretch.running, stretch.waiting = len(running) - len(running.ended), work.waiting
        stretch.tokens, stretch.sequences = work.tokens, work.sequences
        stretch.prefill_tokens, stretch.context_tokens = work.prefill_tokens, work.context_tokens
        stretch.gaps = stretch.live_growth = live_decoding
        stretch.live = running.live_tokens - memory.shared_tokens
        stretch.held, stretch.internal = memory.held_tokens, memory.internal_tokens
        stretch.external = memory.external_tokens(waiting.head() if waiting else None)
        stretch.cause = int(plan.held_back)

    def _apply(self, plan: Plan, iterations: int, start: int, first: int, end: int) -> list[Sequence]:
        """The iterations are done: tokens come out, prompts that are complete begin to decode, some finish."""
        running, memory, recorder = self.running, self.memory, self.recorder
        if plan.decodes:
            if running.decoding:
                self._barren = 0
            if running.paused:
                for since, count in running.paused.items():
                    recorder.gap(start + first, start + first - since, count)
                    recorder.gap(start + first, first, -count)
                running.paused.clear()
            running.clock += iterations
            running.last_decode_ps = end
        elif running.decoding:
            running.pause(start)
        for sequence, count in plan.chunks.items():
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
                recorder.gap(end, end - sequence.last_token_ps)
            sequence.resuming = False
            self._barren = 0
            running.join(sequence, end)
            memory.join(sequence)
        finished = running.finished()
        if finished:
            self._in_care -= len(finished)
            for sequence in finished:
                recorder.finish(sequence, end)
                if self.on_finish is not None:
                    self.on_finish(sequence, end)
            leaving = self.scheduler.leaves(finished, running)
            if leaving is not finished:
                for sequence in finished:
                    memory.end(sequence)
            for sequence in leaving:
                running.leave(sequence)
                memory.release(sequence)
                memory.forget(sequence)
        return finished

    def _watch(self, plan: Plan) -> None:
        """Raises PolicyError when preemption goes on and on while nobody gets a token."""
        self._barren += len(plan.preempted)
        here = len(self.waiting) + len(self.running) + len(self.scheduler.aside)
        if self._barren > _MOST_BARREN * here:
            sequence = max((*plan.preempted, *self.waiting), key=lambda sequence: sequence.preemptions)
            raise PolicyError(
                f"{type(self.scheduler).__name__} livelocks at {self.now_ps / PS_PER_S:.6f} s: {self._barren} "
                f"preemptions and not one token; {sequence.id} was preempted {sequence.preemptions} times with "
                f"{sequence.known} tokens to hold. Whoever is preempted must get further the next time: "
                "admit fewer at once, or give more KV memory."
            )

    # -- time ------------------------------------------------------------------------------------

    def _must_wait(self, boundary: int, iterations: int) -> bool:
        """Could anybody else act up to *boundary*, or have to act there?"""
        if self.env.peek() <= boundary:
            return True
        running = self.running
        return self.feedback and (
            len(running.partial) > 0 or (running.decoding > 0 and iterations >= running.iterations_to_finish())
        )

    def _sleep(self) -> simpy.Event:
        """Until somebody submits."""
        self._idle = self.env.event()
        return self._idle

    def _late(self, at: int, priority: int, event: simpy.Event | None = None) -> simpy.Event:
        """*event* (or a new one) happens at *at*, after everything of lower priority number."""
        event = self.env.event() if event is None else event
        event._ok, event._value = True, None
        self.env.schedule(event, priority, at - self.env.now)  # type: ignore[arg-type]
        return event

    def _cut(self) -> None:
        """Bring the boundary to the end of the iteration in flight now."""
        started = self.now_ps
        done = _iterations_by(int(self.env.now) - started, self._first_ps, self._increment_ps)
        if done >= self._iterations:
            return
        old = self._boundary
        assert old is not None
        self._iterations = done
        at = started + _span(done, self._first_ps, self._increment_ps)
        self._boundary = self._late(at, self._apply_priority)
        # The process that waits moves over; the stale event finds nobody and does nothing.
        self._boundary.callbacks, old.callbacks = old.callbacks, []

    def check_served(self) -> None:
        """Raises PolicyError when the world has ended and somebody is still here, or something is still held."""
        policy, memory = type(self.scheduler).__name__, type(self.memory).__name__
        if self.waiting or self.running or self.scheduler.aside:
            raise PolicyError(
                f"{policy} plans nothing at {self.now_ps / PS_PER_S:.6f} s while "
                f"{len(self.waiting) + len(self.scheduler.aside)} requests wait, "
                f"{len(self.running)} run and nobody else arrives. "
                "A policy must admit somebody when the machine is idle, and serve whoever runs."
            )
        if self._in_care:
            raise PolicyError(
                f"{policy} has lost {self._in_care} requests: they neither wait nor run, and have not finished. "
                "A sequence taken from the queue must be admitted, and a preempted one must wait again."
            )
        if self.memory.held:
            raise PolicyError(
                f"everybody has left, and {memory} under {policy} still holds {self.memory.held_tokens} tokens. "
                "What is taken for a sequence must be given back when it leaves."
            )


def _span(iterations: int, first_ps: int, increment_ps: int) -> int:
    """Time of *iterations* of a progression."""
    return iterations * first_ps + increment_ps * (iterations * (iterations - 1) // 2)


def _iterations_by(elapsed_ps: int, first_ps: int, increment_ps: int) -> int:
    """Iterations of a progression, at least one, that have ended by *elapsed_ps* or are then in flight.

    The smallest n with span(n) ≥ elapsed: an arrival exactly on a boundary is seen there.
    """
    if increment_ps == 0:
        return max(1, -(-elapsed_ps // first_ps))
    # span(n) = (b·n + a·n²) / 2 with a = increment and b = 2·first - increment: the root, then exact correction.
    b = 2 * first_ps - increment_ps
    root = isqrt(max(0, b * b + 8 * increment_ps * elapsed_ps))
    n = max(1, (root - b) // (2 * increment_ps))
    while _span(n, first_ps, increment_ps) < elapsed_ps:
        n += 1
    while n > 1 and _span(n - 1, first_ps, increment_ps) >= elapsed_ps:
        n -= 1
    return n
