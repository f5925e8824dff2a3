"""Figures say what they claim: units on axes, limits drawn, numbers equal to the facts, nothing global changed."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt

import simbatch as sb
from simbatch.answers.highest_rate import Found, Probe
from simbatch.answers.sized import Choice, Size
from simbatch.show.plot.load import counts_over_time
from simbatch.show.plot.memory import COLOURS, shares_over_time
from simbatch.show.plot.reasons import parts_of_groups
from simbatch.show.plot.space import pieces_of

matplotlib.use("Agg")

HERE = sb.Deployment("llama-2-13b", gpu="h100", max_model_len=2048, price_usd_per_hour=2.99)


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
        (lambda r: sb.plot.wait_reasons(r), "mean end-to-end latency (s)", ""),
        (lambda r: sb.plot.wait_reasons(r["vllm"]), "mean end-to-end latency (s)", ""),
        (lambda r: sb.plot.capacity_per_dollar(r), "thousand output tokens per USD", ""),
    ],
)
def test_axes_have_units_and_the_style_stays_local(results: dict[str, sb.Result], draw: Any, x: str, y: str) -> None:
    before = dict(matplotlib.rcParams)
    ax = draw(results)
    ax.figure.canvas.draw()
    assert dict(matplotlib.rcParams) == before
    assert (ax.get_xlabel(), ax.get_ylabel()) == (x, y)
    assert ax.get_title(loc="left")


def test_replicas_are_averaged_in_memory_and_added_up_in_the_batch() -> None:
    """Each request three times on three replicas: the same shares of memory as one replica, and three times as many."""
    trace = sb.Trace.load("sharegpt").head(100).at_rate(14, seed=0)
    assert trace.arrival_ps is not None
    rows = np.repeat(np.arange(len(trace)), 3)
    threefold = sb.Trace.from_columns(
        arrival_ps=trace.arrival_ps[rows],
        prompt_tokens=trace.prompt_tokens[rows],
        output_tokens=trace.output_tokens[rows],
    )
    one, many = sb.simulate(trace, HERE), sb.simulate(threefold, HERE, replicas=3)
    for name, share in shares_over_time(one, 50)[1].items():
        assert np.allclose(shares_over_time(many, 50)[1][name], share), name
    for name in ("running", "waiting"):
        (times, counts), (same_times, sums) = (counts_over_time(result.facts, name) for result in (one, many))
        assert np.array_equal(times, same_times)
        assert np.array_equal(sums, 3 * counts)
        assert counts[-1] == 0
    assert "3 x" in sb.plot.kv_memory(many).get_title(loc="left")


def test_a_run_that_served_nobody_has_free_memory() -> None:
    nobody = sb.simulate(sb.Trace.from_columns(prompt_tokens=[4096], output_tokens=[1]), HERE)
    assert nobody.facts.requests["status"].tolist() == [2]
    assert (shares_over_time(nobody, 5)[1]["free"] == 1).all()
    sb.plot.kv_memory(nobody)
    sb.plot.batch_and_queue(nobody)


@pytest.mark.parametrize("draw", [sb.plot.kv_memory, sb.plot.batch_and_queue, sb.plot.timeline, sb.plot.address_space])
def test_one_result_is_asked_for(draw: Any, results: dict[str, sb.Result]) -> None:
    with pytest.raises(sb.UsageError, match=r"was given a dict\. Take one of its own: orca-max, vllm\."):
        draw(results)


@pytest.mark.parametrize("draw", [sb.plot.wait_reasons, sb.plot.latency_cdf, sb.plot.capacity_per_dollar])
def test_results_are_asked_for(draw: Any) -> None:
    with pytest.raises(sb.UsageError, match="there is no result to draw"):
        draw({})
    with pytest.raises(sb.UsageError, match="was given a list"):
        draw([1])


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


# -- where time goes -----------------------------------------------------------------------------


def test_bars_of_reasons_are_as_long_as_the_mean_latency(results: dict[str, sb.Result]) -> None:
    for result in results.values():
        parts = parts_of_groups(result)
        mean = result.metrics()["latency_s"]["e2e"]["mean"]
        assert sum(parts["all"].values()) == pytest.approx(mean)
        assert sum(parts["fastest half"].values()) < mean < sum(parts["slowest tenth"].values())
    ax = sb.plot.wait_reasons(results)
    assert [label.get_text() for label in ax.get_yticklabels()] == list(results)
    drawn = sum(patch.get_width() for patch in ax.patches)
    assert drawn == pytest.approx(sum(r.metrics()["latency_s"]["e2e"]["mean"] for r in results.values()))


def test_preempted_times_are_drawn_and_dots_where_they_are_not_known() -> None:
    trace = sb.Trace.load("sharegpt").head(120).at_rate(40, seed=0)
    result = sb.simulate(trace, kv_tokens=6000, max_model_len=2048, timing="linear:base_ms=6,token_us=20")
    assert result.requests["preemptions"].any()
    assert "preempted" in sb.plot.timeline(result).get_legend_handles_labels()[1]
    result.facts.stays = None
    assert "was preempted" in sb.plot.timeline(result).get_legend_handles_labels()[1]


# -- contiguous memory ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stepped() -> sb.Result:
    trace = sb.Trace.load("sharegpt").head(40).at_rate(10, seed=0)
    timing = "linear:base_ms=10,token_us=20"
    return sb.simulate(trace, system="orca-pow2", kv_tokens=8192, max_model_len=2048, timing=timing, step=True)


def test_the_map_holds_the_shares_of_the_facts(stepped: sb.Result) -> None:
    """Areas of the parts of all pieces, over time, are those that the rows integrate."""
    areas = dict.fromkeys(("live", "reserved", "internal", "external"), 0.0)
    for piece in pieces_of(stepped):
        lasts = np.diff(piece.times_s)
        live = np.array(piece.live[:-1])
        areas["live"] += float((live * lasts).sum())
        areas["reserved"] += float(((piece.fills - live) * lasts).sum())
        areas["internal"] += float((piece.reserved - piece.fills) * lasts.sum())
        areas["external"] += float((piece.size - piece.reserved) * lasts.sum())
    rows, lasts = stepped.facts.rows, (stepped.steps["end_s"] - stepped.steps["start_s"]).to_numpy()
    recorded = {name: float((rows[f"{name}_mean"] * lasts).sum()) for name in areas}
    for name in ("live", "reserved", "internal"):
        assert areas[name] == pytest.approx(recorded[name], rel=1e-6), name
    # Rows also count holes that the head of the queue finds too small; the map shows those as holes.
    assert 0 < areas["external"] <= recorded["external"]


def test_pieces_never_lie_on_one_another(stepped: sb.Result) -> None:
    pieces = pieces_of(stepped)
    assert len(pieces) == 40
    for i, one in enumerate(pieces):
        for other in pieces[i + 1 :]:
            together = min(one.times_s[-1], other.times_s[-1]) - max(one.times_s[0], other.times_s[0])
            if together > 1e-9:
                assert one.start + one.size <= other.start or other.start + other.size <= one.start


def test_the_map_is_drawn_in_the_colours_of_kv_memory(stepped: sb.Result) -> None:
    ax = sb.plot.address_space(stepped, from_s=1, to_s=6)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("simulated time (s)", "address (tokens)")
    assert ax.get_ylim() == (0, 8192)
    assert 1 <= ax.get_xlim()[0] < ax.get_xlim()[1] <= 6
    legend = ax.get_legend()
    assert legend is not None
    colours = [matplotlib.colors.to_hex(patch.get_facecolor()).upper() for patch in legend.get_patches()]
    assert colours[:4] == [COLOURS[name] for name in ("live", "reserved", "internal", "external")]


def test_a_run_without_addresses_says_how_to_get_them(results: dict[str, sb.Result]) -> None:
    with pytest.raises(sb.UsageError, match=r"does not say where pieces lay\. Run it step by step in contiguous"):
        sb.plot.address_space(results["orca-max"])


# -- rates, dollars, fits ------------------------------------------------------------------------


def probe(rate: float, e2e_s: float | None, share: float) -> Probe:
    return Probe(
        rate_per_s=rate,
        held=share >= 0.9,
        verdict="stable",
        share=share,
        share_by_limit={},
        bound_by={},
        requests_per_s=rate * 0.9,
        e2e_mean_s=e2e_s,
        output_tokens=100.0,
        total_tokens=200.0,
        still_filling=False,
        timing_error=0.0,
    )


def sized(rates: list[float], gpu: str = "h100", price: float | None = 3.6) -> Size:
    curve = [probe(1, 1.0, 1.0), probe(2, 1.1, 1.0), probe(4, 1.5, 0.95), probe(6, 5.0, 0.5), probe(8, None, 0.0)]
    found = [Found(probe(rate, 1.5, 0.95), None, 1) for rate in rates]
    here = HERE.replace(gpu=gpu, price_usd_per_hour=price)
    return Size({"rate_per_s": None}, [Choice({"gpu": gpu}, here, found=found, curve=curve)])


def test_latency_climbs_with_the_rate_and_the_knee_is_that_of_power() -> None:
    ax = sb.plot.rate_latency(sized([4.0, 4.4]))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("requests per second", "e2e mean (s)")
    assert ax.lines[0].get_xdata().tolist() == [1, 2, 4, 6]  # who served nobody has no latency
    assert [text.get_text() for text in ax.texts] == ["knee 4.00/s", "within the limits up to 4.20/s "]


def test_goodput_is_what_keeps_the_limits() -> None:
    ax = sb.plot.goodput({"a": sized([4.0]), "b": sized([4.0], "h200")})
    assert ax.lines[0].get_ydata().tolist() == pytest.approx([1, 2, 4 * 0.95, 6 * 0.5])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b"]
    assert "all that arrive " in [text.get_text() for text in ax.texts]


def test_a_sweep_has_a_curve_for_the_rest_of_its_grid() -> None:
    trace = sb.Trace.load("sharegpt").head(40)
    grid = {"rate_per_s": [8, 2, 4], "system": ["orca-max", "vllm"], "max_num_seqs": [16]}
    frame = sb.sweep(trace, HERE, grid=grid, ttft_s=0.5, n_jobs=1)
    ax = sb.plot.rate_latency(frame, latency="ttft_p99_s")
    assert ax.get_ylabel() == "ttft p99 (s)"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["orca-max", "vllm"]
    own = frame[frame["system"] == "vllm"].sort_values("rate_per_s")
    drawn = {line.get_label(): line for line in ax.lines}["vllm"]
    assert drawn.get_xdata().tolist() == [2, 4, 8]
    assert drawn.get_ydata().tolist() == own["ttft_p99_s"].tolist()
    good = {line.get_label(): line for line in sb.plot.goodput(frame).lines}["vllm"].get_ydata()
    assert good.tolist() == (own["rate_per_s"] * own["good_share"]).tolist()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (3, "a int has no rates to draw. Give what size or sweep returned"),
        (pd.DataFrame({"rate": [1]}), "the table has no column 'rate_per_s'"),
        (pd.DataFrame({"rate_per_s": [1.0], "e2e_mean_s": [None]}), "no run of it served anybody"),
    ],
)
def test_what_has_no_rates(data: Any, message: str) -> None:
    with pytest.raises(sb.UsageError, match=re.escape(message)):
        sb.plot.rate_latency(data)


def test_a_dollar_buys_the_rate_over_the_price() -> None:
    both = Size({"rate_per_s": None}, [*sized([4.0, 4.4]).choices, *sized([6.0], "h200", 4.5).choices])
    ax = sb.plot.capacity_per_dollar(both)
    assert [bar.get_width() for bar in ax.patches] == pytest.approx([6.0 / 4.5 * 3.6, 4.2 / 3.6 * 3.6])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["gpu h200", "gpu h100"]
    with pytest.raises(sb.UsageError, match="nothing here has a price"):
        sb.plot.capacity_per_dollar(sized([4.0], price=None))


def test_predictions_are_drawn_against_what_was_measured() -> None:
    here = sb.Deployment("llama-3.1-8b")
    draw = np.random.default_rng(0)
    frames = []
    for run in range(3):
        sequences = draw.integers(1, 200, 60)
        frame = pd.DataFrame({"tokens": sequences, "sequences": sequences, "context_tokens": sequences * (200 + run)})
        frame["duration_s"] = 8e-3 + sequences * 1e-5 * (1 + 0.01 * draw.standard_normal(60))
        frames.append(frame.assign(run=f"run {run}"))
    fit = sb.fit(pd.concat(frames), here, resamples=0)
    ax = sb.plot.predicted_against_measured(fit)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("measured iteration (ms)", "predicted iteration (ms)")
    dots = ax.lines[1]
    assert dots.get_xdata().size == 180
    assert np.allclose(dots.get_ydata() / dots.get_xdata() - 1, fit.unseen_errors)
    assert "of 180 within ± 10%" in ax.texts[0].get_text()
    together = pd.concat(frames).assign(iterations=5)
    together["duration_s"] *= 5
    same = sb.plot.predicted_against_measured(sb.fit(together, here, resamples=0)).lines[1]
    assert np.allclose(same.get_xdata(), dots.get_xdata())
    with pytest.raises(sb.UsageError, match="no measured iterations to compare with"):
        sb.plot.predicted_against_measured(dataclasses.replace(fit, problem=None))


def test_the_page_on_pictures_names_them_all() -> None:
    page = (Path(__file__).resolve().parent.parent / "docs" / "see-it.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| `(\w+)` \|", page[page.index("## Pictures") :], re.MULTILINE)) == sb.plot.__all__
