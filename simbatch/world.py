"""The clock that all replicas of a run share: SimPy's, with events that come late in their instant."""

from __future__ import annotations

from heapq import heappush

import simpy


class World(simpy.Environment):
    """SimPy's environment, and what the replicas in it must know of each other."""

    after_plans_ps = -1
    """The last instant at which anything came after the plans of that instant."""
    engines = 0
    """Replicas that are served in it."""

    def late(self, at_ps: int, priority: int, event: simpy.Event | None = None) -> simpy.Event:
        """*event* (or a new one) happens at *at_ps*, after everything of lower priority number.

        It goes straight into SimPy's queue: a delay would be added to the time that it was taken from.
        """
        if event is None:
            event = simpy.Event(self)
        event._ok, event._value = True, None
        heappush(self._queue, (at_ps, priority, next(self._eid), event))  # type: ignore[misc]
        return event
