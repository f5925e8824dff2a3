"""The roofline of a card, and where each system's mean iteration lies under it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from simbatch.errors import UsageError
from simbatch.facts import durations_ps
from simbatch.show.plot.style import CYCLE, GREY, by_name, styled
from simbatch.units import PS_PER_S

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from simbatch.deployment import Deployment


@styled
def roofline(data: Any, ax: Axes, *, deployment: Deployment) -> None:
    """Arithmetic per byte read and arithmetic per second, of a result or several on *deployment*.

    Bytes are the weights once an iteration and the KV cache of each context token; arithmetic is
    two operations per parameter in use and token. Attention's own arithmetic is left out: it grows
    with the bytes it reads.
    """
    peak, bandwidth = deployment.peak_flop_per_s, deployment.card.bandwidth_bytes_per_s
    ridge = peak / bandwidth
    intensity = np.geomspace(0.3, ridge * 10, 200)
    ax.plot(intensity, np.minimum(peak, bandwidth * intensity) / 1e12, color=GREY)
    ax.axvline(ridge, color=GREY, linestyle="--", linewidth=1)
    ax.text(ridge, peak / 1e12 / 2, f"ridge {ridge:.0f} FLOP/B ", color=GREY, ha="right", va="top", rotation=90)
    results = by_name(data)
    for (label, result), colour in zip(results.items(), CYCLE * (len(results) // len(CYCLE) + 1), strict=False):
        flop, bytes_read, seconds = _work(result, deployment)
        if not seconds:
            raise UsageError(f"{label}: nothing ran, so there is no point to draw. Draw a run that served somebody.")
        ax.plot(flop / bytes_read, flop / seconds / 1e12, "o", color=colour, label=label)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel("arithmetic intensity (FLOP per byte read)")
    ax.set_ylabel("arithmetic (TFLOP/s on each GPU)")
    ax.set_title(f"Roofline of {deployment.card.name}, {deployment.shape.name}")
    ax.legend(loc="lower right")


def _work(result: Any, deployment: Deployment) -> tuple[float, float, float]:
    """(operations, bytes read, seconds) of a run on one GPU."""
    rows = result.facts.rows
    k = rows["iterations"].astype(np.float64)
    tokens = float((rows["tokens"] * k).sum())
    context = float((rows["context_tokens"] * k + rows["sequences"] * k * (k - 1) / 2).sum())
    shares = deployment.tensor_parallel_size
    flop = 2.0 * deployment.shape.active_params * tokens / shares
    read = deployment.weights_bytes_per_gpu * float(k.sum()) + deployment.kv_bytes_per_token_per_gpu * context
    return flop, read, float(durations_ps(rows).sum()) / PS_PER_S
