"""Which replica serves a request: a function from the request and the replicas to a replica's number.

Routers are asked once for each request, when it arrives, before the boundaries of that instant are
applied; all parallel samples of a request go where its first one goes. A router sees who waits and
who runs, which is true at any instant; tokens and blocks are not shown, since between boundaries
engines run ahead. Built-ins have a class each; anybody's own is a function or ``module:function``.
"""

from __future__ import annotations

import copy
import inspect
from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from simbatch.checks import shown
from simbatch.errors import PolicyError, UsageError
from simbatch.parts import find_named
from simbatch.request import Request

if TYPE_CHECKING:
    from simbatch.engine import Engine


class Replica:
    """What a router may know of one engine."""

    __slots__ = ("_engine", "index")

    def __init__(self, index: int, engine: Engine) -> None:
        self.index = index
        self._engine = engine

    @property
    def waiting(self) -> int:
        """Requests that wait, preempted ones included."""
        return len(self._engine.waiting) + len(self._engine.scheduler.aside)

    @property
    def running(self) -> int:
        """Requests in the running batch."""
        return len(self._engine.running)

    @property
    def load(self) -> int:
        """Requests in its care."""
        return self.waiting + self.running


Router: TypeAlias = Callable[[Request, Sequence[Replica]], int]
"""The number of the replica that serves the request."""


class RoundRobin:
    """One after the other, whatever the requests are."""

    def __init__(self) -> None:
        self._next = 0

    def __call__(self, request: Request, replicas: Sequence[Replica]) -> int:
        index = self._next % len(replicas)
        self._next = index + 1
        return index


class LeastLoaded:
    """The replica with the fewest requests waiting and running; of several the first."""

    def __call__(self, request: Request, replicas: Sequence[Replica]) -> int:
        return _least(replicas)


class PrefixAffinity:
    """The replica that was sent the longest beginning of this prompt, unless it is far busier than another.

    A beginning counts from half of the prompt on; of several replicas that know as much, and where
    none does, the least loaded one. A replica with more than `RATIO` times the requests of the least
    loaded, and `LEAD` more, gets none for its memory's sake: a prompt that all share must not go to one alone.
    """

    KNOWN_SHARE = 0.5
    RATIO = 1.5
    LEAD = 16

    def __init__(self) -> None:
        self._nodes: dict[tuple[int, str, int], int] = {}
        """Beginnings seen, as a tree: (number of the beginning without its last segment, stream, start)."""
        self._sent_to: list[int] = [0]
        """For each beginning, the replicas that were sent it, as bits."""

    def __call__(self, request: Request, replicas: Sequence[Replica]) -> int:
        chosen = self._choose(request, replicas)
        self._remember(request, chosen)
        return chosen

    def _choose(self, request: Request, replicas: Sequence[Replica]) -> int:
        node, known_tokens, holders = 0, 0, 0
        for stream, start, length in request.segments or ():
            node = self._nodes.get((node, stream, start), 0)
            if not node:
                break
            known_tokens += length
            holders = self._sent_to[node]
        least = _least(replicas)
        if known_tokens < self.KNOWN_SHARE * request.prompt_tokens or not holders:
            return least
        holder = _least([replica for replica in replicas if holders >> replica.index & 1])
        lowest, load = replicas[least].load, replicas[holder].load
        return least if load > self.RATIO * lowest and load > lowest + self.LEAD else holder

    def _remember(self, request: Request, chosen: int) -> None:
        node = 0
        for stream, start, _ in request.segments or ():
            step = (node, stream, start)
            if step not in self._nodes:
                self._nodes[step] = len(self._sent_to)
                self._sent_to.append(0)
            node = self._nodes[step]
            self._sent_to[node] |= 1 << chosen


ROUTERS: dict[str, Callable[[], Router]] = {
    "round-robin": RoundRobin,
    "least-loaded": LeastLoaded,
    "prefix": PrefixAffinity,
}
DEFAULT_ROUTER = "round-robin"


def make_router(given: Router | str) -> Router:
    """A fresh router: a built-in's name, ``module:function``, a class, a function or an object (which is copied).

    Raises UsageError for what cannot route.
    """
    found: Any = given
    if isinstance(given, str):
        found = ROUTERS[given] if given in ROUTERS else find_named(given, "router", ROUTERS, "module:function")
    found = found() if inspect.isclass(found) else copy.deepcopy(found)
    if not callable(found):
        raise UsageError(
            f"the router is {shown(given)}, which cannot be called. Give one of {', '.join(ROUTERS)}, or a function "
            "from a request and the replicas to a replica's number."
        )
    router: Router = found
    return router


def describe_router(given: Router | str) -> str:
    """What a result says about its router."""
    if isinstance(given, str):
        return given
    kind = given if inspect.isclass(given) or inspect.isfunction(given) else type(given)
    return f"{kind.__module__}:{kind.__qualname__}"


class Dispatch:
    """Sends each of *requests* requests to one of *engines*, and remembers to which."""

    def __init__(self, engines: Sequence[Engine], router: Router, requests: int) -> None:
        self._engines = engines
        self._router = router
        self._replicas = tuple(Replica(index, engine) for index, engine in enumerate(engines))
        self._group = -1
        self.sent = array("q", [-1]) * requests
        """The replica of each request."""

    def submit(self, request: Request) -> None:
        """A request arrives now. Raises PolicyError for a router that names no replica."""
        if request.group >= 0 and request.group == self._group:
            chosen = self.sent[request.index - 1]
        else:
            chosen = self._router(request, self._replicas)
            if isinstance(chosen, bool) or not hasattr(chosen, "__index__") or not 0 <= chosen < len(self._engines):
                raise PolicyError(
                    f"the router answers {shown(chosen)} for request {request.id}, but the {len(self._engines)} "
                    f"replicas are numbered from 0 to {len(self._engines) - 1}. Return one of these numbers."
                )
        self._group = request.group
        self.sent[request.index] = chosen
        self._engines[chosen].submit(request)


def _least(replicas: Sequence[Replica]) -> int:
    return min(replicas, key=lambda replica: replica.load).index
