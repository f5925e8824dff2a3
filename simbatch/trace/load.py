"""From the name or path of a trace to the fields of a `Trace`: the file, how it was read, what it says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simbatch.errors import UsageError
from simbatch.trace.build import fields_of
from simbatch.trace.bundled import bundled_traces, trace_file
from simbatch.trace.files import Options, read_table
from simbatch.trace.formats import OURS
from simbatch.trace.formats.servegen import CLIENT
from simbatch.trace.select import check_factor, figure

_SUMMED_UP = frozenset({"arrival_s", "prompt_tokens", "output_tokens"})


def read_fields(name_or_path: str | Path, how: Mapping[str, Any], only: frozenset[str] | None = None) -> dict[str, Any]:
    """The fields of the trace in a file, read as *how* says (see `Trace.load`), of the columns *only* where given."""
    options = Options(**how, only=only)
    path = trace_file(name_or_path)
    check_factor(options.time_scale)
    table = read_table(path, options)
    bundled = isinstance(name_or_path, str) and name_or_path in bundled_traces()
    name = str(name_or_path) if bundled else table.name
    if options.time_scale != 1 and not {"arrival_s", "think_s"} & table.columns.keys():
        raise UsageError(f"{name} has no arrival times to scale. Give a rate instead, such as --rate 5.")
    return {
        **fields_of(table.columns),
        "name": name,
        "sha256": table.sha256,
        "provenance": table.provenance,
        "transforms": (*table.transforms, *_call(table.format, how)),
        "dropped": table.dropped,
        "why_dropped": tuple((reason, len(lines), lines[0]) for reason, lines in table.why_dropped.items()),
        "format": table.format,
        "notes": tuple(table.notes),
        "ignored_columns": table.ignored,
    }


def list_traces() -> list[dict[str, Any]]:
    """A description of each bundled trace, in order of name; see `Trace.describe`."""
    from simbatch.trace.trace import Trace

    return [Trace(**read_fields(name, {}, _SUMMED_UP)).describe() for name in bundled_traces()]


def _call(format: str, how: Mapping[str, Any]) -> list[str]:
    """The call that repeats how a file was read, for a trace's transforms; empty where nothing was out of the way."""
    used = [f"format={format}"] if format != OURS.name else []
    if format == CLIENT.name:
        used += [f"seed={how.get('seed', 0)}"]
    used += [f"{name}={value}" for name, value in how.items() if value and name not in ("time_scale", "seed")]
    scale = how.get("time_scale", 1)
    used += [f"time_scale={figure(scale)}"] if scale != 1 else []
    return [f"load({', '.join(used)})"] if used else []
