"""Finished runs of a sweep on disk: one file each, known by what it stands for, whole or absent.

The name of a file is a digest of everything that the run depends on: trace, deployment, options, version,
and the code and state of policies, so that another question never finds the answer of this one. A
file is written beside its place and moved there.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simbatch.deployment import Deployment
from simbatch.errors import SimbatchError
from simbatch.metrics import plain
from simbatch.version import __version__

_FORMAT = 1


def key_of(trace: Any, deployment: Deployment | None, options: dict[str, Any]) -> str:
    """What a run stands for, as the name of its file."""
    told = {
        "format": _FORMAT,
        "simbatch": __version__,
        "trace": _identity(trace),
        "deployment": deployment and deployment.describe(),
        "options": {name: _identity(value) for name, value in sorted(options.items())},
    }
    return hashlib.sha256(json.dumps(plain(told), sort_keys=True).encode()).hexdigest()[:32]


def _identity(value: Any) -> Any:
    """What tells one value from another, the same in every session: for policies, their code and their state."""
    from simbatch.trace import Trace
    from simbatch.trace.build import columns_of, fingerprint

    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Trace):
        return [value.sha256, list(value.transforms), fingerprint(columns_of(value))]
    if isinstance(value, Deployment):
        return value.describe()
    if isinstance(value, Mapping):
        return {str(name): _identity(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [_identity(item) for item in value]
    if inspect.isclass(value) or inspect.isroutine(value):
        return [value.__module__, value.__qualname__, _code(value)]
    state = {name: _identity(item) for name, item in sorted(getattr(value, "__dict__", {}).items())}
    return [type(value).__module__, type(value).__qualname__, _code(type(value)), state]


def _code(thing: Any) -> str:
    """The text of a class or a function, where it is to be had."""
    if getattr(thing, "__module__", "").startswith("simbatch."):
        return __version__
    try:
        return inspect.getsource(thing)
    except (OSError, TypeError):
        return ""


def read_row(path: Path) -> dict[str, Any] | None:
    """The row in a file; None where there is none that is whole."""
    try:
        row = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return row if isinstance(row, dict) and "failed" in row else None


def write_row(path: Path, row: dict[str, Any]) -> None:
    """Whole or not at all: beside its place, and then moved there."""
    beside = path.with_suffix(f".{os.getpid()}.part")
    try:
        beside.write_text(json.dumps(row, allow_nan=False), encoding="utf-8")
        os.replace(beside, path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise SimbatchError(
            f"{path.parent}: a finished run cannot be kept there ({error.strerror or error}). Those before it are; "
            "make room and start again: it goes on where it ended."
        ) from error
