"""A comparison with the error of the timing put through: ranges, ratios with both scaled alike, what has none."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result

import simbatch as sb
from simbatch.show.text import number
from simbatch.timing.linear import LinearTiming

Simbatch = Callable[..., Result]
ERROR = 0.1
RATE, TTFT, TPOT = "throughput.output_tokens_per_s", "latency_s.ttft.mean", "latency_s.tpot.mean"


class Known(LinearTiming):
    """A timing that knows how far off it may be, and counts nothing but iterations."""

    def __init__(self, base_ms: float = 10.0, name: str = "known") -> None:
        super().__init__(base_ms=base_ms)
        self.base_ms, self.name = base_ms, name

    def scaled(self, factor: float) -> Known:
        return type(self)(self.base_ms * factor, self.name)

    def describe(self) -> dict[str, Any]:
        return {"kind": "measured", "name": self.name, "error": ERROR}


class Rigid(LinearTiming):
    """It knows its error and cannot be scaled."""

    def __init__(self) -> None:
        super().__init__(base_ms=10)

    def describe(self) -> dict[str, Any]:
        return {"kind": "measured", "name": "rigid", "error": ERROR}


class Stopped(Known):
    """Somebody presses Ctrl-C while iterations are longer than they were."""

    def progression(self, iteration: sb.Iteration) -> tuple[int, int, int]:
        if self.base_ms > 10:
            raise KeyboardInterrupt
        return super().progression(iteration)


def together(*requests: tuple[int, int]) -> sb.Trace:
    return sb.Trace.from_columns(prompt_tokens=[p for p, _ in requests], output_tokens=[o for _, o in requests])


def small(trace: sb.Trace, **more: Any) -> sb.Comparison:
    return sb.compare(trace, **{"timing": Known(), "kv_tokens": 256, "max_model_len": 64, "uncertainty": True, **more})


def ratios(found: sb.Comparison, metric: str = RATE) -> dict[str, dict[str, Any]]:
    return {one["b"]: one for one in found.metrics()["uncertainty"]["ratios"] if one["metric"] == metric}


def loaded(rate_per_s: float = 14, count: int = 100) -> tuple[sb.Trace, sb.Deployment]:
    trace = sb.Trace.load("sharegpt").head(count).at_rate(rate_per_s, seed=0)
    return trace, sb.Deployment("llama-13b", price_usd_per_hour=2.5)


# -- ranges and ratios -----------------------------------------------------------------------------


def test_two_requests_worked_by_hand() -> None:
    """Figures move by the error itself; their ratio does not move at all, since both systems only count iterations."""
    found = small(together((4, 3), (4, 3)), systems=["naive", "orca-oracle"])
    block = found.metrics()["uncertainty"]
    assert (block["relative"], block["seed"], block["left_out"]) == (pytest.approx(ERROR), None, {})
    naive = block["systems"]["naive"]["figures"]
    assert naive[RATE] == {"low": pytest.approx(100 / 1.1), "high": pytest.approx(100 / 0.9)}
    assert naive[TTFT] == {"low": pytest.approx(0.0225), "high": pytest.approx(0.0275)}
    assert naive[TPOT] == {"low": pytest.approx(0.009), "high": pytest.approx(0.011)}
    for metric, ratio in ((RATE, 2), (TTFT, 0.4), (TPOT, 1)):
        entry = ratios(found, metric)["orca-oracle"]
        assert (entry["a"], entry["b"], entry["scaled_alike"]) == ("naive", "orca-oracle", True)
        assert [entry[key] for key in ("ratio", "low", "high")] == pytest.approx([ratio] * 3)


def test_ranges_are_those_of_runs_with_their_iterations_scaled() -> None:
    trace, here = loaded()
    found = sb.compare(trace, here, systems=["vllm", "orca-max"], uncertainty=True)
    block = found.metrics(ttft_s=1.0)["uncertainty"]
    error = block["relative"]
    assert error == pytest.approx(0.09)
    runs = {
        name: [
            sb.simulate(trace, here, system=name, timing_scale=factor).metrics(ttft_s=1.0)
            for factor in (1, 1 - error, 1 + error)
        ]
        for name in ("vllm", "orca-max")
    }
    values = {name: [run["throughput"]["output_tokens_per_s"] for run in runs[name]] for name in runs}
    costs = [run["cost"]["usd_per_million_output_tokens"] for run in runs["orca-max"]]
    shares = [run["goodput"]["share"] for run in runs["orca-max"]]
    for path, expected in (
        (RATE, values["orca-max"]),
        ("cost.usd_per_million_output_tokens", costs),
        ("goodput.share", shares),
    ):
        figures = block["systems"]["orca-max"]["figures"]
        assert figures[path] == {"low": min(expected), "high": max(expected)}
    pairs = [mine / first for first, mine in zip(values["vllm"], values["orca-max"], strict=True)]
    entry = ratios(found)["orca-max"]
    assert (entry["ratio"], entry["low"], entry["high"]) == (pairs[0], min(pairs), max(pairs))
    # What the ends would be if each were off by itself: the shared error is what makes ratios known better.
    apart = max(values["orca-max"]) / min(values["vllm"]) - min(values["orca-max"]) / max(values["vllm"])
    assert entry["high"] - entry["low"] < apart / 2


def test_nothing_else_of_the_comparison_changes() -> None:
    trace, here = loaded(count=40)
    asked, plain = (sb.compare(trace, here, systems=["vllm", "naive"], uncertainty=asked) for asked in (True, False))
    assert asked.metrics()["differences"] == plain.metrics()["differences"]
    assert "uncertainty" not in plain.metrics()
    assert plain.scaled is None
    assert "uncertainty" not in repr(plain)
    assert asked.frame().drop(columns="wall_s").equals(plain.frame().drop(columns="wall_s"))


def test_another_timing_may_be_off_by_itself() -> None:
    """The same iterations, so a ratio of 1: from 0.9/1.1 to 1.1/0.9 where each has an error of its own."""
    systems: dict[str, Any] = {"a": "naive", "b": {"system": "naive", "timing": Known(name="other")}, "c": "naive"}
    found = small(together((4, 3)), systems=systems)
    entry = ratios(found)["b"]
    assert not entry["scaled_alike"]
    assert (entry["ratio"], entry["low"], entry["high"]) == pytest.approx((1, 0.9 / 1.1, 1.1 / 0.9))
    assert ratios(found)["c"]["high"] == pytest.approx(1)
    assert "gains of b: another timing, so that each may be off by itself" in repr(found)
    assert "of all systems alike" not in repr(found)


def test_ratios_are_to_the_first_that_served_anything() -> None:
    """A limit of 200 tokens reserves more than there is, so one of them refuses all."""
    trace = sb.Trace.from_columns(prompt_tokens=[4], output_tokens=[3], max_tokens=[200])
    found = small(trace, systems=["naive", "orca-oracle", "vllm"], kv_tokens=64, max_model_len=300)
    assert {entry["a"] for entry in found.metrics()["uncertainty"]["ratios"]} == {"orca-oracle"}
    assert list(ratios(found)) == ["vllm"], "what served nobody has no ratio"


def test_near_saturation_it_is_said_of_whom() -> None:
    trace, here = loaded(count=300)
    warnings = sb.compare(trace, here, systems=["vllm", "orca-oracle"], uncertainty=True).metrics()["warnings"]
    said = [warning for warning in warnings if "near saturation" in warning]
    assert len(said) == 1
    assert said[0].startswith("orca-oracle: near saturation")
    assert "the verdict is overloaded or stable" in said[0]


def test_with_seeds_it_is_that_of_the_first() -> None:
    trace, here = loaded(count=30)
    seen: list[tuple[int, int]] = []
    found = sb.compare(
        trace,
        here,
        systems=["vllm", "orca-max"],
        seeds=[4, 5],
        uncertainty=True,
        on_progress=lambda done, total: seen.append((done, total)),
    )
    alone = sb.compare(trace.with_seed(4), here, systems=["vllm", "orca-max"], seed=4, uncertainty=True)
    ours, theirs = found.metrics()["uncertainty"], alone.metrics()["uncertainty"]
    assert (ours["seed"], theirs["seed"]) == (4, None)
    assert (ours["systems"], ours["ratios"]) == (theirs["systems"], theirs["ratios"])
    assert "less time, or more · seed 4" in repr(found)
    assert seen == [(done, 8) for done in range(1, 9)], "two systems, two seeds, and both ends of the first"


# -- the text --------------------------------------------------------------------------------------


def test_the_text_has_a_row_of_ranges_for_each_system() -> None:
    trace, here = loaded(count=60)
    found = sb.compare(trace, here, uncertainty=True)
    lines = repr(found).splitlines()
    assert max(map(len, lines)) <= 100
    at = next(place for place, line in enumerate(lines) if line.startswith("from .. to"))
    names = list(found.results)
    assert lines[at].split("  ")[-1].strip() == "gain"
    assert [line.split()[0] for line in lines[at + 1 : at + 1 + len(names)]] == names
    assert lines[at + 1].split()[-1] == "1"
    entry = ratios(found)["vllm"]
    low, value, high = (number(entry[key]) for key in ("low", "ratio", "high"))
    assert lines[at + len(names)].endswith(f"{low} to {high}")
    assert "uncertainty from .. to: if iterations of all systems alike take 9.0 % less time, or more" in lines
    said = f"vllm serves {value} times as many output tokens as naive; {low} to {high} times if so"
    assert said in [line.strip() for line in lines]


# -- what has no range -----------------------------------------------------------------------------


@pytest.mark.parametrize("timing", ["roofline", "linear:base_ms=5"])
def test_a_timing_that_states_no_error_is_refused_before_anything_long_has_run(timing: str) -> None:
    trace, here = loaded(count=20)
    served: list[int] = []
    with pytest.raises(sb.UsageError) as caught:
        sb.compare(trace, here, timing=timing, uncertainty=True, on_progress=lambda done, _: served.append(done))
    assert str(caught.value) == (
        f"uncertainty: the timing {timing.partition(':')[0]} states no error that could be put through. "
        "Take a profile (simbatch list profiles), or leave uncertainty out."
    )
    assert served == []


@pytest.mark.parametrize("where", ["shared", "own"])
def test_what_is_varied_cannot_be_given(where: str) -> None:
    more: dict[str, Any] = (
        {"timing_scale": 1.1} if where == "shared" else {"systems": {"a": "vllm", "b": {"timing_scale": 1.1}}}
    )
    with pytest.raises(sb.UsageError, match="timing_scale is what is varied here"):
        small(together((4, 3)), **more)


def test_systems_without_a_range_say_why_and_the_others_have_theirs() -> None:
    systems: dict[str, Any] = {
        "naive": "naive",
        "silent": {"timing": "linear:base_ms=10"},
        "rigid": {"timing": Rigid()},
        "wrong": {"watermark": 2.0},
        "vllm": "vllm",
    }
    found = small(together((4, 3), (4, 3)), systems=systems)
    block = found.metrics()["uncertainty"]
    assert list(block["systems"]) == ["naive", "vllm"]
    assert block["left_out"] == {
        "silent": "its timing linear states no error",
        "rigid": "Rigid cannot be scaled. Use a profile, or give it a method scaled(factor).",
    }
    assert list(found.failed) == ["wrong"]
    assert "uncertainty silent has no range: its timing linear states no error" in repr(found)
    json.dumps(found.metrics(), allow_nan=False)


def test_an_interruption_keeps_the_ranges_that_are_done() -> None:
    systems: dict[str, Any] = {"naive": "naive", "slow": {"timing": Stopped()}, "vllm": "vllm"}
    found = small(together((4, 3)), systems=systems)
    assert found.interrupted
    assert list(found.results) == list(systems), "the systems themselves had all run"
    block = found.metrics()["uncertainty"]
    assert list(block["systems"]) == ["naive"]
    assert block["left_out"] == dict.fromkeys(("slow", "vllm"), "interrupted before its end")
    assert block["ratios"] == []
    assert "uncertainty vllm has no range: interrupted before its end" in repr(found)


def test_progress_counts_the_runs_that_are_scaled() -> None:
    seen: list[tuple[int, int]] = []
    small(
        together(*[(4, 3)] * 50),
        systems=["naive", "vllm"],
        on_progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == sorted(seen)
    assert seen[-1] == (300, 300)


# -- the command line ------------------------------------------------------------------------------


def test_the_command_line_does_it_when_asked(simbatch: Simbatch) -> None:
    line = ("compare", "sharegpt", "--rate", "10", "--requests", "30", "--systems", "vllm,orca-max", "-q")
    assert "uncertainty" not in json.loads(simbatch(*line, "--json").stdout)
    done = simbatch(*line, "--uncertainty", "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert list(found["uncertainty"]) == ["seed", "relative", "systems", "ratios", "left_out"]
    assert found["config"]["command"].endswith("--uncertainty")
    assert "uncertainty from .. to" in simbatch(*line, "--uncertainty").stdout
    refused = simbatch(*line, "--uncertainty", "--timing", "linear:base_ms=5")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr.startswith("Error: uncertainty: the timing linear states no error")
