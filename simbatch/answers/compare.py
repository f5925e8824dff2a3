"""Several systems on the same requests, side by side.

Every system meets the same customers at the same instants and, unless it says otherwise, runs on the
same GPUs with the same timing, so that what differs is the system. One that cannot be set up or
breaks its contract is reported in its place, and the others still run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from simbatch.answers.comparison import Comparison
from simbatch.deployment import Deployment
from simbatch.errors import SimbatchError, UsageError
from simbatch.scheduler import Scheduler
from simbatch.simulate import check_world, simulate
from simbatch.systems import SYSTEMS, find_system
from simbatch.version import __version__

if TYPE_CHECKING:
    from simbatch.trace import Trace

Choice: TypeAlias = "str | Scheduler | Mapping[str, Any]"
"""A system's name, a scheduler (an object, or ``module:Class``) in the default system, or arguments of `simulate`."""
Choices: TypeAlias = "Iterable[str | Scheduler] | Mapping[str, Choice]"

_NOT_OWN = ("trace", "on_progress")
"""Arguments of `simulate` that no system has for itself."""


def compare(
    trace: Trace,
    deployment: Deployment | None = None,
    *,
    systems: Choices | None = None,
    seeds: int | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> Comparison:
    """Serve the requests of *trace* by each of *systems*.

    Parameters
    ----------
    systems
        Names (`simbatch list systems`), ``module:Class`` or objects of schedulers; or a dict from
        names of your own to these or to arguments of `simulate`, such as
        ``{"mine": {"scheduler": Mine(), "max_num_seqs": 64}}``. Every named system by default.
    seeds
        Intervals over that many seeds: not there yet, so None.
    on_progress
        Called now and then with (requests done, requests in all), all systems together.
    options
        What `simulate` takes, the same for all; a system's own arguments go before it.

    An interruption (Ctrl-C) ends it with the systems that are done. Raises UsageError for names that
    are not known, and what the first system raised when all of them failed.
    """
    check_world(trace, deployment)
    if seeds is not None:
        raise UsageError(
            f"seeds is {seeds!r}, but intervals over seeds are not there yet. "
            "Leave it out, and compare again with another seed in at_rate to see how much is chance."
        )
    chosen = _chosen(list(SYSTEMS) if systems is None else systems)
    found = Comparison(_config(trace, deployment, chosen, options))
    errors: list[SimbatchError] = []
    for number, (name, own) in enumerate(chosen.items()):
        try:
            found.results[name] = simulate(
                trace,
                **{"deployment": deployment, **options, **own},
                on_progress=_of_all(on_progress, number, len(chosen)),
            )
        except SimbatchError as error:
            errors.append(error)
            found.failed[name] = str(error)
        except KeyboardInterrupt:
            if not found.results:
                raise
            found.interrupted = True
            found.failed |= dict.fromkeys(list(chosen)[number:], "interrupted before its end")
            break
    if not found.results:
        raise errors[0]
    return found


def _chosen(systems: Choices) -> dict[str, dict[str, Any]]:
    """Names, and what each of them means to `simulate`. Raises UsageError before anything has run."""
    if isinstance(systems, str):
        systems = [systems]
    if isinstance(systems, Mapping):
        named: list[tuple[str, Choice]] = list(systems.items())
    else:
        named = [(choice if isinstance(choice, str) else type(choice).__name__, choice) for choice in systems]
    chosen: dict[str, dict[str, Any]] = {}
    for name, choice in named:
        if name in chosen:
            raise UsageError(f"the system {name!r} is asked for twice. Leave one out, or name them in a dict.")
        chosen[name] = _arguments(name, choice)
    if not chosen:
        raise UsageError(f"no system was asked for. Name some of {', '.join(SYSTEMS)}.")
    return chosen


def _arguments(name: str, choice: Choice) -> dict[str, Any]:
    if isinstance(choice, str):
        # What has a colon is a class somewhere; `simulate` finds out whether it is there.
        return {"scheduler": choice} if ":" in choice else {"system": find_system(choice).name}
    if isinstance(choice, Scheduler):
        return {"scheduler": choice}
    if not isinstance(choice, Mapping):
        raise UsageError(
            f"the system {name!r} is {choice!r}, which is neither a name, a scheduler nor arguments of simulate. "
            'Give for example "vllm", an object derived from simbatch.Scheduler, or {"max_num_seqs": 64}.'
        )
    wrong = [key for key in choice if key in _NOT_OWN]
    if wrong:
        raise UsageError(f"the system {name!r} has its own {wrong[0]}, which all systems share. Leave it out.")
    if "system" in choice:
        find_system(choice["system"])
    return dict(choice)


def _of_all(
    on_progress: Callable[[int, int], None] | None, number: int, count: int
) -> Callable[[int, int], None] | None:
    """Progress of the system at *number* as part of all *count*."""
    if on_progress is None:
        return None
    return lambda done, total: on_progress(number * total + done, count * total)


def _config(
    trace: Trace, deployment: Deployment | None, chosen: dict[str, dict[str, Any]], options: dict[str, Any]
) -> dict[str, Any]:
    return {
        "simbatch": __version__,
        "trace": trace.describe(),
        "deployment": None if deployment is None else deployment.describe(),
        "systems": {name: _described(own) for name, own in chosen.items()},
        "options": _described(options),
        "seed": options.get("seed", 0),
        "step": options.get("step", False),
    }


def _described(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value.describe() if isinstance(value, Deployment) else value for key, value in arguments.items()}
