"""The folder of a run or a comparison (`-o DIR`): everything that came out, and `repeat.sh`, which makes it again.

Only files of ours are written or removed in it, and only where nobody else's are (`simbatch.places`).
Whether that can be done is found out before the simulation, not after it.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simbatch.errors import SimbatchError, UsageError
from simbatch.version import __version__

if TYPE_CHECKING:
    from simbatch.answers.comparison import Comparison
    from simbatch.result import Result

REPEAT = "repeat.sh"
RUN = "facts.json"
COMPARISON = "comparison.json"


def check_folder(name: str | None, mark: str) -> Path | None:
    """The folder that -o *name* asks for, None where it was not given.

    *mark* is the file by which a result of the same kind is known. Raises UsageError unless the folder can be
    made, is empty, or holds such a result.
    """
    from simbatch.places import check_place

    if name is None:
        return None
    if not name.strip():
        raise UsageError("-o has no name. Give the name of a folder, such as -o first.")
    folder = Path(name)
    try:
        check_place(folder, mark)
    except UsageError as error:
        raise UsageError(f"-o {error}") from None
    return folder


def save(result: Result, folder: Path, metrics: dict[str, Any]) -> None:
    """Write the run and what repeats it. Raises SimbatchError when the disk does not take it."""
    with _written_to(folder):
        _save_run(result, folder, metrics)
        _save_script(folder, metrics["config"])


def save_comparison(comparison: Comparison, folder: Path, metrics: dict[str, Any]) -> None:
    """Write each run to a folder of its own in *folder*, and beside them what was compared and what repeats it."""
    from simbatch.places import make_place

    with _written_to(folder):
        make_place(folder)
        # First, so that a folder which was not finished is known as ours.
        (folder / COMPARISON).write_text(json.dumps(metrics, indent=2, allow_nan=False) + "\n", encoding="utf-8")
        for name, result in comparison.results.items():
            # The name may be that of a class somewhere.
            _save_run(result, folder / name.replace(":", "-").replace("/", "-"), metrics["systems"][name])
        _save_script(folder, metrics["config"])


def _save_run(result: Result, folder: Path, metrics: dict[str, Any]) -> None:
    from simbatch.saved import DECISIONS

    if result.decisions is None:
        # Left by an earlier run, it would pass for a part of this one.
        (folder / DECISIONS).unlink(missing_ok=True)
    result.save(folder, metrics)


def _save_script(folder: Path, config: dict[str, Any]) -> None:
    script = folder / REPEAT
    script.write_text(_script(config), encoding="utf-8")
    script.chmod(0o755)


@contextmanager
def _written_to(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SimbatchError(
            f"-o {folder}: the results cannot be written ({error.strerror or error}). "
            "What is in the folder is not whole; make room, or give another folder."
        ) from error
    except SimbatchError as error:
        raise type(error)(f"-o {error}") from error


def _script(config: dict[str, Any]) -> str:
    """A shell script that runs the same command in the same folder with the same program."""
    verb = config["command"].partition(" ")[2]
    trace_file = Path(shlex.split(verb)[1])
    again = f'exec {_program()} {verb} "$@"'
    if trace_file.exists() and not trace_file.is_file():
        again = f"echo 'The trace came through {trace_file}, which cannot be read again.' >&2\nexit 1"
    versions = ", ".join(f"{name} {version(name)}" for name in ("numpy", "simpy"))
    trace = config["trace"]
    return "\n".join(
        (
            "#!/bin/sh",
            "# Repeats the run that is saved beside this file, and shows it. Options are passed on:",
            "# --json gives every number, -o DIR saves it all again.",
            f"# simbatch {__version__}, Python {platform.python_version()}, {versions}",
            f"# trace {trace['name']!r}, sha256 {trace['sha256']}",
            f"cd {shlex.quote(os.getcwd())} || exit 1",
            again,
            "",
        )
    )


def _program() -> str:
    """The simbatch that runs now, where it has a place of its own, as a shell reads it."""
    here = Path(sys.argv[0])
    if here.parts[-2:] == ("simbatch", "__main__.py"):
        return f"{shlex.quote(sys.executable)} -m simbatch"
    if here.name == "simbatch" and here.is_file():
        return shlex.quote(str(here.absolute()))
    return shlex.quote(shutil.which("simbatch") or "simbatch")
