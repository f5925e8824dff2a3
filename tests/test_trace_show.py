"""What a trace is like in figures, in words and as a picture; the verbs of `simbatch trace`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from hypothesis import given, settings
from hypothesis import strategies as st

from simbatch.trace import Trace, bundled_traces
from simbatch.trace.reuse import reused_tokens
from simbatch.trace.statistics import correlation, dispersion, lengths, statistics
from simbatch.units import PS_PER_S

Simbatch = Callable[..., Result]

STREAMS = st.sampled_from(["a", "b", "o0", "o1", "o2", "r:0"])
PROMPTS = st.lists(st.tuples(STREAMS, st.integers(0, 3), st.integers(1, 4)), min_size=1, max_size=4)


def tokens(segments: list[tuple[str, int, int]]) -> list[tuple[str, int]]:
    return [(stream, start + k) for stream, start, length in segments for k in range(length)]


def common(one: list[tuple[str, int]], other: list[tuple[str, int]]) -> int:
    return next((k for k, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


@settings(max_examples=300, deadline=None)
@given(prompts=st.lists(PROMPTS, min_size=1, max_size=6), data=st.data())
def test_reuse_is_the_longest_beginning_that_has_been_seen(
    prompts: list[list[tuple[str, int, int]]], data: st.DataObject
) -> None:
    outputs = [data.draw(st.integers(1, 4)) for _ in prompts]
    trace = Trace.from_columns(
        segments=prompts,
        prompt_tokens=[sum(length for _, _, length in prompt) for prompt in prompts],
        output_tokens=outputs,
    )
    seen: list[list[tuple[str, int]]] = []
    expected = 0
    for row, (prompt, output) in enumerate(zip(prompts, outputs, strict=True)):
        asked = tokens(prompt)
        expected += max((common(asked, before) for before in seen), default=0)
        # The last token of an answer is never fed back.
        seen.append(asked + [(f"o{row}", k) for k in range(output - 1)])
    assert reused_tokens(trace) == expected


def test_reuse_needs_something_said_about_identity() -> None:
    assert reused_tokens(Trace.from_lengths([5], [5])) is None
    grouped = Trace.from_columns(
        prompt_tokens=[20, 20, 20], output_tokens=[1, 1, 1], prefix_group=["g", "g", None], prefix_tokens=[12, 8, None]
    )
    assert reused_tokens(grouped) == 8


def test_dispersion_counts_whole_windows_from_the_first_arrival_on() -> None:
    # Two in every even second, none in the odd ones: mean 1, variance 1; the last one ends no window.
    times = np.array([5 + second + part for second in range(0, 20, 2) for part in (0.0, 0.5)] + [25.0])
    assert dispersion((times * PS_PER_S).astype(np.int64), 1) == pytest.approx(1.0)
    assert dispersion((times * PS_PER_S).astype(np.int64), 10) is None


def test_lengths_and_correlation_are_numpys() -> None:
    values = np.array([1, 2, 3, 4, 100])
    expected = {"mean": 22.0, "p50": 3.0, "p90": 61.6, "p95": 80.8, "p99": 96.16, "max": 100}
    assert lengths(values) == pytest.approx(expected)
    assert correlation(values, values * 2) == pytest.approx(1.0)
    assert correlation(values, np.ones(5)) is None


def test_figures_of_a_bundled_trace() -> None:
    figures = statistics(Trace.load("azure-conv-2023"))
    assert figures["rows"] == 11_619
    assert figures["arrivals"]["rate_per_s"] == pytest.approx(5.83, abs=0.005)
    assert figures["arrivals"]["gap_cv"] == pytest.approx(1.08, abs=0.005)
    assert figures["arrivals"]["dispersion"]["60s"] > figures["arrivals"]["dispersion"]["1s"] > 1
    assert figures["prompt_tokens"]["mean"] == pytest.approx(1263.5, abs=0.05)
    assert figures["prefix"] is figures["sessions"] is None
    json.dumps(figures, allow_nan=False)


def test_show_says_what_was_left_out_and_why(simbatch: Simbatch, tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text(
        "Timestamp,Model,Request tokens,Response tokens\n5,x,10,5\n6,x,10,0\n7,x,10,0\n8,x,0,5\n9,x,30,5\n"
    )
    done = simbatch("trace", "show", "b.csv", "--drop-bad")
    assert done.exit_code == 0
    shown = done.stdout.splitlines()
    assert shown[0] == "b.csv: 2 requests, BurstGPT."
    assert "left out    3 rows" in shown
    assert "            2: output_tokens is 0, but a request asks for at least 1 (line 3 first)" in shown
    assert "            1: prompt_tokens is 0, but a request has at least 1 (line 5)" in shown
    assert "not used    columns Model" in shown
    assert max(map(len, shown)) <= 100
    assert done.stderr.splitlines()[0] == "Warning: b.csv: 3 bad rows were left out."


def test_show_as_json_and_of_sessions(simbatch: Simbatch) -> None:
    figures = json.loads(simbatch("trace", "show", "burstgpt-sessions", "--json", "-q").stdout)
    assert figures["sessions"] == {"count": 28, "turns_mean": 2.25, "think_s_mean": None}
    text = simbatch("trace", "show", "burstgpt-sessions", "-q").stdout
    assert "sessions    28 · 2.25 turns on average · a turn waits for the one before" in text


def test_show_draws(simbatch: Simbatch, tmp_path: Path) -> None:
    for name in ("sharegpt", "azure-code-2023"):
        done = simbatch("trace", "show", name, "-q", "--plot", "p.png")
        assert done.exit_code == 0, done.output
        assert (tmp_path / "p.png").read_bytes()[:4] == b"\x89PNG"
    wrong = simbatch("trace", "show", "sharegpt", "-q", "--plot", "p.doc")
    assert wrong.exit_code == 2
    assert wrong.stderr.startswith("Error: --plot p.doc cannot be drawn (")


def test_convert_keeps_everything_and_names_its_origin(simbatch: Simbatch, tmp_path: Path) -> None:
    row = {"timestamp": 3000, "input_length": 655, "output_length": 52, "hash_ids": [46, 47]}
    (tmp_path / "m.jsonl").write_text(json.dumps(row) + "\n" + json.dumps({**row, "timestamp": 4000}) + "\n")
    done = simbatch("trace", "convert", "m.jsonl", "-o", "ours.csv", "--requests", "3")
    assert (done.exit_code, done.stdout) == (0, "")
    trace, back = Trace.load(tmp_path / "m.jsonl").head(3), Trace.load(tmp_path / "ours.csv")
    assert [back.segments(row) for row in range(3)] == [trace.segments(row) for row in range(3)]
    assert np.array_equal(back.arrival_ps, trace.arrival_ps)
    assert back.provenance == (f"converted from m.jsonl, sha256 {trace.sha256}",)
    assert back.transforms == ("load(format=Mooncake)", "head(3)")
    wrong = simbatch("trace", "convert", "m.jsonl", "-o", "ours.txt")
    assert wrong.stderr.startswith("Error: ours.txt does not say what to write. ")


def test_convert_reads_with_the_flags_of_run(simbatch: Simbatch, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("when,in,out\n604799000,1,1\n0,2,2\n")
    flags = ("--columns", "arrival_s=when,prompt_tokens=in,output_tokens=out", "--time-unit", "ms", "--wrap", "7d")
    done = simbatch("trace", "convert", "t.csv", *flags, "-o", "o.csv", "-q")
    assert (done.exit_code, done.output) == (0, "")
    trace = Trace.load(tmp_path / "o.csv")
    assert trace.arrival_ps is not None
    assert trace.arrival_ps.tolist() == [0, PS_PER_S]
    names = "{'arrival_s': 'when', 'prompt_tokens': 'in', 'output_tokens': 'out'}"
    assert trace.transforms == (f"load(columns={names}, time_unit=ms, wrap_s=604800.0)",)


def test_generate_writes_what_the_library_makes(simbatch: Simbatch, tmp_path: Path) -> None:
    done = simbatch(
        *"trace generate --requests 50 --prompt-tokens uniform:5-9 --output-tokens 3 --arrivals".split(),
        *"mmpp:rates=1/9,stays=3s/1s --prefix-groups 2 --prefix-tokens 16 --zipf 1 --turns 2 --think 1s".split(),
        *"--seed 4 -o made.jsonl.gz".split(),
    )
    assert (done.exit_code, done.stdout) == (0, "")
    trace = Trace.load(tmp_path / "made.jsonl.gz")
    assert len(trace) == 50
    assert trace.session is not None
    assert trace.think_ps is not None
    assert trace.rule is not None
    assert "turns=2, think_s=1.0, seed=4" in trace.rule
    wrong = simbatch("trace", "generate", "--requests", "5", "--prompt-tokens", "norm:5", "-o", "x.csv")
    assert wrong.exit_code == 2
    assert wrong.stderr.startswith("Error: lengths are missing. ")


@pytest.mark.parametrize("verb", ["show", "derive", "convert", "generate"])
def test_help_of_the_verbs_fits_on_a_screen(simbatch: Simbatch, verb: str) -> None:
    lines = simbatch("trace", verb, "--help").stdout.splitlines()
    assert len(lines) <= 50
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith(f"Example: simbatch trace {verb} ")


# -- running them ----------------------------------------------------------------------------------

LIGHT = (
    "--timing",
    "linear:base_ms=5,token_us=20",
    "--kv-tokens",
    "400000",
    "--max-model-len",
    "131072",
    "--json",
    "-q",
)


def metrics(simbatch: Simbatch, *flags: str) -> dict[str, dict[str, object]]:
    done = simbatch("run", *flags, *LIGHT)
    assert done.exit_code == 0, done.output
    found: dict[str, dict[str, object]] = json.loads(done.stdout)
    return found


def test_run_in_a_closed_loop(simbatch: Simbatch) -> None:
    found = metrics(simbatch, "sharegpt", "--requests", "200", "--concurrency", "5")
    assert found["config"]["concurrency"] == 5
    assert found["batch"]["running_max"] == 5
    assert found["requests"]["finished"] == 200


def test_run_sessions_and_break_them_up(simbatch: Simbatch) -> None:
    together = metrics(simbatch, "burstgpt-sessions", "--rate", "5")
    apart = metrics(simbatch, "burstgpt-sessions", "--rate", "5", "--open-loop")
    assert together["requests"]["finished"] == apart["requests"]["finished"] == 66
    assert together["simulation"]["makespan_s"] != apart["simulation"]["makespan_s"]


def test_run_with_an_arrival_process(simbatch: Simbatch) -> None:
    found = metrics(simbatch, "sharegpt", "--requests", "200", "--arrivals", "constant", "--rate", "10")
    assert found["config"]["trace"]["transforms"][-1] == "arriving(Renewal(rate_per_s=10.0, burstiness=inf), seed=0)"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ("--concurrency", "5", "--rate", "3"),
            "--concurrency is a closed loop, in which the answers set the pace, and --rate an open one. ",
        ),
        (("--arrivals", "mmpp:rates=1/2,stays=1s/2s", "--time-scale", "2"), "--arrivals replaces recorded times, so "),
        (("--concurrency", "0"), "the concurrency is 0, but a closed loop has at least 1 user. "),
        (("--arrivals", "poisson"), "arrivals 'poisson' need a rate. Add --rate, such as --rate 5."),
    ],
)
def test_flags_that_contradict_each_other_are_refused(simbatch: Simbatch, flags: tuple[str, ...], message: str) -> None:
    done = simbatch("run", "sharegpt", "--requests", "5", *flags, *LIGHT)
    assert done.exit_code == 2
    assert done.stderr.startswith(f"Error: {message}")


@pytest.mark.parametrize("name", sorted(set(bundled_traces()) - {"sharegpt", "sharegpt-sessions"}))
def test_every_bundled_trace_runs(simbatch: Simbatch, name: str) -> None:
    found = metrics(simbatch, name, "--requests", "50")
    assert found["requests"]["finished"] == 50
