"""Who arrives when: SimPy processes that submit requests."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import Any

import simpy

from simbatch.request import Request


def replay(
    env: simpy.Environment, requests: Iterable[Request], submit: Callable[[Request], None]
) -> Generator[simpy.Event, Any, None]:
    """Submit *requests*, sorted by arrival, each at its time. An open loop: nobody waits for an answer."""
    for request in requests:
        if request.arrival_ps > env.now:
            yield env.timeout(request.arrival_ps - env.now)
        submit(request)
