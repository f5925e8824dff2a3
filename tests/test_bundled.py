"""The bundled traces are what their README says, and can be made again byte by byte."""

from __future__ import annotations

import csv
import gzip
import runpy
from pathlib import Path

import pytest

import simbatch as sb
from simbatch.trace import Trace, bundled_traces, list_traces

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "traces"
BUNDLES = runpy.run_path(str(FOLDER / "bundle.py"))["BUNDLES"]


def test_they_take_less_than_two_megabytes() -> None:
    assert sum(path.stat().st_size for path in bundled_traces().values()) < 2_000_000


def test_the_readme_lists_each_with_its_figures() -> None:
    rows = [line.split("|") for line in (FOLDER / "README.md").read_text().splitlines()]
    shown = {row[1].strip(" `"): (row[2].strip(), row[3].strip()) for row in rows if len(row) == 7 and "`" in row[1]}
    found = {
        trace["name"]: (
            f"{trace['rows']:,}",
            f"{trace['prompt_tokens_mean']:,.1f}, {trace['output_tokens_mean']:,.1f}",
        )
        for trace in list_traces()
    }
    assert shown == found


@pytest.mark.parametrize("name", sorted(BUNDLES))
def test_bundles_are_made_again_byte_by_byte(shared: Path, tmp_path: Path, name: str) -> None:
    make = runpy.run_path(str(FOLDER / "bundle.py"))["make"]
    make(BUNDLES[name], shared / "data" / "traces").save(tmp_path / "made.csv.gz")
    assert (tmp_path / "made.csv.gz").read_bytes() == bundled_traces()[name].read_bytes()


@pytest.mark.parametrize("name", sorted(set(bundled_traces()) - {"sharegpt-sessions"}))
def test_each_says_where_it_is_from_and_by_which_rule(name: str) -> None:
    trace = Trace.load(name)
    assert trace.rule
    assert any(line.startswith("origin: ") for line in trace.provenance)
    assert trace.dropped == 0
    assert trace.warnings == () or name in ("burstgpt", "burstgpt-sessions", "ragpulse", "servegen-m-large")


def test_sharegpt_sessions_are_those_made_apart_and_run(shared: Path) -> None:
    trace = Trace.load("sharegpt-sessions")
    assert trace.session is not None
    assert trace.turn is not None
    prompts, outputs, turns = (a.tolist() for a in (trace.prompt_tokens, trace.output_tokens, trace.turn))
    found = [
        (session, str(turn), str(prompt - (prompts[row - 1] + outputs[row - 1] if turn else 0)), str(output))
        for row, (session, turn, prompt, output) in enumerate(zip(trace.session, turns, prompts, outputs, strict=True))
    ]
    path = shared / "data" / "traces" / "sharegpt" / "sharegpt_sessions.csv.gz"
    wanted = list(csv.reader(gzip.decompress(path.read_bytes()).decode().splitlines()))[1:]
    assert found == [tuple(row) for row in wanted]
    assert len(set(trace.session)) == 6_304
    segments = trace.segments(2)
    assert segments == (("r:0.0", 0, 36), ("o0.0", 0, 276), ("r:0.1", 0, 38), ("o0.1", 0, 341), ("r:0.2", 0, 21))
    result = sb.simulate(trace.head(60).at_rate(2), kv_tokens=100_000, max_model_len=16_384, timing="linear:base_ms=5")
    result.check()
    assert result.metrics()["requests"]["finished"] == 60
