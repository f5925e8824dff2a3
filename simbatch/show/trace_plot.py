"""A trace as a picture: arrivals over time, lengths, and prompt against output."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simbatch.errors import UsageError
from simbatch.units import PS_PER_S

if TYPE_CHECKING:
    from simbatch.trace import Trace

_WINDOWS = 120
_MOST_DOTS = 20_000


def save_plot(trace: Trace, path: Path) -> None:
    """Draws *trace* into an image file; its ending says of which kind. Raises UsageError."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 3.6), layout="constrained")
    times, lengths, pairs = figure.subplots(1, 3)
    _draw_times(trace, times)
    for name in ("prompt", "output"):
        tokens = np.sort(getattr(trace, f"{name}_tokens"))
        lengths.plot(tokens, np.arange(1, len(tokens) + 1) / len(tokens), label=name)
        lengths.annotate(name, (tokens[len(tokens) // 2], 0.5))
    lengths.set(xscale="log", xlabel="tokens", ylabel="share of requests", title="lengths")
    step = -(-len(trace) // _MOST_DOTS)
    pairs.plot(trace.prompt_tokens[::step], trace.output_tokens[::step], ".", markersize=2, alpha=0.4)
    pairs.set(xscale="log", yscale="log", xlabel="prompt (tokens)", ylabel="output (tokens)", title="prompt and output")
    figure.suptitle(trace.name)
    try:
        figure.savefig(path)
    except (ValueError, OSError) as error:
        raise UsageError(f"--plot {path} cannot be drawn ({error}). End the name in .png, .svg or .pdf.") from None


def _draw_times(trace: Trace, axis: Any) -> None:
    axis.set(xlabel="time (s)", ylabel="requests/s", title="arrivals")
    if trace.arrival_ps is None:
        axis.text(0.5, 0.5, "no times", ha="center", va="center", transform=axis.transAxes)
        return
    seconds = trace.arrival_ps / PS_PER_S
    counts, edges = np.histogram(seconds, bins=_WINDOWS)
    width = float(edges[1] - edges[0])
    axis.stairs(counts / width, edges, fill=True)
