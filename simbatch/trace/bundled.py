"""The traces that come with simbatch: names instead of paths.

They lie in `traces/` of the repository and travel in a wheel as `simbatch/bundled_traces`, so that
a name works from any folder after either kind of installation.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).resolve().parents[1]
_ENDINGS = (".csv", ".csv.gz", ".jsonl", ".jsonl.gz")


def bundled_traces() -> dict[str, Path]:
    """Name and file of each bundled trace, in order of name."""
    inside, beside = _PACKAGE / "bundled_traces", _PACKAGE.parent / "traces"
    folder = inside if inside.is_dir() else beside
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    return {file.name.partition(".")[0]: file for file in files if file.name.endswith(_ENDINGS)}


def list_traces() -> list[dict[str, Any]]:
    """A description of each bundled trace, in order of name; see `Trace.describe`."""
    from simbatch.trace.trace import Trace

    return [Trace.load(name).describe() for name in bundled_traces()]
