"""Figures say what they claim: units on axes, limits drawn, numbers equal to the facts, nothing global changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot as plt

import simbatch as sb
from simbatch.show.plot.memory import shares_over_time

matplotlib.use("Agg")

HERE = sb.Deployment("llama-2-13b", gpu="h100", max_model_len=2048)


@pytest.fixture(scope="module")
def results() -> dict[str, sb.Result]:
    trace = sb.Trace.load("sharegpt").head(150).at_rate(14, seed=0)
    return {system: sb.simulate(trace, HERE, system=system) for system in ("orca-max", "vllm")}


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    plt.close("all")


def test_kv_memory_has_the_shares_of_the_metrics(results: dict[str, sb.Result]) -> None:
    """Over busy time, the slices weigh to the time-weighted means that the metrics state."""
    result = results["orca-max"]
    edges, shares = shares_over_time(result, 5000)
    kv = result.metrics()["kv"]
    rows = result.facts.rows
    busy = float(((rows["first_ps"] * rows["iterations"]).sum()) / 1e12) / (edges[-1] - edges[0])
    for name in ("live", "reserved", "internal", "external"):
        assert float(np.mean(shares[name])) == pytest.approx(kv[f"{name}_share"] * busy, rel=0.02)
    assert np.allclose(sum(shares.values()), 1)


@pytest.mark.parametrize(
    ("draw", "x", "y"),
    [
        (lambda r: sb.plot.kv_memory(r["vllm"]), "simulated time (s)", "share of KV memory"),
        (lambda r: sb.plot.latency_cdf(r, metric="ttft", limit_s=0.5), "time to first token (s)", "share of requests"),
        (lambda r: sb.plot.latency_cdf(r["vllm"], metric="tpot"), "time per output token (s)", "share of requests"),
        (lambda r: sb.plot.batch_and_queue(r["orca-max"]), "simulated time (s)", "requests"),
        (lambda r: sb.plot.timeline(r["orca-max"], most=50), "simulated time (s)", "requests in order of arrival"),
        (
            lambda r: sb.plot.roofline(r, deployment=HERE),
            "arithmetic intensity (FLOP per byte read)",
            "arithmetic (TFLOP/s on each GPU)",
        ),
    ],
)
def test_axes_have_units_and_the_style_stays_local(results: dict[str, sb.Result], draw: Any, x: str, y: str) -> None:
    before = dict(matplotlib.rcParams)
    ax = draw(results)
    ax.figure.canvas.draw()
    assert dict(matplotlib.rcParams) == before
    assert (ax.get_xlabel(), ax.get_ylabel()) == (x, y)
    assert ax.get_title(loc="left")


def test_a_figure_can_be_drawn_on_an_axis_of_ones_own(results: dict[str, sb.Result]) -> None:
    _, axes = plt.subplots(1, 2)
    assert sb.plot.batch_and_queue(results["vllm"], axes[1]) is axes[1]
    assert not axes[0].has_data()


def test_the_limit_is_drawn_and_says_who_keeps_it(results: dict[str, sb.Result]) -> None:
    ax = sb.plot.latency_cdf(results, metric="ttft", limit_s=0.5)
    kept = results["vllm"].metrics(ttft_s=0.5)["goodput"]["share"]
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert f"vllm ({kept:.1%} within)" in labels
    assert any("limit 500 ms" in text.get_text() for text in ax.texts)


def test_operating_points_lie_under_the_roof(results: dict[str, sb.Result]) -> None:
    ax = sb.plot.roofline(results, deployment=HERE)
    for line in ax.lines[2:]:
        (intensity,), (reached,) = line.get_data()
        assert reached * 1e12 <= min(HERE.peak_flop_per_s, HERE.card.bandwidth_bytes_per_s * intensity)


def test_an_unknown_latency_names_the_known_ones(results: dict[str, sb.Result]) -> None:
    with pytest.raises(sb.UsageError, match=r"unknown latency .ttfft.\. Did you mean ttft"):
        sb.plot.latency_cdf(results, metric="ttfft")
