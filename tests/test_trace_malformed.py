"""Malformed trace files are refused with the line at fault and a remedy, or mended as asked, and never guessed."""

from __future__ import annotations

import gzip
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simbatch.errors import UsageError
from simbatch.trace import Trace, bundled_traces, container

HEAD = "arrival_s,prompt_tokens,output_tokens\n"
WHOLE = HEAD + "0.5,10,1\n1,20,2\n2.25,30,3\n"


def load(folder: Path, content: str | bytes, name: str = "trace.csv", **options: Any) -> Trace:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return Trace.load(path, **options)


def refusal(folder: Path, content: str | bytes, name: str = "trace.csv", **options: Any) -> str:
    with pytest.raises(UsageError) as error:
        load(folder, content, name, **options)
    return str(error.value)


BAD_ROWS = [
    ("0,1,-1", "output_tokens is -1, but a request asks for at least 1"),
    ("0,0,1", "prompt_tokens is 0, but a request has at least 1"),
    ("0,1.5,1", "prompt_tokens is 1.5, but a whole number is expected"),
    ("0,ten,1", "prompt_tokens is 'ten', but a whole number is expected"),
    ("0,1_0,1", "prompt_tokens is 1_0, but a whole number is expected"),
    ("0,,1", "prompt_tokens is empty, but a whole number is expected"),
    ("0,nan,1", "prompt_tokens is 'nan', but a whole number is expected"),
    ("0,1,inf", "output_tokens is 'inf', but a whole number is expected"),
    (
        "0,1,99999999999999999999",
        "output_tokens is 99999999999999999999, but the most that can be simulated is 2147483647",
    ),
    ("0,1,1e400000000", "output_tokens is 1e400000000, but the most that can be simulated is 2147483647"),
    ("-3.2,1,1", "arrival_s is -3.2, but times count from 0"),
    ("nan,1,1", "arrival_s is 'nan', but a time in seconds is expected"),
    ("-inf,1,1", "arrival_s is -inf, but a time in seconds is expected"),
    (",1,1", "arrival_s is empty, but a time in seconds is expected"),
    ("2023-11-16 18:15:46,1,1", "arrival_s is 2023-11-16 18:15:46, but a time in seconds is expected"),
    ("1e999999,1,1", "arrival_s is 1e999999, but the clock ends after 106 days"),
    ("0,1", "2 fields, but the header names 3"),
    ("0,1,1,1", "4 fields, but the header names 3"),
    ("# late,1,1", "arrival_s is '# late', but a time in seconds is expected"),
    (f"0,{'x' * 90},1", f"prompt_tokens is '{'x' * 37}...', but a whole number is expected"),
]


@pytest.mark.parametrize(("row", "reason"), BAD_ROWS)
def test_bad_rows_are_refused_with_their_line_or_left_out_and_counted(tmp_path: Path, row: str, reason: str) -> None:
    once = HEAD + f"0,5,5\n{row}\n7,6,6\n"
    assert refusal(tmp_path, once) == f"trace.csv line 3: {reason}. One row like this; --drop-bad leaves it out."
    thrice = "# about\n" + HEAD + f"0,5,5\n\n{row}\n7,6,6\n{row}\n{row}\n8,7,7\n"
    assert refusal(tmp_path, thrice) == f"trace.csv line 5: {reason}. Three rows like this; --drop-bad leaves them out."
    trace = load(tmp_path, thrice, drop_bad=True)
    assert trace.prompt_tokens.tolist() == [5, 6, 7]
    assert trace.dropped == trace.describe()["dropped"] == 3
    assert trace.warnings == ("trace.csv: 3 bad rows were left out.",)
    assert trace.transforms == ("load(drop_bad=True)",)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"prompt_tokens": 1, "output_tokens": -1}', "output_tokens is -1, but a request asks for at least 1"),
        ('{"prompt_tokens": 1}', "output_tokens is empty, but a whole number is expected"),
        ('{"prompt_tokens": true, "output_tokens": 1}', "prompt_tokens is 'true', but a whole number is expected"),
        ('{"prompt_tokens": [1], "output_tokens": 1}', "prompt_tokens is '[1]', but a whole number is expected"),
        ('{"prompt_tokens": NaN, "output_tokens": 1}', "prompt_tokens is 'NaN', but a whole number is expected"),
        ('{"prompt_tokens": 1, "output_tokens": 1, "hash_ids": 5}',
         "hash_ids is 5, but a list such as [1,2,3] is expected"),
        ('{"prompt_tokens": 1, "output_tokens": 1, "hash_ids": [NaN]}',
         "hash_ids is '[NaN]', but a list such as [1,2,3] is expected"),
        ('{"prompt_tokens": 1, "output_tokens": 1, "session": "a\\nb"}',
         "session is 'a\\nb', but a label fits on one line"),
        ('{"prompt_tokens": 1, "output_tokens": 1, "think_s": 1e8}',
         "think_s is 100000000, but the clock ends after 106 days"),
        ('{"prompt_tokens": 1, "output_tokens"', "this is not a JSON object"),
        ("[1, 2]", "this is not a JSON object"),
        ("12", "this is not a JSON object"),
        ("[" * 100_000, "this is not a JSON object"),
        ("9" * 5_000, "this is not a JSON object"),
        ('{"prompt_tokens": 1, "output_tokens": 1, "prompt_tokens": 2}',
         "the key 'prompt_tokens' stands twice in an object"),
        ('{"prompt_tokens": 1, "output_tokens": 1, "more": {"a": 1, "a": 1}}', "the key 'a' stands twice in an object"),
    ],
)  # fmt: skip
def test_bad_objects_are_refused_with_their_line(tmp_path: Path, line: str, reason: str) -> None:
    content = (
        '# about\n{"prompt_tokens": 5, "output_tokens": 5}\n' + line + '\n{"prompt_tokens": 6, "output_tokens": 6}\n'
    )
    expected = f"trace.jsonl line 3: {reason}. One row like this; --drop-bad leaves it out."
    assert refusal(tmp_path, content, "trace.jsonl") == expected
    assert load(tmp_path, content, drop_bad=True).prompt_tokens.tolist() == [5, 6]


@pytest.mark.parametrize("first", ['"prompt_tokens": 5}', "prompt_tokens 5", "5, 5]"])
def test_a_first_line_that_is_no_object_where_the_others_are(tmp_path: Path, first: str) -> None:
    content = f'# about\n{first}\n\n{{"prompt_tokens": 5, "output_tokens": 5}}\n'
    expected = (
        "trace.jsonl line 2: this is not a JSON object, but the line after it is. Correct it, or remove the line."
    )
    assert refusal(tmp_path, content, "trace.jsonl") == expected
    broken = '{"prompt_tokens": 5\n{"prompt_tokens": 5, "output_tokens": 5}\n'
    expected = "trace.jsonl line 1: this is not a JSON object. One row like this; --drop-bad leaves it out."
    assert refusal(tmp_path, broken, "trace.jsonl") == expected


def test_tabs_and_semicolons_are_named(tmp_path: Path) -> None:
    expected = (
        "trace.csv line 3: 1 field parted by {}, but the header names 2. One row like this; --drop-bad leaves it out."
    )
    assert refusal(tmp_path, "prompt_tokens;output_tokens\n5;5\n5,5\n") == expected.format("semicolons")
    assert refusal(tmp_path, "prompt_tokens\toutput_tokens\n5\t5\n5 5\n") == expected.format("tabs")
    mixed = "arrival_s\tprompt_tokens;output_tokens\n0\t5;5\n"
    assert refusal(tmp_path, mixed).startswith(
        "trace.csv line 1, read as parted by tabs: no column prompt_tokens and no"
    )


def test_a_field_that_csv_readers_do_not_take(tmp_path: Path) -> None:
    wide = HEAD + "0,5,5\n1," + "5" * 200_000 + ",5\n"
    assert refusal(tmp_path, wide) == (
        "trace.csv line 3 has a field of more than 131,072 characters, which csv readers do not take. "
        "Close the quotation mark that may be open there, or write jsonl."
    )
    assert refusal(tmp_path, "x" * 200_000 + "," + HEAD).startswith("trace.csv line 1 has a field of more than 131,072")


def test_what_may_never_end_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for device in ("/dev/zero", "/dev/null"):
        with pytest.raises(
            UsageError, match=f"{device} is a device, not a file. Give the path of a csv or jsonl file."
        ):
            Trace.load(device)
    monkeypatch.setattr(container, "MOST_BYTES", 1 << 20)
    bomb = gzip.compress((HEAD + "0,5,5\n" * 1_000_000).encode())
    assert len(bomb) < 100_000
    too_large = (
        "{} holds more than 0.000976562 GiB of text, and a trace is read whole. "
        "Give a part of it: a million requests take some 20 MB."
    )
    assert refusal(tmp_path, bomb, "t.csv.gz") == too_large.format("t.csv.gz")
    assert refusal(tmp_path, HEAD + "0,5,5\n" * 1_000_000) == too_large.format("trace.csv")


def test_a_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rows")
    writer = threading.Thread(target=(tmp_path / "rows").write_text, args=(HEAD + "0,5,5\n" * 100_000,))
    writer.start()
    assert len(Trace.load(tmp_path / "rows")) == 100_000
    writer.join()


def test_a_file_that_may_not_be_looked_at(locked: str) -> None:
    for path in (f"{locked}/t.csv", Path(locked, "t.csv")):
        with pytest.raises(
            UsageError, match=r"^locked/t.csv cannot be read \(Permission denied\). Give a file that you"
        ):
            Trace.load(path)
    with pytest.raises(UsageError, match=r"cannot be read \(File name too long\)"):
        Trace.load("t" * 300 + ".csv")
    with pytest.raises(UsageError, match=r"^unknown trace"):
        Trace.load("t" * 300)
    with pytest.raises(UsageError, match=r"cannot be read \(embedded null byte\)"):
        Trace.load("t\0.csv")


def test_a_bad_row_far_down_has_its_own_line(tmp_path: Path) -> None:
    rows = ["1,1\n"] * 20_000
    rows[17_001] = "1,0\n"
    message = refusal(tmp_path, "prompt_tokens,output_tokens\n" + "".join(rows))
    assert message.startswith("trace.csv line 17003: output_tokens is 0, ")


def test_lines_are_counted_through_quoted_line_ends(tmp_path: Path) -> None:
    content = 'prompt_tokens,output_tokens,note\n1,1,"two\nlines"\n1,0,x\n'
    assert refusal(tmp_path, content).startswith("trace.csv line 4: output_tokens is 0, ")


def test_nothing_left_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path, HEAD + "0,0,1\n", drop_bad=True) == (
        "trace.csv has no row that can be used (line 2: prompt_tokens is 0, but a request has at least 1). "
        "Give one line per request."
    )
    assert refusal(tmp_path, HEAD) == (
        "trace.csv has no row that can be used (there is none). Give one line per request."
    )


def test_times_that_go_back_are_refused_or_sorted(tmp_path: Path) -> None:
    content = HEAD + "4,1,1\n3.2,2,2\n3.2,3,3\n5,4,4\n1,5,5\n"
    assert refusal(tmp_path, content) == (
        "trace.csv line 3: arrival_s is 3.2, but the row before has 4: times cannot go back. "
        "Two rows like this; --sort puts them in order."
    )
    trace = load(tmp_path, content, sort=True)
    assert trace.prompt_tokens.tolist() == [5, 2, 3, 1, 4]
    assert trace.transforms == ("load(sort=True)",)
    one = HEAD + "4,1,1\n3,2,2\n"
    assert refusal(tmp_path, one).endswith("One row like this; --sort puts it in order.")


def test_milliseconds_read_as_seconds_are_refused(tmp_path: Path) -> None:
    content = HEAD + "1000,1,1\n3600001000,2,2\n"
    assert refusal(tmp_path, content) == (
        "trace.csv: arrival_s spans 3,600,000,000 s (41,666 days), but the clock ends after 106 days. "
        "If these are milliseconds, --time-scale 0.001 makes seconds of them."
    )
    short = HEAD + "0,1,1\n1500,2,2\n"
    trace = load(tmp_path, short, time_scale=0.001)
    assert trace.arrival_ps is not None
    assert trace.arrival_ps.tolist() == [0, 1_500_000_000_000]
    assert trace.transforms == ("load(time_scale=0.001)",)
    assert load(tmp_path, content, time_scale=0.001).describe()["span_s"] == 3_600_000


def test_epoch_times_are_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path, HEAD + "1700000000,1,1\n1700000100,2,2\n") == (
        "trace.csv: arrival_s starts at 1700000000 s, but the clock ends after 106 days. "
        "Count the times from the first request: subtract its arrival_s from all."
    )


def test_scaling_times_that_are_not_there_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path, "prompt_tokens,output_tokens\n1,1\n", time_scale=2) == (
        "trace.csv has no arrival times to scale. Give a rate instead, such as --rate 5."
    )


def test_missing_columns_say_what_was_found_and_how_to_map(tmp_path: Path) -> None:
    content = "# about\nTIME,Context,Generated\n0,374,44\n"
    assert refusal(tmp_path, content) == (
        "trace.csv line 2: no column prompt_tokens and no column output_tokens (found: TIME, Context, "
        "Generated; needed: prompt_tokens, output_tokens). Rename the columns, or map them with "
        "--columns prompt_tokens=NAME,output_tokens=NAME."
    )
    names = {"arrival_s": "TIME", "prompt_tokens": "Context", "output_tokens": "Generated"}
    trace = load(tmp_path, content, columns=names)
    assert [(r.prompt_tokens, r.output_tokens) for r in trace.requests()] == [(374, 44)]
    assert trace.transforms == (f"load(columns={names})",)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (
            "arival_s,prompt_tokens,output_tokens",
            "trace.csv line 1: column 'arival_s' is not one of ours, but looks like arrival_s. "
            "Map it with --columns arrival_s=arival_s, or remove it.",
        ),
        (
            "timestamp,prompt_tokens,output_tokens",
            "trace.csv line 1: column 'timestamp' is not one of ours, but looks like arrival_s. "
            "Map it with --columns arrival_s=timestamp, or remove it.",
        ),
        (
            "n,prompt_tokens,output_tokens,Max Token",
            "trace.csv line 1: column 'Max Token' is not one of ours, but looks like max_tokens. "
            "Map it with --columns max_tokens=Max Token, or remove it.",
        ),
        (
            "prompt_tokens,prompt_tokens,output_tokens",
            "trace.csv line 1: there are two columns 'prompt_tokens'. Rename or remove one of them.",
        ),
    ],
)
def test_columns_that_may_be_meant_otherwise_are_refused(tmp_path: Path, header: str, message: str) -> None:
    cells = ",".join("1" for _ in header.split(","))
    assert refusal(tmp_path, f"{header}\n{cells}\n") == message


def test_mapping_to_what_is_not_there_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path, WHOLE, columns={"max_tokens": "limit"}) == (
        "trace.csv line 1: there is no column 'limit' to take max_tokens from "
        "(found: arrival_s, prompt_tokens, output_tokens). Name one of the columns found."
    )
    assert refusal(tmp_path, WHOLE, columns={"max_token": "limit"}) == (
        "unknown trace column 'max_token'. Did you mean max_tokens or prompt_tokens or prefix_tokens?"
    )


def test_two_requests_of_one_id_are_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path, "prompt_tokens,output_tokens,id\n1,1,a\n1,1,b\n1,1,a\n") == (
        "trace.csv line 4: id 'a' stands on line 2 already. "
        "Give every request its own id, or remove the column: rows are numbered then."
    )


def test_names_that_are_neither_bundled_nor_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for name, message in {
        "sharegtp": "unknown trace 'sharegtp'. Did you mean sharegpt or sharegpt-sessions? "
        "The path of a csv or jsonl file is accepted too.",
        "xyz": f"unknown trace 'xyz'. Known: {', '.join(bundled_traces())}. "
        "The path of a csv or jsonl file is accepted too.",
        "data/xyz.csv": "data/xyz.csv: no such file. Give the path of a csv or jsonl file.",
        "folder": "folder is a folder. Give the path of a csv or jsonl file in it.",
    }.items():
        with pytest.raises(UsageError) as error:
            Trace.load(name)
        assert str(error.value) == message


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    trace = Trace.from_lengths([1], [1])
    with pytest.raises(UsageError) as error:
        trace.save(tmp_path / "t.parquet")
    assert str(error.value) == "t.parquet does not say what to write. End it in .csv, .csv.gz, .jsonl or .jsonl.gz."
    with pytest.raises(UsageError, match=r"t\.csv cannot be written \(No such file or directory\)\. Give a place"):
        trace.save(tmp_path / "missing" / "t.csv")
    wide = Trace.from_columns(
        prompt_tokens=[40_000], output_tokens=[1], hash_ids=[list(range(40_000))], hash_block_tokens=[1]
    )
    with pytest.raises(UsageError, match="hash_ids has a cell of 228,891 characters, and csv readers stop at 131,072"):
        wide.save(tmp_path / "t.csv")
    wide.save(tmp_path / "t.jsonl")
    assert Trace.load(tmp_path / "t.jsonl") == wide


VALID = [
    WHOLE.encode(),
    gzip.compress(WHOLE.encode(), mtime=0),
    b'# c\n{"arrival_s":0.5,"prompt_tokens":10,"output_tokens":1,"hash_ids":[1,2],"hash_block_tokens":8,"id":"a"}\n',
]


@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=300)
def test_any_bytes_give_a_trace_or_a_refusal(tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(data.draw(st.sampled_from(VALID) | st.binary(max_size=40)))
    for _ in range(data.draw(st.integers(0, 4))):
        place = data.draw(st.integers(0, len(content)))
        content[place : place + data.draw(st.integers(0, 3))] = data.draw(
            st.binary(max_size=3) | st.sampled_from([b'"', b",", b"\n", b"-", b"e9", b"[", b"{", b"\r", b"#"])
        )
    path = tmp_path / "fuzz"
    path.write_bytes(content)
    for drop_bad in (False, True):
        try:
            trace = Trace.load(path, drop_bad=drop_bad, sort=drop_bad)
        except UsageError:
            continue
        assert len(trace) >= 1
        assert drop_bad or trace.dropped == 0
