"""How a trace shows itself: one line, one small page, one dict for a saved result, one data frame."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

import numpy as np

from simbatch.trace.build import columns_of
from simbatch.trace.columns import COLUMNS, NOT_GIVEN
from simbatch.units import PS_PER_S, show_number, show_s, to_s

if TYPE_CHECKING:
    import pandas as pd

    from simbatch.trace.trace import Trace

_DAY_S = 86_400
_SLOW_GAP_S = 60
"""No service is sized for a request a minute: over a day of them is more likely a wrong unit."""


def describe(trace: Trace) -> dict[str, Any]:
    """See `Trace.describe`."""
    span_s = _span_s(trace)
    return {
        "name": trace.name,
        "sha256": trace.sha256,
        "format": trace.format,
        "rule": trace.rule,
        "rows": len(trace),
        "dropped": trace.dropped,
        "ignored_columns": list(trace.ignored_columns),
        "prompt_tokens_mean": float(trace.prompt_tokens.mean()),
        "output_tokens_mean": float(trace.output_tokens.mean()),
        "span_s": span_s,
        "rate_per_s": (len(trace) - 1) / span_s if span_s else None,
        "transforms": list(trace.transforms),
    }


def warnings(trace: Trace) -> tuple[str, ...]:
    """See `Trace.warnings`."""
    found = []
    if trace.dropped:
        found.append(f"{trace.name}: {trace.dropped} bad row{'s were' if trace.dropped > 1 else ' was'} left out.")
    if trace.ignored_columns:
        names = ", ".join(name[:40] for name in trace.ignored_columns[:12])
        found.append(
            f"{trace.name}: columns left out: {names}{' and more' if len(trace.ignored_columns) > 12 else ''}."
        )
    found += [f"{trace.name}: {note}." for note in trace.notes]
    span_s = _span_s(trace)
    gap_s = span_s / (len(trace) - 1) if span_s is not None and len(trace) > 1 else 0.0
    if trace.format == "simbatch" and span_s is not None and span_s >= _DAY_S and gap_s >= _SLOW_GAP_S:
        found.append(
            f"{trace.name}: arrivals span {span_s / _DAY_S:,.1f} days, one every {gap_s:,.0f} s. "
            "If these are milliseconds, --time-scale 0.001 makes seconds of them."
        )
    return tuple(found)


def line(trace: Trace) -> str:
    """A trace in one line."""
    return f"<Trace {trace.name}: {_summary(trace)}>"


def page(trace: Trace) -> str:
    """A trace as a short table."""
    rows = {
        "requests": _summary(trace),
        "rule": trace.rule or "",
        "changed by": ", ".join(trace.transforms),
        "sha256": trace.sha256[:12],
        "warning": " ".join(trace.warnings),
    }
    cells = "".join(f"<tr><th>{key}</th><td>{html.escape(text)}</td></tr>" for key, text in rows.items() if text)
    return f"<table><caption>Trace {html.escape(trace.name)}</caption>{cells}</table>"


def frame(trace: Trace) -> pd.DataFrame:
    """See `Trace.frame`."""
    import pandas as pd

    columns: dict[str, Any] = {"id": trace.ids or [str(row) for row in range(len(trace))]}
    for name, values in columns_of(trace).items():
        if name.endswith("_s"):
            columns[name] = np.asarray(values) / PS_PER_S
        elif COLUMNS[name].default == NOT_GIVEN:
            columns[name] = pd.array([None if value == NOT_GIVEN else value for value in values], dtype="Int64")
        else:
            columns[name] = list(values)
    return pd.DataFrame(columns)


def _summary(trace: Trace) -> str:
    prompt, output = (show_number(float(values.mean())) for values in (trace.prompt_tokens, trace.output_tokens))
    rows = f"{len(trace):,} request{'s' if len(trace) > 1 else ''}"
    span_s = _span_s(trace)
    if span_s is None:
        times = "no arrival times"
    elif span_s == 0:
        times = "all at once"
    else:
        times = f"{show_number((len(trace) - 1) / span_s)} requests/s over {show_s(span_s)}"
    return f"{rows}, {prompt} prompt and {output} output tokens on average, {times}"


def _span_s(trace: Trace) -> float | None:
    """Seconds from the first to the last arrival."""
    if trace.arrival_ps is None:
        return None
    return to_s(int(trace.arrival_ps[-1]) - int(trace.arrival_ps[0]))
