"""Published results: every row has a verdict, the page is what was computed, and what is quick is computed again.

`docs/published-results.md` is made by ``python -m published --write`` from `published/scenarios`. What takes longer is
kept in `published/results.json` with a digest of what it follows from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import simbatch as sb
from published.cli import main
from published.compute import Computed, compute
from published.expression import erlang_c, evaluate, harmonic
from published.page import PAGE, VERDICTS, page, verdicts
from published.results import digest, keep, kept, refitted
from published.runs import World
from published.scenario import FOLDER, Row, Scenario, merged, read_scenario, read_scenarios
from published.traffic import make_trace
from published.verdict import agrees, parse_published, parse_tolerance

ROOT = Path(__file__).resolve().parent.parent
IDS = [
    line for line in (ROOT / "published" / "rows.txt").read_text("utf-8").split() if re.fullmatch(r"[A-Z$]\d+", line)
]
SCENARIOS = read_scenarios()
QUICK = [scenario for scenario in SCENARIOS if scenario.fast and scenario.rows]


def stored() -> list[tuple[Scenario, list[Computed]]]:
    return [(scenario, kept(scenario)) for scenario in SCENARIOS]


# -- the page ----------------------------------------------------------------------------------------


def test_every_row_of_the_reference_list_has_a_verdict() -> None:
    assert len(IDS) == len(set(IDS)) == 129
    text = PAGE.read_text(encoding="utf-8")
    told = dict(re.findall(r"^\| ([A-Z$]\d+) \| \d+ \| ([^|]+) \| `[^|]+ \|$", text, re.MULTILINE))
    assert sorted(told) == sorted(IDS)
    assert all(any(name in verdict for name in VERDICTS) for verdict in told.values())
    # And a line of its own in a table of some scenario.
    assert {cells[1] for line in text.split("\n") if len(cells := line.split("|")) > 8} >= {f" {id} " for id in IDS}


def test_the_ids_are_those_of_the_list(shared: Path) -> None:
    path = shared / "reference" / "published-results.md"
    if not path.exists():
        pytest.skip("needs the reference list of published results")
    text = path.read_text(encoding="utf-8")
    assert re.findall(r"^\| ([A-Z$]\d+) \|", text, re.MULTILINE) == IDS


def test_the_page_is_what_was_computed_and_nothing_else() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(stored()), "run: python -m published --page"


def test_whatever_differs_has_a_reason() -> None:
    for scenario, computed in stored():
        if any(not one.agrees and not one.row.why and not one.row.after for one in computed):
            assert scenario.why, f"{scenario.name} has rows that differ, and says nothing of why"


def test_rows_that_try_a_reason_come_beside_the_row_that_needs_one() -> None:
    tried = [row for scenario in SCENARIOS for row in scenario.rows if row.after]
    assert tried
    for row in tried:
        needs = [other for scenario in SCENARIOS for other in scenario.rows if other.id == row.id and not other.after]
        assert row.tolerance in [other.tolerance for other in needs], row
    counted = verdicts(stored())
    assert sum(counts["tried afterwards"] for counts in counted.values()) == len(tried)


def test_a_published_value_is_never_in_what_is_computed() -> None:
    """A run that gets its answer from the answer proves nothing; rows of pure arithmetic have no run at all."""
    for scenario in SCENARIOS:
        for row in scenario.rows:
            names = re.findall(r"\b([a-z]\w*)\.", str(row.value))
            if any(name in scenario.tables["runs"] for name in names) and len(row.published.text) > 3:
                assert row.published.text.replace(",", "") not in re.findall(r"[\d.]+", str(row.value)), row


# -- quick ones, again -------------------------------------------------------------------------------


@pytest.mark.published
@pytest.mark.parametrize("scenario", QUICK, ids=lambda scenario: scenario.name)
def test_it_comes_out_as_it_did(scenario: Scenario) -> None:
    """To a millionth; where a profile was fitted anew since, within a tenth, about the error it states for itself."""
    rel = 0.1 if refitted(scenario) else 1e-6
    for new, old in zip(compute(scenario, bands=False), kept(scenario), strict=True):
        assert new.ours == pytest.approx(old.ours, rel=rel), f"run: python -m published {scenario.name} --write"


@pytest.mark.published
def test_a_further_row_is_the_same_file_with_other_numbers(tmp_path: Path) -> None:
    """Another load and service time: the law holds again. Another limit of lengths: between its neighbours."""
    text = (FOLDER / "distserve-queue.toml").read_text(encoding="utf-8")
    changed = text.replace("rate_per_s = 8", "rate_per_s = 10").replace("base_ms=100", "base_ms=50")
    (tmp_path / "other.toml").write_text(changed, encoding="utf-8")
    other = World(read_scenario(tmp_path / "other.toml").tables)
    load, each_s = 10 * 0.05, 0.05
    assert other.value("one.ttft_mean_s") == pytest.approx(each_s + load * each_s / (2 * (1 - load)), rel=0.05)

    scenario = read_scenarios(["anyscale"])[0]
    lengths = {"traffic": {"output": "exponential:mean=128,max=256"}}
    runs = {"static256": {"system": "static", "batch_size": 10, **lengths}}
    runs |= {"continuous256": {"system": "orca-oracle", "placement": "first-fit", "kv_tokens": 7800, **lengths}}
    world = World(merged(scenario.tables, {"runs": runs, "run": {"seeds": 1}}))
    gain = world.value("continuous256.total_tokens_per_s / static256.total_tokens_per_s")
    assert world.value("gain128") < gain < world.value("gain512")


# -- verdicts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("published", "tolerance", "inside", "outside"),
    [
        ("38.2", "4 points", (34.2, 42.2), (34.1, 42.3)),
        ("9.81", "15 %", (8.34, 11.28), (8.33, 11.29)),
        ("7.00", "exact", (7.0,), (7.001,)),
        ("8.85", "rounding", (8.846, 8.854), (8.84, 8.86)),
        ("15,728", "rounding", (15_727.6,), (15_726.0, 15_729.0)),
        ("26", "rounding", (25.6, 26.4), (25.4, 26.6)),
        ("0.04", "factor 2", (0.02, 0.08), (0.019, 0.081)),
        ("1.7 to 2.7", "25 %", (1.28, 3.37), (1.27, 3.38)),
        ("1.7 to 2.7", "exact", (1.7, 2.7), (1.69, 2.71)),
        ("at most 1.2", "exact", (0.1, 1.2), (1.21,)),
        ("at least 1", "exact", (1.0, 99.0), (0.99,)),
        ("0", "exact", (0.0,), (0.001,)),
    ],
)
def test_what_agrees(published: str, tolerance: str, inside: tuple[float, ...], outside: tuple[float, ...]) -> None:
    value, allowed = parse_published(published), parse_tolerance(tolerance)
    assert all(agrees(ours, value, allowed) for ours in inside)
    assert not any(agrees(ours, value, allowed) for ours in outside)


def test_arithmetic_of_files() -> None:
    known: Mapping[tuple[str, str | None], float] = {("a", "b"): 3.0, ("c", None): 2.0}
    assert evaluate("(a.b - 1) / c ** 2", lambda name, quantity: known[name, quantity]) == 0.5
    assert evaluate("min(a.b, 5) // c", lambda name, quantity: known[name, quantity]) == 1
    assert evaluate("a.b <= 2", lambda name, quantity: known[name, quantity]) == 0
    assert harmonic(4) == pytest.approx(25 / 12)
    assert erlang_c(1, 0.8) == pytest.approx(0.8)  # one server: it waits when the server is busy


@pytest.mark.parametrize(
    "text", ["__import__('os')", "a.b.c", "[1]", "open('x')", "1 +", "'text'", "lambda: 1", "a.b / 0"]
)
def test_what_is_no_arithmetic_is_refused(text: str) -> None:
    with pytest.raises(sb.UsageError):
        evaluate(text, lambda name, quantity: 1.0)


# -- files and runs that are wrong -------------------------------------------------------------------

GOOD = """\
title = "t"
source = "s"
setting = "x"
rows = [{ id = "P1", what = "w", published = "1", value = "one.finished", tolerance = "exact" }]
[traffic]
prompt_tokens = [5]
output_tokens = [3]
[run]
deployment = "none"
timing = "linear:base_ms=1"
kv_tokens = 100
max_model_len = 50
system = "naive"
[runs.one]
"""


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('title = "t"', 'titel = "t"', "'titel' is no part of a scenario"),
        ("what =", "wat =", "'wat' is no field"),
        ('published = "1"', "published = 1", "Write it in quotes"),
        ('published = "1"', 'published = "about 1"', "Write such as"),
        ('tolerance = "exact"', 'tolerance = "15%"', "Write 'exact'"),
        ("[runs.one]", "[runs.two]", "'one' is no run"),
        ("one.finished", "one.finnished", "has no 'finnished'. It has"),
        ("prompt_tokens =", "prompts =", "'prompts' is no part of traffic"),
        ('system = "naive"', 'system = "naiv"', "naive"),
        ('system = "naive"', 'sistem = "naive"', "sistem"),
        ('system = "naive"', 'system = "naive"\nwindow_s = [5, 9]', "Move window_s"),
        ("[runs.one]", "[runs.one]\nsearch = { low = 1 }", "search has no high"),
        ("[runs.one]", "[runs.one]\nsearch = { lo = 1 }", "'lo' is no part of search"),
        ("[runs.one]", "[steps.one]", "computes nothing"),
    ],
)
def test_what_is_wrong_in_a_file_is_said_with_its_name(tmp_path: Path, old: str, new: str, says: str) -> None:
    assert old in GOOD
    path = tmp_path / "mine.toml"
    path.write_text(GOOD.replace(old, new), encoding="utf-8")
    with pytest.raises(sb.UsageError, match=re.escape(says)) as raised:
        compute(read_scenario(path))
    assert "mine" in str(raised.value)


def test_a_search_says_where_to_look_when_its_bounds_are_wrong(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    search = 'search = { low = 1, high = 2, until = ["ttft_mean_s <= 1"] }\n'
    path.write_text(GOOD.replace("[5]", "[5, 5]").replace("[3]", "[3, 3]") + search, encoding="utf-8")
    with pytest.raises(sb.UsageError, match="Raise high"):
        compute(read_scenario(path))
    path.write_text(path.read_text("utf-8").replace("ttft_mean_s <= 1", "ttft_mean_s <= 0"), encoding="utf-8")
    with pytest.raises(sb.UsageError, match="Lower low"):
        compute(read_scenario(path))


def test_a_search_ends_at_the_rate_that_a_queue_allows() -> None:
    """M/D/1 with a service of 1 s: a mean wait of 2 s at load 0.8."""
    tables: dict[str, Any] = {
        **{name: {} for name in ("deployments", "steps", "lengths", "values", "deployment", "step")},
        "traffic": {"prompt": 1, "output": 100, "requests": 4000},
        "run": {
            "deployment": "none", "timing": "linear:base_ms=10", "scheduler": "naive", "memory": "paged",
            "kv_tokens": 10_000, "max_model_len": 1000, "seeds": 2,
        },
        "runs": {"wall": {"search": {"low": 0.1, "high": 0.99, "until": ["queue_mean_s <= 2"]}}},
    }  # fmt: skip
    assert World(tables).value("wall.rate_per_s") == pytest.approx(0.8, rel=0.05)


def test_results_of_another_state_of_the_file_are_refused(tmp_path: Path) -> None:
    path, results = tmp_path / "mine.toml", tmp_path / "results.json"
    path.write_text(GOOD, encoding="utf-8")
    scenario = read_scenario(path)
    with pytest.raises(sb.UsageError, match="has not been computed"):
        kept(scenario, results)
    computed = compute(scenario)
    keep(scenario, computed, results)
    assert kept(scenario, results) == computed
    # A reason, or a published value, is no part of what is computed; another length is.
    path.write_text(GOOD.replace("tolerance =", 'why = "because", tolerance ='), encoding="utf-8")
    assert kept(read_scenario(path), results)[0].ours == computed[0].ours
    path.write_text(GOOD.replace("[3]", "[4]"), encoding="utf-8")
    assert digest(read_scenario(path)) != digest(scenario)
    with pytest.raises(sb.UsageError, match="has changed since"):
        kept(read_scenario(path), results)


def test_variants_make_the_band(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    text = GOOD.replace("one.finished", "one.makespan_s * 1e3") + '[variants."twice".run]\ntimes = 2\n'
    path.write_text(text, encoding="utf-8")
    found = compute(read_scenario(path))[0]
    assert (found.ours, found.band) == (pytest.approx(3.0), pytest.approx((3.0, 6.0)))
    assert not found.agrees
    assert compute(read_scenario(path), bands=False)[0].band is None


def test_lengths_that_are_ours() -> None:
    """Drawn again above the most, at least one token, and of the mean that was asked for."""
    drawn = make_trace({"prompt": 1, "output": "exponential:mean=128,max=512", "requests": 20_000}, 0).output_tokens
    assert drawn.min() >= 1
    assert drawn.max() <= 512
    cut = 128 - 512 / (2.718281828 ** (512 / 128) - 1)
    assert drawn.mean() == pytest.approx(cut, rel=0.03)
    with pytest.raises(sb.UsageError, match="mean and max"):
        make_trace({"prompt": 1, "output": "geometric:median=3", "requests": 1}, 0)


def test_a_step_is_the_iteration_that_it_says() -> None:
    """3 decodes at a context of 100 beside 50 prompt tokens, by a line whose every part can be told apart."""
    tables: dict[str, Any] = {
        **{name: {} for name in ("deployments", "runs", "lengths", "values", "deployment", "traffic", "run")},
        "step": {
            "deployment": "none",
            "timing": "linear:base_ms=100000,sequence_us=1000000,prefill_token_us=10,context_ns=1",
        },
        "steps": {
            "mixed": {"decodes": 3, "context_tokens": 100, "prefill_tokens": 50},
            "alone": {"decodes": 3, "context_tokens": 100},
        },
    }
    world = World(tables)
    assert world.value("mixed.s") == pytest.approx(100 + 4 + 50e-5 + 350e-9, rel=1e-12)
    assert world.value("alone.s") == pytest.approx(100 + 3 + 300e-9, rel=1e-12)


# -- the command -------------------------------------------------------------------------------------


def test_the_command_names_and_computes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert capsys.readouterr().out.count("\n") == len(SCENARIOS)
    assert main(["seed-claims", "--no-bands"]) == 0
    assert "C1   agrees" in capsys.readouterr().out
    assert main(["no-such"]) == 2
    assert "there is no scenario 'no-such'" in capsys.readouterr().err


def test_a_row_keeps_what_was_printed() -> None:
    row = next(row for row in read_scenarios(["vllm-paper-running"])[0].rows if row.id == "P9")
    assert isinstance(row, Row)
    assert (row.published.text, row.published.number) == ("7.00", 7.0)
