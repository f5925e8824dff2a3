"""Files that break off, are damaged or hold no text say so, with what can be done about it."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Any

import pytest

from simbatch.errors import UsageError
from simbatch.trace import Trace

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


def test_a_gzip_stream_without_its_end_says_after_which_record(tmp_path: Path) -> None:
    rows = [f"{k},{k % 977 + 1},{k * 7919 % 1009 + 1}\n" for k in range(20_000)]
    data = gzip.compress((HEAD + "".join(rows)).encode(), mtime=0)
    cut = data[: len(data) // 2]
    whole = zlib.decompressobj(wbits=31).decompress(cut).count(b"\n") - 1
    assert 1_000 < whole < 19_000
    assert refusal(tmp_path, cut, "trace.csv.gz") == (
        f"trace.csv.gz breaks off after record {whole} (line {whole + 1}): the gzip stream has no end. "
        "Fetch the file again, or use the whole records with --drop-bad."
    )
    trace = load(tmp_path, cut, drop_bad=True)
    assert len(trace) == whole
    assert trace.prompt_tokens.tolist() == [k % 977 + 1 for k in range(whole)]
    assert trace.dropped == 1


def test_a_gzip_stream_that_ends_in_its_header(tmp_path: Path) -> None:
    data = gzip.compress(WHOLE.encode())
    assert refusal(tmp_path, data[:12]) == "trace.csv breaks off before its first row. Fetch or make the file again."


def test_a_damaged_gzip_stream_is_not_trusted(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(WHOLE.encode()))
    data[-6] ^= 1
    message = refusal(tmp_path, bytes(data))
    assert message.startswith("trace.csv: the gzip stream is damaged somewhere after line 0 (CRC check failed ")
    assert message.endswith("). Fetch or make the file again; nothing in it can be trusted.")
    assert refusal(tmp_path, bytes(data), drop_bad=True) == message


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (WHOLE + "3,4", "trace.csv"),
        ('{"prompt_tokens":1,"output_tokens":1}\n' * 3 + '{"prompt_tokens":1,"out', "trace.jsonl"),
    ],
)
def test_a_file_that_breaks_off_in_a_line(tmp_path: Path, content: str, name: str) -> None:
    assert refusal(tmp_path, content, name) == (
        f"{name} breaks off inside record 4, after record 3. "
        "Fetch the file again, or use the whole records with --drop-bad."
    )
    trace = load(tmp_path, content, name, drop_bad=True)
    assert (len(trace), trace.dropped) == (3, 1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty. A trace has a line of column names, then one line per request."),
        (b" \n\n", "is empty. A trace has a line of column names, then one line per request."),
        (gzip.compress(b"", mtime=0), "is empty. A trace has a line of column names, then one line per request."),
        (b"# a\n# b\n", "holds comments only. Add a line of column names and one line per request."),
        (b"PAR1\x15\x04", "is a parquet file, not csv or jsonl. Save it as csv or jsonl in UTF-8 (gzip is fine)."),
        (
            b"PK\x03\x04\x14\x00",
            "is a zip archive (xlsx is one too), not csv or jsonl. Save it as csv or jsonl in UTF-8 (gzip is fine).",
        ),
        (
            WHOLE.encode("utf-16"),
            "is text in UTF-16, not csv or jsonl. Save it as csv or jsonl in UTF-8 (gzip is fine).",
        ),
        (b"a,b\n1,\x002\n", " line 2: a zero byte, so this is not text. Give a csv or jsonl file (gzip is fine)."),
        (b"a,b\n1,2\n1,\xe9\n", " line 3: byte 0xe9 is not UTF-8 text. Save the file as csv or jsonl in UTF-8."),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n",
            "is a Git LFS pointer, not the data: the repository was cloned without its large files. "
            "Run git lfs pull in it, then give the file again.",
        ),
        (
            b'[\n{"prompt_tokens": 1, "output_tokens": 1}\n]\n',
            " line 1 opens a JSON array, but one object per line is expected (jsonl). "
            "Write each element on a line of its own, without the brackets.",
        ),
        (
            b'prompt_tokens,output_tokens,id\n1,1,a\n1,1,"b\n1,1,c\n',
            " line 3 is not csv (unexpected end of data). "
            "Correct it: a quotation mark that is never closed swallows all that follows.",
        ),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    space = "" if message.startswith(" ") else " "
    assert refusal(tmp_path, content) == f"trace.csv{space}{message}"
