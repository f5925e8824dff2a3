"""Comparing systems: the same requests for each, what differs in numbers, and what fails in its place."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import simbatch as sb
from simbatch.answers.comparison import COMPARED
from simbatch.show.comparison import comparison_text
from simbatch.systems import SYSTEMS

BASE = "linear:base_ms=10"


def lengths(*requests: tuple[int, int], gap_s: float | None = None) -> sb.Trace:
    """(prompt, output) of each request; together at time 0, or *gap_s* seconds apart."""
    columns: dict[str, Any] = {"prompt_tokens": [p for p, _ in requests], "output_tokens": [o for _, o in requests]}
    if gap_s is not None:
        columns["arrival_s"] = [gap_s * k for k in range(len(requests))]
    return sb.Trace.from_columns(columns)


def small(trace: sb.Trace, **more: Any) -> sb.Comparison:
    return sb.compare(trace, **{"timing": BASE, "kv_tokens": 256, "max_model_len": 64, **more})


def without_wall(run: dict[str, Any]) -> dict[str, Any]:
    return {**run, "simulation": {**run["simulation"], "wall_s": None}}


def test_two_requests_worked_by_hand() -> None:
    """One after the other each takes its three iterations of 10 ms; together they share them."""
    found = small(lengths((4, 3), (4, 3)), systems=["naive", "orca-oracle"])
    one, both = (found.metrics()["systems"][name] for name in ("naive", "orca-oracle"))
    assert (one["simulation"]["makespan_s"], both["simulation"]["makespan_s"]) == (0.06, 0.03)
    assert (one["latency_s"]["ttft"]["mean"], both["latency_s"]["ttft"]["mean"]) == (0.025, 0.01)
    more = {entry["metric"]: entry for entry in found.metrics()["differences"]}
    assert more["throughput.output_tokens_per_s"] == {
        "metric": "throughput.output_tokens_per_s",
        "a": "naive",
        "b": "orca-oracle",
        "mean": pytest.approx(100),
        "low": None,
        "high": None,
    }
    assert more["latency_s.ttft.mean"]["mean"] == pytest.approx(-0.015)
    assert more["batch.running_mean"]["mean"] == 1
    assert "goodput.share" not in more


def test_each_result_is_that_of_a_run_of_its_own() -> None:
    trace = sb.Trace.load("sharegpt").head(80).at_rate(20, seed=4)
    here = sb.Deployment("llama-13b", gpu="a100-80")
    found = sb.compare(trace, here, systems=["static", "orca-pow2", "vllm-v0"], max_num_seqs=8, seed=4)
    for name, result in found.results.items():
        alone = sb.simulate(trace, here, system=name, max_num_seqs=8, seed=4)
        assert without_wall(result.metrics()) == without_wall(alone.metrics())
        result.check()


def test_every_named_system_meets_the_same_customers() -> None:
    found = small(lengths((5, 9), (7, 3), (6, 12), gap_s=0.02))
    assert list(found.results) == list(SYSTEMS)
    arrivals = {tuple(result.facts.requests["arrival_ps"].tolist()) for result in found.results.values()}
    assert arrivals == {(0, 20_000_000_000, 40_000_000_000)}


def test_without_anybody_else_around_all_systems_tie() -> None:
    """A gain needs somebody to share with: requests that never overlap take as long in every system."""
    found = small(lengths((20, 9), (30, 12), (9, 30), gap_s=1.0))
    latency = {name: run["latency_s"] for name, run in found.metrics()["systems"].items()}
    assert len(latency) == len(SYSTEMS)
    assert all(latency[name] == latency["naive"] for name in latency)
    spread = {entry["mean"] for entry in found.metrics()["differences"] if entry["metric"].startswith("throughput.")}
    assert spread == {0.0}


def test_differences_are_given_for_every_pair_in_order() -> None:
    found = small(lengths((4, 3), (4, 3)), systems=["orca-oracle", "naive", "vllm"]).metrics(ttft_s=0.02)
    pairs = list(dict.fromkeys((entry["a"], entry["b"]) for entry in found["differences"]))
    assert pairs == [("orca-oracle", "naive"), ("orca-oracle", "vllm"), ("naive", "vllm")]
    metrics = [entry["metric"] for entry in found["differences"] if entry["b"] == "naive"]
    assert metrics == [name for name in COMPARED if not name.startswith("cost.")]


def test_the_same_again_gives_the_same() -> None:
    trace = lengths((4, 9), (9, 4), (30, 30), gap_s=0.015)
    one, two = (small(trace, systems=["orca-max", "vllm"]).metrics() for _ in range(2))
    for name in one["systems"]:
        assert without_wall(one["systems"][name]) == without_wall(two["systems"][name])
    assert one["differences"] == two["differences"]
    assert one["config"] == two["config"]


# -- who takes part --------------------------------------------------------------------------------


class Newest(sb.Continuous):
    """Last come, first served."""

    def __init__(self) -> None:
        super().__init__(order=lambda sequence: -sequence.arrival_ps)


def test_schedulers_of_ones_own_by_object_and_arguments() -> None:
    trace = lengths((4, 9), (4, 9), (4, 9), gap_s=0.001)
    found = small(
        trace,
        systems={
            "plain": "vllm",
            "newest": Newest(),
            "narrow": {"scheduler": Newest(), "max_num_seqs": 1},
            "by path": {"system": "naive"},
        },
        max_num_seqs=2,
    )
    assert list(found.results) == ["plain", "newest", "narrow", "by path"]
    limits = {name: result.config["limits"]["max_num_seqs"] for name, result in found.results.items()}
    assert (limits["plain"], limits["newest"], limits["narrow"]) == (2, 2, 1)
    assert found.results["newest"].config["scheduler"]["name"] == "Newest"
    assert found.results["by path"].config["system"] == "naive"
    # The first is alone when it starts; with one seat the last to come is the next to go.
    first = found.results["narrow"].facts.requests["first_scheduled_ps"].argsort().tolist()
    assert first == [0, 2, 1]
    assert found.metrics()["config"]["systems"]["narrow"]["max_num_seqs"] == 1
    json.dumps(found.metrics(), allow_nan=False)


def test_objects_and_names_in_a_list() -> None:
    found = small(lengths((4, 3)), systems=[Newest(), "naive"])
    assert list(found.results) == ["Newest", "naive"]
    assert list(small(lengths((4, 3)), systems="naive").results) == ["naive"]


def test_gpus_may_be_compared_too() -> None:
    trace = sb.Trace.load("sharegpt").head(30).at_rate(20, seed=0)
    cards = {name: {"deployment": sb.Deployment("llama-13b", gpu=name)} for name in ("a100-80", "h100")}
    found = sb.compare(trace, systems=cards, max_model_len=1024)
    tpot = [run["latency_s"]["tpot"]["mean"] for run in found.metrics()["systems"].values()]
    assert tpot[0] > tpot[1]
    assert found.metrics()["config"]["systems"]["h100"]["deployment"]["gpu"] == "H100-SXM-80GB"
    assert "deployment  " not in repr(found), "there is no one deployment"


@pytest.mark.parametrize(
    ("systems", "text"),
    [
        (["vlm"], "unknown system 'vlm'. Did you mean vllm or vllm-v0?"),
        ({"mine": {"system": "vlm"}}, "unknown system 'vlm'. Did you mean vllm or vllm-v0?"),
        (
            ["vllm", "vllm"],
            "the system 'vllm' is asked for twice. Leave one out, or name them in a dict.",
        ),
        ([], f"no system was asked for. Name some of {', '.join(SYSTEMS)}."),
        (
            {"mine": 3},
            "the system 'mine' is 3, which is neither a name, a scheduler nor arguments of simulate. "
            'Give for example "vllm", an object derived from simbatch.Scheduler, or {"max_num_seqs": 64}.',
        ),
        (
            {"mine": {"trace": None}},
            "the system 'mine' has its own trace, which all systems share. Leave it out.",
        ),
    ],
    ids=["unknown", "unknown inside", "twice", "none", "no system", "own trace"],
)
def test_systems_that_cannot_be_asked_for(systems: Any, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simbatch.answers.compare.simulate", lambda *_, **__: pytest.fail("simulated first"))
    with pytest.raises(sb.UsageError) as caught:
        small(lengths((4, 3)), systems=systems)
    assert str(caught.value) == text


# -- what does not work out ------------------------------------------------------------------------


def test_a_system_that_cannot_be_set_up_is_reported_and_the_others_run() -> None:
    """Twenty tokens hold a request, and no reservation of the longest one."""
    found = small(lengths((4, 3)), systems=["orca-max", "vllm"], kv_tokens=32)
    assert list(found.results) == ["vllm"]
    assert found.failed == {
        "orca-max": "contiguous memory of 32 tokens has no piece for a reservation of max_model_len 64: the largest is "
        "32 tokens. Lower max_model_len to that, give more memory, or reserve less than max."
    }
    metrics = found.metrics()
    assert list(metrics["systems"]) == ["vllm"]
    assert metrics["failed"] == found.failed
    assert metrics["differences"] == []
    assert not metrics["interrupted"]
    assert [line.split()[:2] for line in repr(found).splitlines()[1:3]] == [["orca-max", "failed"], ["vllm", "offline"]]
    assert "failed      orca-max: contiguous memory of 32 tokens has no piece" in repr(found)
    frame = found.frame()
    assert list(frame.index) == ["orca-max", "vllm"]
    assert frame.loc["orca-max", "failed"].startswith("contiguous memory of 32 tokens")
    assert frame.loc["vllm", "failed"] == ""
    assert frame.loc["vllm", "output_tokens_per_s"] == pytest.approx(100)


class Shy(sb.Continuous):
    """Admits nobody."""

    def admit(self, *_: Any) -> bool:
        return False


def test_a_policy_that_breaks_its_contract_is_reported_too() -> None:
    found = small(lengths((4, 3)), systems={"shy": Shy(), "naive": "naive"})
    assert list(found.results) == ["naive"]
    assert found.failed["shy"].startswith("Shy plans nothing at 0.000000 s while 1 requests wait")


def test_when_all_fail_the_first_says_why() -> None:
    with pytest.raises(sb.UsageError, match="batch_size is 0"):
        small(lengths((4, 3)), systems=["static", "vllm"], batch_size=0)


class Interrupted(sb.Continuous):
    """Somebody presses Ctrl-C while it runs."""

    def plan(self, *_: Any) -> Any:
        raise KeyboardInterrupt


def test_an_interruption_keeps_what_is_done() -> None:
    systems: dict[str, Any] = {"naive": "naive", "slow": Interrupted(), "vllm": "vllm"}
    found = small(lengths((4, 3)), systems=systems)
    assert list(found.results) == ["naive"]
    assert found.interrupted
    assert found.failed == dict.fromkeys(("slow", "vllm"), "interrupted before its end")
    with pytest.raises(KeyboardInterrupt):
        small(lengths((4, 3)), systems={"slow": Interrupted(), "naive": "naive"})


# -- how it shows itself ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chapter() -> sb.Comparison:
    """All systems under a load that reserving the maximum cannot carry and paging can."""
    trace = sb.Trace.load("sharegpt").head(300).at_rate(14, seed=0)
    return sb.compare(trace, sb.Deployment("llama-13b", price_usd_per_hour=2.5))


def test_each_step_from_naive_to_paged_is_worth_something(chapter: sb.Comparison) -> None:
    rates = chapter.frame()["output_tokens_per_s"]
    ladder = ["naive", "static", "orca-max", "orca-pow2", "orca-oracle", "vllm"]
    assert list(rates[ladder]) == [*sorted(rates)[:5], rates["vllm"]]
    assert rates["vllm"] > 1.3 * rates["orca-max"] > 2 * rates["static"] > 4 * rates["naive"]


def test_the_frame_has_a_row_for_each_system_and_units_in_its_columns(chapter: sb.Comparison) -> None:
    frame, runs = chapter.frame(), chapter.metrics()["systems"]
    assert list(frame.index) == list(SYSTEMS)
    assert frame.index.name == "system"
    assert frame.loc["vllm", "ttft_p99_s"] == runs["vllm"]["latency_s"]["ttft"]["p99"]
    assert frame.loc["static", "kv_internal_share"] == runs["static"]["kv"]["internal_share"]
    assert frame.loc["naive", "held_back_by_max_num_seqs"] == runs["naive"]["bound_by"]["max_num_seqs"]
    shares = [f"kv_{name}_share" for name in ("live", "reserved", "internal", "external", "free")]
    assert frame[shares].sum(axis=1).tolist() == pytest.approx([1.0] * len(frame))
    assert "good_share" not in frame
    assert (
        chapter.frame(ttft_s=1.0).loc["vllm", "good_share"]
        == chapter.metrics(ttft_s=1.0)["systems"]["vllm"]["goodput"]["share"]
    )


def test_the_text_has_a_row_for_each_system_in_both_tables(chapter: sb.Comparison) -> None:
    text = repr(chapter)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 100
    assert [line.split()[0] for line in lines[1:9]] == list(SYSTEMS)
    assert [line.split()[0] for line in lines[11:19]] == list(SYSTEMS)
    run = chapter.metrics()["systems"]["orca-max"]
    assert f"{run['kv']['internal_share'] * 100:.1f} %" in lines[13]
    assert lines[1].split()[4] == "1.00", "the first is what the gain is against"
    assert lines[10].endswith("  held back by  $/M output")
    assert "deployment  Llama-13B on 1 x H100-SXM-80GB" in lines
    assert "timing      estimated · profile h100-80gb · moved to another model, ± 9.0 %" in lines
    assert chapter._repr_html_().startswith("<pre")


def test_limits_say_who_keeps_them(chapter: sb.Comparison) -> None:
    text = comparison_text(chapter.metrics(ttft_s=0.5, percentile=95))
    assert "limits      MET by vllm-v0, sarathi, vllm · 95 % of requests must keep every limit" in text
    share = chapter.metrics(ttft_s=0.5)["systems"]["orca-max"]["goodput"]["share"]
    assert f" · orca-max {share:.1%}".replace("%", " % · ") in text
    assert max(map(len, text.splitlines())) <= 100
    assert "NOT MET by any" in comparison_text(chapter.metrics(e2e_s=1e-6))


def test_a_warning_is_said_once_or_with_whom_it_is_about() -> None:
    trace = lengths((4, 3), (40, 20))
    found = small(trace, systems={"wide": "vllm", "short": {"max_model_len": 30}})
    at_once = "the trace has no arrival times: everything arrives at time 0"
    refused = "1 of 2 requests refused: prompt reaches max_model_len"
    assert found.metrics()["warnings"] == [at_once, f"short: {refused}"]
    assert "requests    short: 1 of 2 finished · 1 refused" in repr(found)
    assert f"warning     {at_once}" in repr(found)


def test_the_gain_is_against_the_first_that_served_anything() -> None:
    """A limit of 200 tokens reserves more than there is, so one of them refuses all."""
    trace = sb.Trace.from_columns(prompt_tokens=[4], output_tokens=[3], max_tokens=[200])
    found = small(trace, systems=["naive", "orca-oracle", "vllm"], kv_tokens=64, max_model_len=300)
    lines = repr(found).splitlines()
    assert [line.split()[4] for line in lines[1:4]] == ["-", "1.00", "1.00"]
    assert "gain        output tokens per second against orca-oracle, on the same requests" in lines


def test_other_timings_are_named_for_each() -> None:
    systems = {"fast": {"timing": "linear:base_ms=1"}, "own": {"timing": Constant()}}
    text = repr(small(lengths((4, 3)), systems=systems))
    assert "timing      fast · estimated · linear" in text
    assert "timing      own · measured · constant" in text


class Constant:
    """A timing of one's own."""

    def progression(self, iteration: sb.Iteration) -> tuple[int, int, int]:
        return 10**9, 0, 1 << 40

    def describe(self) -> dict[str, str]:
        return {"kind": "measured", "name": "constant"}


def test_progress_counts_the_requests_of_all_systems() -> None:
    seen: list[tuple[int, int]] = []

    def note(done: int, total: int) -> None:
        seen.append((done, total))

    progress: Callable[[int, int], None] = note
    small(lengths(*[(4, 3)] * 50), systems=["naive", "orca-max", "vllm"], on_progress=progress)
    assert seen == sorted(seen)
    assert {total for _, total in seen} == {150}
    assert seen[-1] == (150, 150)
