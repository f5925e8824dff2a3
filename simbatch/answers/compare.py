"""Several systems on the same requests, side by side.

Every system meets the same customers at the same instants and, unless it says otherwise, runs on the
same GPUs with the same timing, so that what differs is the system. One that cannot be set up or
breaks its contract is reported in its place, and the others still run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from simbatch.answers.comparison import Comparison
from simbatch.answers.parallel import run_all
from simbatch.answers.replications import Drawn, chosen_seeds, drawn
from simbatch.answers.scaled import INTERRUPTED, check_scalable, scaled_jobs, silent_systems
from simbatch.checks import shown
from simbatch.deployment import Deployment
from simbatch.errors import SimbatchError, UsageError
from simbatch.result import Result
from simbatch.scheduler import Scheduler
from simbatch.simulate import check_world, simulate
from simbatch.systems import SYSTEMS, find_system
from simbatch.version import __version__

if TYPE_CHECKING:
    from simbatch.trace import Trace

Choice: TypeAlias = "str | Scheduler | Mapping[str, Any]"
"""A system's name, a scheduler (an object, or ``module:Class``) in the default system, or arguments of `simulate`."""
Choices: TypeAlias = "Iterable[str | Scheduler] | Mapping[str, Choice]"

_NOT_OWN = ("trace", "on_progress", "seed")
"""Arguments of `simulate` that no system has for itself."""


def compare(
    trace: Drawn,
    deployment: Deployment | None = None,
    *,
    systems: Choices | None = None,
    seeds: int | Iterable[int] | None = None,
    uncertainty: bool = False,
    n_jobs: int = 1,
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
        How many, counted from the option `seed` (0), or which: draws arrivals and sampled rows anew with each, and
        gives every difference with an interval. *trace* may then be a function from a seed to a trace.
    uncertainty
        Run every system twice more, with each iteration shorter and longer by the error that its timing states, and
        give the ranges of its figures and of their ratios to the first system's. With seeds, those of the first.
    n_jobs
        Processes for the runs of several seeds: see `simbatch.answers.parallel`.
    on_progress
        Called now and then with (requests done, requests in all), all systems together; with seeds, with runs.
    options
        What `simulate` takes, the same for all; a system's own arguments go before it.

    An interruption (Ctrl-C) ends it with the systems that are done. Raises UsageError for names that
    are not known and for *uncertainty* where no timing states an error, and what the first system raised when all
    of them failed.
    """
    first = options.get("seed", 0)
    drawn_with = None if seeds is None else chosen_seeds(seeds, first)
    chosen = _chosen(list(SYSTEMS) if systems is None else systems)
    traces = [cast("Trace", trace)] if drawn_with is None else [drawn(trace, seed) for seed in drawn_with]
    check_world(traces[0], deployment)
    arguments = {name: {"deployment": deployment, **options, **own} for name, own in chosen.items()}
    if uncertainty:
        check_scalable(traces[0], arguments.values())
    again = 2 * len(chosen) if uncertainty else 0
    if drawn_with is None:
        found = Comparison(_config(traces[0], deployment, chosen, options))
        count = len(chosen) + again
        _run(found, traces[0], arguments, on_progress, count)
        if uncertainty:
            _scale(found, arguments, lambda ends: _one_by_one(traces[0], ends, on_progress, len(chosen), count))
        return found
    found = Comparison(_config(traces[0], deployment, chosen, {**options, "seed": drawn_with[0]}))
    jobs = [
        (one, {**own, "seed": seed}) for one, seed in zip(traces, drawn_with, strict=True) for own in arguments.values()
    ]
    count = len(jobs) + again
    _replicate(found, jobs, list(chosen), drawn_with, n_jobs, on_progress, count)
    if uncertainty:
        seed = found.seeds[0]
        first_drawn = traces[drawn_with.index(seed)]
        of_first = {name: {**own, "seed": seed} for name, own in arguments.items()}
        _scale(found, of_first, lambda ends: _many(first_drawn, ends, n_jobs, on_progress, len(jobs), count))
    return found


def _run(
    found: Comparison,
    trace: Trace,
    arguments: Mapping[str, dict[str, Any]],
    on_progress: Callable[[int, int], None] | None,
    count: int,
) -> None:
    """One run for each of *arguments*, after another; progress is out of *count* runs, which may be more."""
    names = list(arguments)
    errors: list[SimbatchError] = []
    for number, (name, own) in enumerate(arguments.items()):
        try:
            found.results[name] = simulate(trace, **own, on_progress=_of_all(on_progress, number, count))
        except SimbatchError as error:
            errors.append(error)
            found.failed[name] = str(error)
        except KeyboardInterrupt:
            if not found.results:
                raise
            found.interrupted = True
            found.failed |= dict.fromkeys(names[number:], INTERRUPTED)
            break
    if not found.results:
        raise errors[0]


def _replicate(
    found: Comparison,
    jobs: list[tuple[Trace, dict[str, Any]]],
    names: list[str],
    seeds: list[int],
    n_jobs: int,
    on_progress: Callable[[int, int], None] | None,
    count: int,
) -> None:
    """All of *jobs*, which are every system for every seed; what is interrupted counts as far as seeds are whole.

    Progress is out of *count* runs, which may be more than these.
    """
    outcomes: dict[int, Result | SimbatchError] = {}
    try:
        for number, outcome in run_all(_attempt, jobs, n_jobs):
            outcomes[number] = outcome
            if on_progress is not None:
                on_progress(len(outcomes), count)
    except KeyboardInterrupt:
        found.interrupted = True
    whole = [
        (seed, [outcomes[number] for number in numbers])
        for row, seed in enumerate(seeds)
        if outcomes.keys() >= set(numbers := range(row * len(names), (row + 1) * len(names)))
    ]
    if not whole:
        raise KeyboardInterrupt
    errors: list[SimbatchError] = []
    for k, name in enumerate(names):
        wrong = [outcome for _, row in whole if isinstance(outcome := row[k], SimbatchError)]
        if wrong:
            errors += wrong
            found.failed[name] = str(wrong[0])
    if len(found.failed) == len(names):
        raise errors[0]
    for seed, row in whole:
        served = {name: outcome for name, outcome in zip(names, row, strict=True) if isinstance(outcome, Result)}
        found.seeds.append(seed)
        found.replications.append({name: result for name, result in served.items() if name not in found.failed})
    found.results = found.replications[0]


def _scale(
    found: Comparison,
    arguments: Mapping[str, dict[str, Any]],
    run: Callable[[list[dict[str, Any]]], Iterator[tuple[int, Result | SimbatchError]]],
) -> None:
    """Both ends of every system that has a result and whose timing states an error; why the others have none."""
    jobs = [] if found.interrupted else scaled_jobs(found.results, arguments)
    ends: dict[str, dict[float, Result]] = {name: {} for name in found.results}
    found.left_out |= silent_systems(found.results)
    try:
        for number, outcome in run([own for _, _, own in jobs]):
            name, factor, _ = jobs[number]
            if isinstance(outcome, SimbatchError):
                found.left_out.setdefault(name, str(outcome))
            else:
                ends[name][factor] = outcome
    except KeyboardInterrupt:
        found.interrupted = True
    found.scaled = {name: of_one for name, of_one in ends.items() if len(of_one) == 2}
    for name in found.results:
        if name not in found.scaled:
            found.left_out.setdefault(name, INTERRUPTED)


def _one_by_one(
    trace: Trace,
    jobs: list[dict[str, Any]],
    on_progress: Callable[[int, int], None] | None,
    done: int,
    count: int,
) -> Iterator[tuple[int, Result | SimbatchError]]:
    """*jobs* after one another, which are those after *done* of *count*."""
    for number, own in enumerate(jobs):
        yield number, _attempt(trace, {**own, "on_progress": _of_all(on_progress, done + number, count)})


def _many(
    trace: Trace,
    jobs: list[dict[str, Any]],
    n_jobs: int,
    on_progress: Callable[[int, int], None] | None,
    done: int,
    count: int,
) -> Iterator[tuple[int, Result | SimbatchError]]:
    """*jobs* in as many processes, which are those after *done* of *count*."""
    for ended, outcome in enumerate(run_all(_attempt, [(trace, own) for own in jobs], n_jobs), start=1):
        yield outcome
        if on_progress is not None:
            on_progress(done + ended, count)


def _attempt(trace: Trace, arguments: dict[str, Any]) -> Result | SimbatchError:
    """A run, or what it raised."""
    try:
        return simulate(trace, **arguments)
    except SimbatchError as error:
        return error


def _chosen(systems: Choices) -> dict[str, dict[str, Any]]:
    """Names, and what each of them means to `simulate`. Raises UsageError before anything has run."""
    if isinstance(systems, str):
        systems = [systems]
    if isinstance(systems, Mapping):
        named: list[tuple[str, Choice]] = list(systems.items())
    elif not isinstance(systems, Iterable):
        raise UsageError(f"the systems are {shown(systems)}. Give names, such as ['vllm', 'orca-max'], or a dict.")
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
