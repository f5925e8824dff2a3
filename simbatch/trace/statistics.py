"""What a trace is like, in figures: arrivals, lengths, sessions, prefix reuse, and what was left out.

Dispersion is the variance of the number of arrivals in a window ÷ its mean: 1 for Poisson arrivals
at any window, more for bursts. Windows are whole ones from the first arrival on, at least ten of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from simbatch.trace.columns import Ints
from simbatch.trace.reuse import reused_tokens
from simbatch.units import PS_PER_S

if TYPE_CHECKING:
    from simbatch.trace.trace import Trace

WINDOWS_S = (1, 10, 60)
LEAST_WINDOWS = 10
PERCENTILES = (50, 90, 95, 99)


def statistics(trace: Trace) -> dict[str, Any]:
    """Figures of *trace* as plain values, units in their names; None where there is none."""
    return {
        **trace.describe(),
        "why_dropped": [
            {"reason": reason, "rows": rows, "first_line": line} for reason, rows, line in trace.why_dropped
        ],
        "provenance": list(trace.provenance),
        "arrivals": arrivals(trace.arrival_ps),
        "prompt_tokens": lengths(trace.prompt_tokens),
        "output_tokens": lengths(trace.output_tokens),
        "correlation": correlation(trace.prompt_tokens, trace.output_tokens),
        "sessions": sessions(trace),
        "prefix": prefix(trace),
        "warnings": list(trace.warnings),
    }


def arrivals(arrival_ps: Ints | None) -> dict[str, Any] | None:
    """Span, rate, variation of the gaps and dispersion; None without times."""
    if arrival_ps is None:
        return None
    gaps = np.diff(arrival_ps).astype(np.float64)
    mean = float(gaps.mean()) if gaps.size else 0.0
    return {
        "span_s": float(gaps.sum()) / PS_PER_S,
        "rate_per_s": PS_PER_S / mean if mean else None,
        "gap_cv": float(gaps.std()) / mean if mean else None,
        "dispersion": {f"{window_s}s": dispersion(arrival_ps, window_s) for window_s in WINDOWS_S},
    }


def dispersion(arrival_ps: Ints, window_s: float) -> float | None:
    """Variance of the arrivals in windows of *window_s* ÷ their mean; None where there are too few windows."""
    window_ps = round(window_s * PS_PER_S)
    since_ps = arrival_ps - int(arrival_ps[0])
    windows = int(since_ps[-1]) // window_ps
    if windows < LEAST_WINDOWS:
        return None
    counts = np.bincount((since_ps[since_ps < windows * window_ps] // window_ps), minlength=windows)
    return float(counts.var() / counts.mean())


def lengths(tokens: Ints) -> dict[str, float]:
    """Mean, percentiles (by linear interpolation) and maximum."""
    points = np.percentile(tokens, PERCENTILES)
    named = {f"p{point}": float(value) for point, value in zip(PERCENTILES, points, strict=True)}
    return {"mean": float(tokens.mean()), **named, "max": int(tokens.max())}


def correlation(one: Ints, other: Ints) -> float | None:
    """Pearson's; None where one of the two never changes."""
    if len(one) < 2 or one.std() == 0 or other.std() == 0:
        return None
    return float(np.corrcoef(one, other)[0, 1])


def sessions(trace: Trace) -> dict[str, Any] | None:
    """How many conversations and how long; None where there are none."""
    if trace.session is None:
        return None
    labels = [label for label in trace.session if label]
    count = len(set(labels))
    think = None if trace.think_ps is None else float(trace.think_ps.mean()) / PS_PER_S
    return {"count": count, "turns_mean": len(labels) / count, "think_s_mean": think}


def prefix(trace: Trace) -> dict[str, Any] | None:
    """How much of the prompts an earlier row begins with; None where nothing is said about identity."""
    reused = reused_tokens(trace)
    return (
        None if reused is None else {"reused_tokens": reused, "reused_share": reused / int(trace.prompt_tokens.sum())}
    )
