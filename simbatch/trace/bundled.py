"""The traces that come with simbatch: names instead of paths.

They lie in `traces/` of the repository and travel in a wheel as `simbatch/bundled_traces`, so that
a name works from any folder after either kind of installation.
"""

from __future__ import annotations

import os
from pathlib import Path

from simbatch.checks import shown
from simbatch.errors import UsageError, unknown

_PACKAGE = Path(__file__).resolve().parents[1]
_ENDINGS = (".csv", ".csv.gz", ".jsonl", ".jsonl.gz")


def bundled_traces() -> dict[str, Path]:
    """Name and file of each bundled trace, in order of name."""
    inside, beside = _PACKAGE / "bundled_traces", _PACKAGE.parent / "traces"
    folder = inside if inside.is_dir() else beside
    files = folder.iterdir() if folder.is_dir() else []
    named = {file.name.partition(".")[0]: file for file in files if file.name.endswith(_ENDINGS)}
    return dict(sorted(named.items()))


def trace_file(name_or_path: str | Path) -> Path:
    """The file that a name or a path means: a bundled name wins over a file of that name.

    Raises UsageError for what can be neither.
    """
    if not isinstance(name_or_path, str | Path):
        raise UsageError(f"the trace is {shown(name_or_path)}. Give a name or the path of a csv or jsonl file.")
    if isinstance(name_or_path, Path):
        return name_or_path
    bundled = bundled_traces()
    if name_or_path in bundled:
        return bundled[name_or_path]
    if not name_or_path.strip():
        raise UsageError(
            "the trace has no name. Give the path of a csv or jsonl file, or a name (simbatch list traces)."
        )
    path = Path(name_or_path)
    if "/" not in name_or_path and not path.suffix and not os.path.lexists(path):
        raise unknown("trace", name_or_path, bundled, "The path of a csv or jsonl file is accepted too.")
    return path
