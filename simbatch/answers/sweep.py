"""Many runs over a grid of options: all cores, one row for each, and nothing lost when it is interrupted.

Each point of the grid is a run, and each finished run is one file in *folder* (see `simbatch.answers.kept`).
A second start reads what is there and runs the rest: an interruption, a crash or a full disk loses
only what was in flight.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simbatch.answers.figures import flat
from simbatch.answers.kept import key_of, read_row, write_row
from simbatch.answers.parallel import run_all
from simbatch.checks import path, shown
from simbatch.deployment import Deployment
from simbatch.errors import SimbatchError, UsageError, unknown
from simbatch.metrics import plain
from simbatch.options import DEPLOYMENT_OPTIONS, Options
from simbatch.places import make_place
from simbatch.simulate import check_world, simulate

if TYPE_CHECKING:
    import pandas as pd

    from simbatch.trace import Trace

_OF_TRACE = ("requests", "rate_per_s", "burstiness")
_OF_METRICS = ("ttft_s", "tpot_s", "e2e_s", "percentile", "warmup_s", "price_usd_per_hour")


def sweep(
    trace: Trace | Callable[..., Trace],
    deployment: Deployment | None = None,
    *,
    grid: Mapping[str, Iterable[Any]] | Iterable[Mapping[str, Any]],
    folder: str | Path | None = None,
    n_jobs: int = -1,
    on_progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> pd.DataFrame:
    """Simulate every point of *grid* and return one row for each: its options, then its figures.

    Parameters
    ----------
    trace
        What all points are about; or a function from a point's values, by name, to a trace.
    grid
        Names and the values to try, in all combinations; or the points themselves. Names are ``rate_per_s``,
        ``burstiness``, ``requests`` and ``seed`` (which draws arrivals, and whatever was drawn for the trace),
        arguments of a deployment, of `simulate` and of `Result.metrics`. Values may be objects (policies).
    folder
        Where finished runs are kept, and found again.
    n_jobs
        Processes, -1 for all cores. Inside of ``joblib.parallel_config("dask")`` the cluster's workers.
    on_progress
        Called with (runs done, runs in all); what was found in *folder* counts as done.
    options
        The same for all points; a point's own values go before them.

    A point that fails says why in `failed`. After Ctrl-C the rows that are finished are returned, and
    ``frame.attrs["interrupted"]`` is true. Raises UsageError for a grid that is none and for a name that nothing has,
    and SimbatchError where *folder* cannot be written.
    """
    points = _points(grid)
    _check_names({*options, *(name for point in points for name in point)})
    if not callable(trace):
        check_world(trace, deployment)
    kept = None if folder is None else path("the folder", folder)
    if kept is not None:
        make_place(kept)
    keys = [key_of(trace, deployment, {**options, **point}) for point in points] if kept is not None else []
    rows: dict[int, dict[str, Any]] = {}
    for number, key in enumerate(keys):
        row = read_row(kept / f"{key}.json") if kept is not None else None
        if row is not None:
            rows[number] = row
    left = [number for number in range(len(points)) if number not in rows]
    jobs = [(trace, deployment, {**options, **points[number]}) for number in left]
    if on_progress is not None:
        on_progress(len(rows), len(points))
    interrupted = False
    try:
        with closing(run_all(_row, jobs, n_jobs)) as found:
            for place, row in found:
                number = left[place]
                rows[number] = row
                if kept is not None:
                    write_row(kept / f"{keys[number]}.json", row)
                if on_progress is not None:
                    on_progress(len(rows), len(points))
    except KeyboardInterrupt:
        if not rows:
            raise
        interrupted = True
    return _frame(points, rows, interrupted)


def _points(grid: Mapping[str, Iterable[Any]] | Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    if isinstance(grid, Mapping):
        for name, values in grid.items():
            if isinstance(values, str) or not isinstance(values, Iterable):
                raise UsageError(f"{name} is {shown(values)}, which is no list of values. Give for example [1, 2].")
        grid = {name: list(values) for name, values in grid.items()}
        points = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    elif not isinstance(grid, Iterable) or isinstance(grid, str):
        raise UsageError(f"the grid is {shown(grid)}. Give names and values to try, such as {{'rate_per_s': [5, 10]}}.")
    else:
        points = [dict(point) for point in grid]
    if not points or not any(points):
        raise UsageError("the grid has no point. Give names and values to try, such as {'rate_per_s': [5, 10, 20]}.")
    return points


def _check_names(names: Iterable[object]) -> None:
    """Raises UsageError for a name that neither a trace, a deployment, a run nor its metrics have."""
    runs = inspect.signature(simulate).parameters.keys() - {"trace", "options"}
    known = {*_OF_TRACE, *_OF_METRICS, *DEPLOYMENT_OPTIONS, *Options.__dataclass_fields__, *runs}
    for name in sorted(str(name) for name in names):
        if name not in known:
            raise unknown("name in the grid", name, known)


def _row(trace: Trace | Callable[..., Trace], deployment: Deployment | None, options: dict[str, Any]) -> dict[str, Any]:
    """One run as the cells of a row, as plain values; what went wrong, if it did."""
    try:
        options = dict(options)
        asked = {name: options.pop(name) for name in _OF_METRICS if name in options}
        requests = _trace(trace, options)
        own = {name: options[name] for name in options if name in DEPLOYMENT_OPTIONS}
        rest = {name: value for name, value in options.items() if name not in own or _is_option(name)}
        if own and deployment is not None:
            deployment = deployment.replace(**own)
        metrics = simulate(requests, **{"deployment": deployment, **rest}).metrics(**asked)
    except SimbatchError as error:
        return {"failed": str(error)}
    # How long it took is not a figure of the run: the same sweep gives the same frame.
    row = {name: value for name, value in flat(metrics).items() if name != "wall_s"}
    return {**plain(row), "failed": ""}


def _trace(trace: Trace | Callable[..., Trace], options: dict[str, Any]) -> Trace:
    """The trace of a point; what concerns it alone is taken out of *options*."""
    from simbatch.trace import Trace
    from simbatch.trace.redraw import draws

    asked = {name: options.pop(name) for name in _OF_TRACE if name in options}
    seed = options.get("seed")
    if not isinstance(trace, Trace):
        return trace(**asked, **({} if seed is None else {"seed": seed}))
    if seed is not None and draws(trace):
        trace = trace.with_seed(seed)
    if "requests" in asked:
        trace = trace.head(asked["requests"])
    if "rate_per_s" in asked:
        trace = trace.at_rate(asked["rate_per_s"], asked.get("burstiness", 1.0), 0 if seed is None else seed)
    elif "burstiness" in asked:
        raise UsageError("burstiness shapes arrivals at a rate, and there is none. Add rate_per_s to the grid.")
    return trace


def _is_option(name: str) -> bool:
    """Is it one that `simulate` knows too? It is said again, since a system's default gives way to it."""
    return name in Options.__dataclass_fields__


def _frame(points: list[dict[str, Any]], rows: dict[int, dict[str, Any]], interrupted: bool) -> pd.DataFrame:
    import pandas as pd

    cells = [{**{name: _label(value) for name, value in points[n].items()}, **rows[n]} for n in sorted(rows)]
    frame = pd.DataFrame(cells)
    names = [name for name in frame.columns if name != "failed"]
    frame = frame[[*names, "failed"]]
    frame.attrs["interrupted"] = interrupted
    return frame


def _label(value: Any) -> Any:
    """A value as a cell of the table."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    name = getattr(value, "name", None) or getattr(value, "__name__", None)
    return name if isinstance(name, str) else type(value).__name__
