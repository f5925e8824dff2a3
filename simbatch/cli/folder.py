"""The folder of a run or a comparison (`-o DIR`): everything that came out, and `repeat.sh`, which makes it again.

Only files of ours are written or removed in it. Whether that can be done is found out before the
simulation, not after it.
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
COMPARISON = "comparison.json"


def check_folder(folder: Path) -> None:
    """Raises UsageError unless *folder* can be made, or is one that can be written to."""
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir():
        raise UsageError(f"-o {folder}: {place} is a file, but results need a folder. Give another name.")
    if not os.access(place, os.W_OK | os.X_OK):
        raise UsageError(f"-o {folder}: {place} cannot be written to. Give a folder that you may write to.")


def save(result: Result, folder: Path, metrics: dict[str, Any]) -> None:
    """Write the run and what repeats it. Raises SimbatchError when the disk does not take it."""
    with _written_to(folder):
        _save_run(result, folder, metrics)
        _save_script(folder, metrics["config"])


def save_comparison(comparison: Comparison, folder: Path, metrics: dict[str, Any]) -> None:
    """Write each run to a folder of its own in *folder*, and beside them what was compared and what repeats it."""
    with _written_to(folder):
        for name, result in comparison.results.items():
            # The name may be that of a class somewhere.
            _save_run(result, folder / name.replace(":", "-").replace("/", "-"), metrics["systems"][name])
        (folder / COMPARISON).write_text(json.dumps(metrics, indent=2, allow_nan=False) + "\n", encoding="utf-8")
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


def _script(config: dict[str, Any]) -> str:
    """A shell script that runs the same command in the same folder with the same program."""
    verb = config["command"].partition(" ")[2]
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
            f'exec {shlex.quote(_program())} {verb} "$@"',
            "",
        )
    )


def _program() -> str:
    """The simbatch that runs now, where it has a place of its own."""
    here = Path(sys.argv[0])
    if here.name == "simbatch" and here.is_file():
        return str(here.absolute())
    return shutil.which("simbatch") or "simbatch"
