"""docs/fidelity-timing.md says what the command gives: its quick sets are computed again here, the rest is read."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fidelity import data, document
from fidelity.__main__ import main
from fidelity.replay import both, figures, row_of
from fidelity.targets import HEADS, SETS, Target

QUICK = ("steps", "published", "rtx")
"""Half a minute together; the others take some more each."""
LAST_DIGIT = 0.1
"""By so much a number of one decimal may differ on another machine, whose sums round otherwise."""


def numbers(cells: list[str]) -> list[float]:
    return [float(found.replace(",", "")) for cell in cells for found in re.findall(r"[-+]?\d[\d,]*\.?\d*", cell)]


def text(cells: list[str]) -> str:
    return re.sub(r"[-+]?\d[\d,]*\.?\d*", "#", " | ".join(cells))


def assert_same(computed: list[str], documented: list[str]) -> None:
    assert text(computed) == text(documented)
    for one, other in zip(numbers(computed), numbers(documented), strict=True):
        assert one == pytest.approx(other, rel=0.002, abs=LAST_DIGIT * 1.01), (computed, documented)


@pytest.mark.parametrize("name", QUICK)
def test_the_document_says_what_the_command_gives(shared: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMBATCH_SHARED", str(shared))
    outcome = SETS[name]()
    documented = {row[0]: row for row in document.rows_of(document.TARGETS)}
    for target in outcome.targets:
        assert_same(target.row(), documented[target.quantity])
    for section in outcome.sections:
        rows = document.rows_of(section.name)
        assert len(rows) == len(section.rows)
        for computed, told in zip(section.rows, rows, strict=True):
            assert_same(computed, told)


def test_every_target_is_told_and_those_missed_are_marked() -> None:
    """Read off the document alone: the mark agrees with the numbers beside it."""
    rows = document.rows_of(document.TARGETS)
    assert len(rows) >= 25
    for quantity, saw, source, limits, got, verdict in rows:
        assert saw, quantity
        assert source, quantity
        highest = [float(part) for part in re.findall(r"[\d.]+", limits.split(" to ")[-1])]
        met = all(
            abs(error) <= limit for error, limit in zip(numbers([got.replace(" / ", " ; ")]), highest, strict=True)
        )
        assert (verdict == "met") == met, quantity
        assert verdict in ("met", "**missed**")


def test_what_is_missed_is_explained() -> None:
    """Every missed quantity is named again below the table, with its reason."""
    page = document.PATH.read_text(encoding="utf-8")
    why = page.split("## What is missed, and why")[1].split("\n## ")[0]
    for row in document.rows_of(document.TARGETS):
        if row[-1] != "met":
            assert f"**{row[0]}**" in why, row[0]


def test_every_shared_run_with_requests_is_there() -> None:
    """All runs, not the best."""
    page = document.PATH.read_text(encoding="utf-8")
    told = {row[0] for row in document.rows_of("requests") + document.rows_of("reasoning")}
    for run in ("7b-tp1-codegen", "7b-tp1-general", "34b-tp2-general", "34b-tp2-roleplay", "34b-tp2-reasoning",
                "70b-tp4-general", "70b-tp4-roleplay", "70b-hf-tp4-reasoning"):  # fmt: skip
        assert any(run in name for name in told), run
    assert len(document.rows_of("fixed-batch")) == 22
    assert len(document.rows_of("kv-sweep-runs")) == 63
    assert "<!-- table: rtx -->" in page


def test_a_target_is_met_only_where_all_of_it_is() -> None:
    target = Target("q", "s", "d", (0.01, 0.05), (0.009, -0.051))
    assert not target.met
    assert target.row() == ["q", "s", "d", "1 / 5 %", "0.9 / -5.1", "**missed**"]
    assert Target("q", "s", "d", (0.01, 0.05), (-0.01, 0.05)).met
    assert Target("q", "s", "d", (0.15,), (-0.088,), floor=0.08).row()[3] == "8 to 15 %"
    assert len(target.row()) == len(HEADS)


def test_figures_of_requests_by_hand() -> None:
    """Two requests, three tokens each: one at 0 s, first token after 1 s, all after 3; the other a second later."""
    seen = pd.DataFrame({"ttft": [1000.0, 500.0], "e2e": [3000.0, 2500.0], "tpot": [1000.0, 1000.0]})
    found = figures(seen, pd.Series([0.0, 1.0]), pd.Series([3, 3]), 1.0, tail_from_s=0.5)
    assert found.latencies["ttft"][:2] == (750.0, 750.0)
    assert found.latencies["ttft"][3] == 500.0, "the first is too early for the tail"
    assert found.output_tokens_per_s == pytest.approx(6 / 3.5)
    assert found.sequences == pytest.approx(4 / 3.5)
    assert (found.preemptions, found.completed) == (1.0, 2.0)
    assert all(np.isnan(row_of(pd.Series([np.nan]))))


def test_numbers_beside_each_other() -> None:
    assert both(102.0, 100.0) == "102.0 / 100.0 (+2.0)"
    assert both(float("nan"), float("nan")) == "-"
    assert both(0.0, 0.0, 0) == "0 / 0"
    assert both(3.0, float("nan")) == "3.0 / -"


def test_a_set_written_alone_leaves_the_others(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("a\n\n<!-- table: targets -->\n| q | v |\n| --- | --- |\n| one | 1 |\n| two | 2 |\n\nb\n")
    new = data.Section("targets", ["q", "v"], [["two", "3"], ["three", "4"]])
    document.write([document.with_others(new, page)], page)
    assert document.rows_of("targets", page) == [["one", "1"], ["two", "3"], ["three", "4"]]
    assert page.read_text().startswith("a\n\n<!--")
    assert page.read_text().endswith("| three | 4 |\n\nb\n")
    with pytest.raises(ValueError, match="has no line <!-- table: other -->"):
        document.write([data.Section("other", [], [])], page)


def test_what_the_command_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["nothing"]) == 2
    assert "no set of runs is called nothing. Known: fixed-batch" in capsys.readouterr().err
    monkeypatch.setenv("SIMBATCH_SHARED", str(tmp_path))
    assert main(["steps"]) == 2
    assert "no measurements there. Set SIMBATCH_SHARED" in capsys.readouterr().err
    assert main(["--list"]) == 0
    assert capsys.readouterr().out.splitlines()[0].startswith("fixed-batch ")
    (tmp_path / "data" / "measured").mkdir(parents=True)
    assert main(["cards", "steps"]) == 2
    assert "cards is asked for alone" in capsys.readouterr().err
