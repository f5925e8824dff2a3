"""Where results may go: a folder that can be made, is empty, or holds a result of the same kind.

Nobody's files are overwritten: a folder with anything else in it is refused, and found out before
a simulation, not after it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from simbatch.errors import UsageError

_LONGEST_NAME_BYTES = 255
"""Of one part of a path, on the file systems in use."""


def check_place(folder: Path, mark: str) -> None:
    """Raises UsageError unless results can be written to *folder*: to what does not hold *mark*, only if it is empty.

    *mark* is the JSON file by which a result of this kind is known.
    """
    place = _existing(folder)
    if not place.is_dir():
        raise UsageError(f"{folder}: {place} is a file, but results need a folder. Give another name.")
    if not os.access(place, os.R_OK | os.W_OK | os.X_OK):
        raise UsageError(f"{folder}: {place} cannot be written to. Give a folder that you may write to.")
    if place == folder and any(place.iterdir()) and not _is_ours(place / mark):
        raise UsageError(
            f"{folder} holds other things than a result of this kind (there is no {mark} of ours in it), "
            "and they could be overwritten. Give a new name, or an empty folder."
        )


def make_place(folder: Path) -> None:
    """Makes *folder* and those above it where they do not exist. Raises UsageError where that cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{folder} cannot be made ({error.strerror}). Give a folder that you may write to.") from error


def _existing(folder: Path) -> Path:
    """*folder*, or the nearest folder above it that exists; it may be a file."""
    place = folder
    while True:
        try:
            os.stat(place)
        except (FileNotFoundError, NotADirectoryError):
            if place != place.parent:
                place = place.parent
                continue
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise UsageError(f"{folder}: there can be no folder of this name ({why}). Give another name.") from None
        break
    longest = max((len(os.fsencode(part)) for part in folder.parts[len(place.parts) :]), default=0)
    if longest > _LONGEST_NAME_BYTES:
        raise UsageError(
            f"{folder}: a name of {longest} bytes, but file systems take {_LONGEST_NAME_BYTES}. Give a shorter name."
        )
    return place


def _is_ours(path: Path) -> bool:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and ("format" in content or "systems" in content)
