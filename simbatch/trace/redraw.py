"""The same trace drawn again with another seed: what replications are made of.

Methods that draw or change rows are marked `redrawable`; their results remember the call that made
them and the trace it was made from, so the whole chain can be repeated. Recorded times and rows stay
what they are. A trace that nothing was drawn for cannot be drawn again.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec

from simbatch.errors import UsageError

if TYPE_CHECKING:
    from simbatch.trace.trace import Trace

P = ParamSpec("P")


@dataclass(frozen=True)
class Making:
    """The call that made a trace."""

    function: Callable[..., Trace]
    arguments: Mapping[str, Any]
    """By name, defaults included; the trace it was made from is among them, if there was one."""


def redrawable(function: Callable[P, Trace]) -> Callable[P, Trace]:
    """Marks a function or method that makes a trace: with an argument *seed*, it draws."""
    signature = inspect.signature(function)

    @wraps(function)
    def made(*args: P.args, **kw: P.kwargs) -> Trace:
        trace = function(*args, **kw)
        bound = signature.bind(*args, **kw)
        bound.apply_defaults()
        if not any(trace is value for value in bound.arguments.values()):
            object.__setattr__(trace, "making", Making(made, dict(bound.arguments)))
        return trace

    return made


def draws(trace: Trace) -> bool:
    """Does any of it come from a seed?"""
    making = trace.making
    return making is not None and (
        "seed" in making.arguments
        or any(draws(value) for value in making.arguments.values() if isinstance(value, type(trace)))
    )


def redrawn(trace: Trace, seed: int) -> Trace:
    """*trace* with every draw made with *seed*. Raises UsageError where nothing was drawn."""
    if not draws(trace):
        raise UsageError(
            f"nothing of the trace {trace.name} was drawn from a seed, so another seed gives the same trace. "
            "Draw arrivals (at_rate, --rate) or rows (sample, --sample), or give a function from a seed to a trace."
        )
    return _again(trace, seed)


def _again(trace: Trace, seed: int) -> Trace:
    making = trace.making
    if making is None:
        return trace
    arguments = {
        name: _again(value, seed) if isinstance(value, type(trace)) else value
        for name, value in making.arguments.items()
    }
    if "seed" in arguments:
        arguments["seed"] = seed
    return making.function(**arguments)
