"""Many runs at once: on this machine's cores, or wherever joblib is told to run them.

Jobs travel by cloudpickle, so classes defined in a notebook or a script may be among them. Inside of
``joblib.parallel_config("dask")`` (or any other backend) the same call runs there. A worker that is
killed takes its job with it and nothing else: what it had not finished is tried again.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

from simbatch.checks import whole
from simbatch.errors import SimbatchError, UsageError

Found = TypeVar("Found")

_OF_THIS_MACHINE = ("LokyBackend", "SequentialBackend", "ThreadingBackend", "MultiprocessingBackend")
"""Backends that nobody needs to ask for."""
ATTEMPTS = 3
"""Times in a row that workers may be killed without a single job having been finished."""


def run_all(
    task: Callable[..., Found], jobs: Sequence[tuple[Any, ...]], n_jobs: int = -1
) -> Generator[tuple[int, Found], None, None]:
    """(number of the job, what *task* made of it), as they are finished, in any order.

    *n_jobs* processes; -1: as many as there are cores, or as the backend in force has; 1: this process, unless
    a backend is in force. Raises SimbatchError when workers die again and again.
    """
    if not whole("the number of processes", n_jobs, least=None):
        raise UsageError("the number of processes is 0. Give 1 or more, or -1 for all cores.")
    if n_jobs == 1 and not _told_where():
        for number, job in enumerate(jobs):
            yield number, task(*job)
        return
    import joblib
    from joblib.externals.loky.process_executor import BrokenProcessPool

    left = dict(enumerate(jobs))
    in_vain = 0
    while left:
        parallel = joblib.Parallel(n_jobs=n_jobs, return_as="generator_unordered", pre_dispatch="2*n_jobs")
        found = parallel(joblib.delayed(_numbered)(task, number, job) for number, job in list(left.items()))
        before = len(left)
        try:
            for number, result in found:
                del left[number]
                yield number, result
        except BrokenProcessPool as error:
            in_vain = 0 if len(left) < before else in_vain + 1
            if in_vain == ATTEMPTS:
                raise SimbatchError(
                    f"worker processes were killed {ATTEMPTS} times in a row, with {len(left):,} of {len(jobs):,} runs "
                    "left. There may be too little memory for so many at once: ask for fewer with n_jobs."
                ) from error
        finally:
            with warnings.catch_warnings():
                # That runs which nobody waits for any more are given up is what is wanted here.
                warnings.simplefilter("ignore")
                found.close()


def _numbered(task: Callable[..., Found], number: int, job: tuple[Any, ...]) -> tuple[int, Found]:
    return number, task(*job)


def _told_where() -> bool:
    """Has somebody said where to run things (`joblib.parallel_config`)? Without joblib loaded, nobody has."""
    if "joblib" not in sys.modules:
        return False
    from joblib.parallel import get_active_backend

    backend, _ = get_active_backend()
    return type(backend).__name__ not in _OF_THIS_MACHINE
