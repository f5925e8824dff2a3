"""Trace files: what is written is read back equal, whatever the container, and the bundled one is what it says."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import runpy
import sys
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simbatch.trace import Trace
from simbatch.trace.columns import MAX_TOKENS
from simbatch.trace.identity import FORMS
from simbatch.units import MAX_PS, PS_PER_S

ROOT = Path(__file__).resolve().parent.parent
HEAD = "arrival_s,prompt_tokens,output_tokens\n"
WHOLE = HEAD + "0.5,10,1\n1,20,2\n2.25,30,3\n"

FORMATS = ["t.csv", "t.csv.gz", "t.jsonl", "t.jsonl.gz"]
TOKENS = st.integers(1, MAX_TOKENS)
TIMES_PS = st.one_of(st.integers(0, 5), st.integers(0, PS_PER_S), st.integers(0, MAX_PS))
LABELS = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"), max_size=6)


def identity(draw: st.DrawFn, prompts: list[int]) -> dict[str, list[Any]]:
    """Columns of prefix identity that fit *prompts*: each row in one of the forms, or in none."""
    rows = [draw(st.sampled_from(["", *FORMS])) for _ in prompts]
    names = ("prefix_group", "prefix_tokens", "hash_ids", "hash_block_tokens", "segments")
    columns: dict[str, list[Any]] = {name: [None] * len(rows) for name in names}
    for row, form in enumerate(rows):
        tokens = prompts[row]
        if form == "prefix_group":
            columns["prefix_group"][row] = draw(LABELS.filter(bool))
            columns["prefix_tokens"][row] = draw(st.integers(0, tokens))
        elif form == "hash_ids":
            block = columns["hash_block_tokens"][row] = draw(TOKENS)
            most = min(3, -(-tokens // block))
            columns["hash_ids"][row] = draw(st.lists(st.integers(0, 2**40) | LABELS, max_size=most))
        elif form == "segments":
            cuts = sorted(draw(st.sets(st.integers(1, tokens), max_size=3)) | {0, tokens})
            lengths = [after - before for before, after in pairwise(cuts)]
            columns["segments"][row] = [[draw(LABELS), draw(st.integers(0, 9)), length] for length in lengths]
    return columns


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Traces of a few rows with any set of columns."""
    rows = draw(st.integers(1, 5))

    def column(cells: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(cells, min_size=rows, max_size=rows))

    optional = {
        "arrival_ps": TIMES_PS,
        "max_tokens": st.one_of(st.none(), TOKENS),
        "priority": st.integers(-5, 5),
        "n": st.integers(1, 4),
        "session": LABELS,
        "turn": st.integers(0, 9),
        "think_ps": TIMES_PS,
    }
    columns = {name: column(cells) for name, cells in optional.items() if draw(st.booleans())}
    for name in ("arrival_ps", "turn"):
        if name in columns:
            columns[name].sort()
    prompts = column(TOKENS)
    if draw(st.booleans()):
        columns |= identity(draw, prompts)
    if draw(st.booleans()):
        columns["id"] = draw(st.lists(LABELS.filter(bool), min_size=rows, max_size=rows, unique=True))
    provenance = tuple(draw(st.lists(LABELS, max_size=2)))
    return Trace.from_columns(columns, prompt_tokens=prompts, output_tokens=column(TOKENS), provenance=provenance)


@given(trace=traces(), file=st.sampled_from(FORMATS))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_what_is_written_is_read_back_equal(tmp_path: Path, trace: Trace, file: str) -> None:
    trace.save(tmp_path / file)
    back = Trace.load(tmp_path / file)
    assert back == trace
    assert list(back.requests()) == list(trace.requests())
    for row in range(len(trace)):
        segments = trace.segments(row)
        assert back.segments(row) == segments
        assert segments is None or sum(length for _, _, length in segments) == trace.prompt_tokens[row]
    first = (tmp_path / file).read_bytes()
    back.save(tmp_path / file)
    assert (tmp_path / file).read_bytes() == first


def test_transforms_and_the_rule_are_written_and_read(tmp_path: Path) -> None:
    trace = Trace.load("sharegpt").at_rate(5, seed=3).head(100)
    trace.save(tmp_path / "t.csv")
    back = Trace.load(tmp_path / "t.csv")
    assert back.transforms == ("at_rate(rate_per_s=5, burstiness=1, seed=3)", "head(100)")
    assert back.rule == trace.rule
    assert back == trace


def test_equal_traces_differ_in_no_byte_of_a_gzip_file(tmp_path: Path) -> None:
    trace = Trace.from_lengths([1, 2], [3, 4])
    trace.save(tmp_path / "a.csv.gz")
    trace.save(tmp_path / "b.csv.gz")
    assert (tmp_path / "a.csv.gz").read_bytes() == (tmp_path / "b.csv.gz").read_bytes()
    assert (tmp_path / "a.csv.gz").read_bytes()[3:10] == bytes([0, 0, 0, 0, 0, 2, 255])


def load(folder: Path, content: str | bytes, name: str = "trace.csv", **options: Any) -> Trace:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return Trace.load(path, **options)


@pytest.mark.parametrize(
    "content",
    [
        WHOLE.replace("\n", "\r\n"),
        "\ufeff" + WHOLE,
        WHOLE.removesuffix("\n"),
        WHOLE + "\n\n",
        "# about\n\n" + WHOLE,
        WHOLE.replace("10", " 10 ").replace("20", "20.0").replace("30", "3e1"),
        WHOLE.replace("0.5", "5e-1").replace("2.25", "+2.2500000000000000"),
        '"arrival_s","prompt_tokens","output_tokens"\n"0.5","10","1"\n"1","20","2"\n2.25,30,3\n',
        "output_tokens,arrival_s,prompt_tokens\n1,0.5,10\n2,1,20\n3,2.25,30\n",
        " arrival_s , prompt_tokens , output_tokens \n0.5,10,1\n1,20,2\n2.25,30,3\n",
        '{"arrival_s": 0.5, "prompt_tokens": 10, "output_tokens": 1}\n'
        '{"output_tokens": 2, "arrival_s": 1, "prompt_tokens": 20.0}\n\n'
        '{"arrival_s": "2.25", "prompt_tokens": 30, "output_tokens": 3, "max_tokens": null}',
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_a_file_is_read_by_its_content(tmp_path: Path, content: str, packed: bool) -> None:
    data = content.encode()
    trace = load(tmp_path, gzip.compress(data) if packed else data, "any.name")
    assert trace.arrival_ps is not None
    assert trace.arrival_ps.tolist() == [500_000_000_000, PS_PER_S, 2_250_000_000_000]
    assert trace.prompt_tokens.tolist() == [10, 20, 30]
    assert trace.output_tokens.tolist() == [1, 2, 3]
    assert trace.warnings == ()


def test_the_hash_is_that_of_the_file(tmp_path: Path) -> None:
    data = gzip.compress(WHOLE.encode())
    trace = load(tmp_path, data)
    assert trace.sha256 == hashlib.sha256(data).hexdigest()
    assert trace.name == "trace.csv"


def test_picoseconds_survive_in_a_long_trace(tmp_path: Path) -> None:
    trace = load(tmp_path, HEAD + "9000000.123456789012,1,1\n9000000.123456789013,1,1\n")
    assert trace.arrival_ps is not None
    assert trace.arrival_ps.tolist() == [9_000_000_123_456_789_012, 9_000_000_123_456_789_013]


def test_scaling_while_reading_is_scaling_afterwards(tmp_path: Path) -> None:
    content = HEAD + "0.000000000001,1,1\n0.1,1,1\n3.333333333333,2,2\n"
    early, late = load(tmp_path, content, time_scale=0.3), load(tmp_path, content).time_scaled(0.3)
    assert early.arrival_ps is not None
    assert late.arrival_ps is not None
    assert early.arrival_ps.tolist() == late.arrival_ps.tolist()


def test_other_columns_are_left_out_and_named(tmp_path: Path) -> None:
    trace = load(tmp_path, ",prompt_tokens,output_tokens,model\n0,1,1,gpt\n")
    assert trace.ignored_columns == ("model",)
    assert trace.warnings == ("trace.csv: columns left out: model.",)


def test_a_bundled_name_wins_and_a_path_reaches_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sharegpt").write_text(WHOLE)
    assert len(Trace.load("sharegpt")) == 6870
    assert len(Trace.load("./sharegpt")) == 3
    assert len(Trace.load(Path("sharegpt"))) == 3


def test_a_span_that_only_looks_like_milliseconds_is_warned_of(tmp_path: Path) -> None:
    trace = load(tmp_path, HEAD + "0,1,1\n1500000,1,1\n3600000,2,2\n")
    assert trace.warnings == (
        "trace.csv: arrivals span 41.7 days, one every 1,800,000 s. "
        "If these are milliseconds, --time-scale 0.001 makes seconds of them.",
    )
    assert trace.at_rate(5).warnings == ()


def test_the_bundled_trace_is_what_its_readme_says() -> None:
    trace = Trace.load("sharegpt")
    assert (len(trace), trace.arrival_ps) == (6870, None)
    assert trace.prompt_tokens.mean() == pytest.approx(165.25, abs=0.005)
    assert trace.output_tokens.mean() == pytest.approx(318.65, abs=0.005)
    assert min(trace.prompt_tokens.min(), trace.output_tokens.min()) == 4
    assert (trace.prompt_tokens + trace.output_tokens).max() <= 2048
    assert trace.name == "sharegpt"
    assert trace.rule is not None
    assert trace.rule.startswith("first two messages of each record (pieces of a split conversation count as records)")
    assert "| `sharegpt` | 6,870 | 165.2, 318.7 |" in (ROOT / "traces" / "README.md").read_text()


def test_the_bundled_trace_is_derived_again(shared: Path) -> None:
    script = runpy.run_path(str(ROOT / "traces" / "derive_sharegpt.py"))
    made = script["derive"](shared / "data" / "traces" / "sharegpt" / "sharegpt_v3_prefix_turns.csv.gz")
    committed = (ROOT / "traces" / "sharegpt.csv.gz").read_bytes()
    assert gzip.decompress(made) == gzip.decompress(committed)
    if "ng" not in zlib.ZLIB_RUNTIME_VERSION:
        assert made == committed


def test_no_text_travels_with_the_bundled_trace() -> None:
    text = gzip.decompress((ROOT / "traces" / "sharegpt.csv.gz").read_bytes()).decode()
    rows = [line for line in text.splitlines() if not line.startswith("#")]
    assert next(csv.reader(io.StringIO(rows[0]))) == ["prompt_tokens", "output_tokens"]
    assert all(cell.isdecimal() for row in rows[1:] for cell in row.split(","))


def test_a_row_of_a_file_costs_a_few_calls(tmp_path: Path) -> None:
    """A million rows load in some three seconds because a row costs two calls: those are counted, not the seconds."""
    rows = "".join(f"{k}.{k % 1000:03d},{k % 977 + 1},{k % 1009 + 1}\n" for k in range(50_000))
    (tmp_path / "t.csv").write_text(HEAD + rows)
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        trace = Trace.load(tmp_path / "t.csv")
    finally:
        sys.setprofile(None)
    assert len(trace) == 50_000
    assert calls < 3 * 50_000
