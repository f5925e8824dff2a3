"""The error of a timing goes through to a run: the same requests, every iteration shorter and longer by it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result

import simbatch as sb
from simbatch.errors import UsageError

Simbatch = Callable[..., Result]
HERE = sb.Deployment("llama-3.1-8b", gpu="h100")
ERROR = 0.09
"""What the profile of this GPU says of a model that was not measured."""
RUN = ("run", "sharegpt", "--requests", "150", "--rate", "10", "--price", "2.5")


def requests(rate_per_s: float, count: int = 150) -> sb.Trace:
    return sb.Trace.load("sharegpt").head(count).at_rate(rate_per_s, seed=0)


def test_a_range_is_the_run_with_its_iterations_scaled() -> None:
    found = sb.uncertainty(requests(10), HERE)
    metrics = found.metrics(ttft_s=0.5)
    plain, quick, slow = (
        sb.simulate(requests(10), HERE, timing_scale=factor).metrics(ttft_s=0.5) for factor in (1, 1 - ERROR, 1 + ERROR)
    )
    assert metrics["timing_error"]["relative"] == pytest.approx(ERROR)
    assert metrics["latency_s"] == plain["latency_s"], "the run itself is untouched"
    for path in (("latency_s", "ttft", "mean"), ("latency_s", "tpot", "mean"), ("throughput", "output_tokens_per_s")):
        values = []
        for run in (plain, quick, slow):
            value: Any = run
            for key in path:
                value = value[key]
            values.append(value)
        assert metrics["timing_error"]["figures"][".".join(path)] == {"low": min(values), "high": max(values)}
    tpot = metrics["timing_error"]["figures"]["latency_s.tpot.mean"]
    own = plain["latency_s"]["tpot"]["mean"]
    # The batch grows with the time of its iterations, so a decode moves by its error at least.
    assert tpot["low"] < own * (1 - ERROR) * 1.001
    assert tpot["high"] > own * (1 + ERROR) * 0.999


def test_a_timing_that_states_no_error_has_no_range() -> None:
    for timing in ("roofline", "linear:base_ms=5"):
        found = sb.uncertainty(requests(5, 20), HERE, timing=timing)
        assert found.metrics()["timing_error"] is None
        assert found.scaled == {}
        assert "uncertainty" not in repr(found)


def test_the_text_says_between_what_figures_lie() -> None:
    found = sb.uncertainty(requests(10), HERE)
    figures = found.metrics()["timing_error"]["figures"]
    lines = repr(found).splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("uncertainty mean TTFT "))
    low, high = (f"{figures['latency_s.tpot.mean'][end] * 1e3:.2f} ms" for end in ("low", "high"))
    assert f"mean TPOT {low} to {high}" in lines[at]
    assert lines[at + 1].endswith(" output tokens/s")
    assert lines[at + 2].strip() == "if iterations take 9.0 % less time, or more"
    assert max(map(len, lines)) <= 100
    assert "<pre" in found._repr_html_()


def test_near_saturation_it_warns_and_below_it_does_not() -> None:
    """The same requests far below what one GPU serves, and at a rate that it holds only if iterations are quick."""
    options: dict[str, Any] = {"max_num_seqs": 16}
    calm = sb.uncertainty(requests(1), HERE, **options).metrics()
    assert not any("near saturation" in warning for warning in calm["warnings"])
    found = sb.uncertainty(requests(6.5), HERE, **options)
    said = [warning for warning in found.metrics()["warnings"] if "near saturation" in warning]
    assert len(said) == 1
    assert "if they are off by 9.0 %, mean TTFT is " in said[0]
    ttft = found.metrics()["timing_error"]["figures"]["latency_s.ttft.mean"]
    own = found.metrics()["latency_s"]["ttft"]["mean"]
    assert f"{ttft['low'] / own:.2g} to {ttft['high'] / own:.2g} times that shown" in said[0]
    assert (ttft["high"] - ttft["low"]) / own > 2 * 2 * ERROR


def test_what_is_varied_cannot_be_given() -> None:
    with pytest.raises(UsageError, match="timing_scale is what is varied here"):
        sb.uncertainty(requests(1, 3), HERE, timing_scale=1.1)


def test_the_command_line_does_it_for_short_runs_and_when_asked(
    simbatch: Simbatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    import simbatch.cli.run as run_module

    found = json.loads(simbatch(*RUN, "--json").stdout)
    assert found["timing_error"]["relative"] == pytest.approx(ERROR)
    assert "cost.usd_per_million_output_tokens" in found["timing_error"]["figures"]
    assert "timing_error" not in json.loads(simbatch(*RUN, "--json", "--no-uncertainty").stdout)
    monkeypatch.setattr(run_module, "MOST_ITERATIONS", 10)
    done = simbatch(*RUN, "--json")
    assert "timing_error" not in json.loads(done.stdout)
    asked = json.loads(simbatch(*RUN, "--json", "--uncertainty").stdout)
    assert asked["timing_error"] == found["timing_error"]


def test_a_long_run_says_how_to_get_the_range(simbatch: Simbatch, monkeypatch: pytest.MonkeyPatch) -> None:
    import simbatch.cli.run as run_module

    monkeypatch.setattr(run_module, "MOST_ITERATIONS", 10)
    done = simbatch(*RUN)
    assert (done.exit_code, done.stderr) == (0, "")
    assert "uncertainty not computed for a run of this length: --uncertainty simulates it twice more" in done.stdout
    assert "uncertainty" not in simbatch(*RUN, "--no-uncertainty").stdout.replace("--no-uncertainty", "")


def test_a_saved_run_and_its_page_have_the_range(simbatch: Simbatch) -> None:
    done = simbatch(*RUN, "-o", "first")
    assert done.exit_code == 0, done.stderr
    from pathlib import Path

    saved = json.loads(Path("first/metrics.json").read_text())
    assert saved["timing_error"]["relative"] == pytest.approx(ERROR)
    assert simbatch("report", "first").exit_code == 0
    assert "If iterations take 9.0 % less time, or more, mean TTFT is " in Path("first/report.html").read_text()


def test_the_cost_at_full_load_has_a_range() -> None:
    found = sb.cost(requests(10, 60), HERE, price_usd_per_hour=2.5)
    full = found.metrics()["full_load"]
    low, high = found.metrics()["timing_error"]["full_load"]["usd_per_million_output_tokens"]
    # At full load a token costs as much more as the iterations take.
    assert low == pytest.approx(full["usd_per_million_output_tokens"] * (1 - ERROR), rel=0.01)
    assert high == pytest.approx(full["usd_per_million_output_tokens"] * (1 + ERROR), rel=0.01)
    assert "if iterations take 9.0 % less time, or more" in repr(found)
    plain = sb.cost(requests(10, 60), HERE, price_usd_per_hour=2.5, timing="roofline").metrics()
    assert plain["timing_error"] is None
