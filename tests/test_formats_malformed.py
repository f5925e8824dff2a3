"""Files of other origins that are wrong: refused with the line at fault and a remedy, and never guessed."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simbatch.errors import UsageError
from simbatch.trace import Trace

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
VIDUR = "arrived_at,num_prefill_tokens,num_decode_tokens\n"
OURS = "arrival_s,prompt_tokens,output_tokens\n"
LEAVES_OUT = "One row like this; --drop-bad leaves it out."
CLIENT = "0,0.5,1.0,Gamma,1.0,2.0\n600,0,0,,0,0\n"
LENGTHS = json.dumps({"0": {"input_tokens": "{5: 1.0}", "output_tokens": "{7: 0.5, 8: 0.5}"}})


def mooncake(**row: Any) -> str:
    return json.dumps({"timestamp": 0, "input_length": 600, "output_length": 5, **row}) + "\n"


def aiperf(**row: Any) -> str:
    return json.dumps({"metadata": {"request_start_ns": 1}, "metrics": {}, "error": None, **row}) + "\n"


ROWS: list[tuple[str, str]] = [
    # Azure
    (AZURE + "2023-11-16 18:17:03,374,0\n", "line 2: output_tokens is 0, but a request asks for at least 1"),
    (
        AZURE + "2023-11-16 18:17:03.12345678901234,374,4\n",
        "line 2: arrival_s is 2023-11-16 18:17:03.12345678901234, "
        "but a date is expected as in 2023-11-16 18:17:03.9799600",
    ),
    (
        AZURE + "2023-02-30 18:17:03,374,4\n",
        "line 2: arrival_s is 2023-02-30 18:17:03, but there is no such date",
    ),
    (
        AZURE + "2023-11-16 25:17:03,374,4\n",
        "line 2: arrival_s is 2023-11-16 25:17:03, but a day has no such time",
    ),
    (
        AZURE + '"8/15/2025, 5:12:14 PM",374,4\n',
        "line 2: arrival_s is 8/15/2025, 5:12:14 PM, but a date is expected as in 2023-11-16 18:17:03.9799600",
    ),
    (AZURE + ",374,4\n", "line 2: arrival_s is empty, but a time in seconds is expected"),
    (AZURE + "2023-11-16,374,4\n", "line 2: arrival_s is 2023-11-16, but a time in seconds is expected"),
    (AZURE + "2023-11-16 18:17:03,37.5,4\n", "line 2: prompt_tokens is 37.5, but a whole number is expected"),
    (AZURE + "2023-11-16 18:17:03,374\n", "line 2: 2 fields, but the header names 3"),
    # BurstGPT
    (BURST + "5,ChatGPT,472,0,472,API log\n", "line 2: output_tokens is 0, but a request asks for at least 1"),
    (BURST + "5,ChatGPT,0,0,0,API log\n", "line 2: prompt_tokens is 0, but a request has at least 1"),
    (BURST + "-5,ChatGPT,1,1,2,API log\n", "line 2: arrival_s is -5, but times count from 0"),
    # Vidur
    (VIDUR + "nan,3,4\n", "line 2: arrival_s is 'nan', but a time in seconds is expected"),
    (VIDUR + "0.5,3,\n", "line 2: output_tokens is empty, but a whole number is expected"),
    # Mooncake and its kin
    (
        mooncake(hash_ids=[1, 2, 3]),
        "line 1: there are 3 hash_ids, but a prompt of 600 tokens has 2 blocks of 512",
    ),
    (mooncake(hash_ids="1,2"), "line 1: hash_ids is 1,2, but a list such as [1,2,3] is expected"),
    (mooncake(hash_ids=[1, [2]]), "line 1: hash_ids holds (2,), but whole numbers or texts are expected"),
    (mooncake(hash_ids=[None]), "line 1: hash_ids holds None, but whole numbers or texts are expected"),
    (mooncake(input_length=None), "line 1: prompt_tokens is empty, but a whole number is expected"),
    (mooncake(output_length=0), "line 1: output_tokens is 0, but a request asks for at least 1"),
    (mooncake(timestamp=-1), "line 1: arrival_s is -1, but times count from 0"),
    (mooncake(timestamp=None), "line 1: arrival_s is empty, but a time in seconds is expected"),
    (mooncake(timestamp="soon"), "line 1: arrival_s is 'soon', but a time in seconds is expected"),
    # LLMServingSim
    (
        json.dumps({"input_toks": 2, "output_toks": 1, "input_tok_ids": [1, 2, 3]}) + "\n",
        "line 1: input_tok_ids holds 3 tokens, but input_toks is 2",
    ),
    # aiperf records
    (
        aiperf(error={"code": 499, "type": "RequestCancellationError"}),
        "line 1: this request failed (RequestCancellationError)",
    ),
    (aiperf(metrics=None), "line 1: metadata and metrics are no objects"),
    (aiperf(), "line 1: prompt_tokens is empty, but a whole number is expected"),
    # vllm bench results
    (
        json.dumps({"input_lens": [1], "output_lens": [1], "errors": ["Connection reset"]}),
        "line 1: this request failed (Connection reset)",
    ),
]


@pytest.mark.parametrize(("content", "reason"), ROWS)
def test_a_bad_row_is_refused_with_its_line_and_left_out_when_asked(tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "some.file"
    path.write_text(content)
    with pytest.raises(UsageError) as error:
        Trace.load(path)
    assert str(error.value) == f"some.file {reason}. {LEAVES_OUT}"
    with pytest.raises(UsageError) as error:
        Trace.load(path, drop_bad=True)
    assert str(error.value).startswith(f"some.file has no row that can be used ({reason})")


FILES: list[tuple[str, dict[str, Any], str]] = [
    (
        AZURE + "2023-11-16 18:17:05,1,1\n2023-11-16 18:17:03,2,2\n",
        {},
        "line 3: arrival_s is -2, but the row before has 0: times cannot go back. One row like this; "
        "--sort puts it in order.",
    ),
    (
        BURST + "604453,ChatGPT,1,1,2,x\n604500,ChatGPT,1,1,2,x\n0,ChatGPT,1,1,2,x\n",
        {},
        "line 4: arrival_s is -604453, but the row before has 47: times cannot go back. One row like this; "
        "--sort puts it in order; --wrap PERIOD, such as 7d, lets the clock start again there.",
    ),
    (
        VIDUR + "1700000000123,1,1\n",
        {},
        "line 2: the first time is 1700000000123, which makes no sense in s but is a time since 1970 in ms. "
        "Say so: --time-unit ms.",
    ),
    (
        mooncake(timestamp=0.5),
        {},
        "line 1: the time is 0.5, but Mooncake counts whole milliseconds. "
        "Say what these are: --time-unit s or --time-unit ms.",
    ),
    (
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n",
        {},
        "is a Git LFS pointer, not the data: the repository was cloned without its large files. "
        "Run git lfs pull in it, then give the file again.",
    ),
    ("5,472,18\n45,1087,230\n", {}, "line 1: numbers instead of names of columns (5, 472, 18). "
     "Put a line of names above them, such as arrival_s,prompt_tokens,output_tokens."),
    (
        json.dumps([{"conversations": []}]),
        {},
        "line 1 opens a JSON array of texts, but a trace holds lengths. "
        "Make a trace of it with: simbatch trace derive.",
    ),
    (
        json.dumps({"prompt": "Hello"}) + "\n",
        {},
        "line 1: 'prompt' holds texts, but a trace holds lengths. Make a trace of it with: simbatch trace derive.",
    ),
    (
        '{"timestamp": 1,\n "input_length": 2}\n',
        {},
        "line 1: no JSON object on a line of its own. Write one object per line (jsonl), one per request.",
    ),
    (
        json.dumps({"input_lens": 5, "output_lens": [1]}),
        {},
        "line 1: input_lens and output_lens are no lists; vllm bench writes them with --save-detailed. "
        "Give a file with both, of the same run.",
    ),
    (
        "".join(
            json.dumps({"session_id": "a", "input_length": 2_000_000_000, "output_length": 1}) + "\n" for _ in range(2)
        ),
        {},
        "line 2: with its history the prompt has 4000000001 tokens, but the most that can be simulated is 2147483647. "
        "Cut the session.",
    ),
    (CLIENT, {}, "is a client of ServeGen: rates over time, without lengths. "
     "Put its …-dataset.json beside it, under the same beginning of the name as its …-trace.csv."),
    (
        OURS + "0,1,1\n",
        {"hash_block_tokens": 16},
        "has no hash_ids, so a size for their blocks has no use. Leave it out.",
    ),
    (
        'prompt_tokens,output_tokens,hash_ids,hash_block_tokens\n1,1,"[1]",16\n',
        {"hash_block_tokens": 16},
        "says hash_block_tokens itself, so a size for their blocks has no use. Leave it out.",
    ),
    (
        "prompt_tokens,output_tokens,session,turn\n1,1,a,1\n1,1,b,0\n1,1,a,0\n",
        {},
        "line 4: turn 0 of session 'a' comes after turn 1 (line 2). Put the turns of each session in order.",
    ),
    (
        "prompt_tokens,output_tokens,trace_arrival_s\n1,1,5\n",
        {},
        "line 1: column 'trace_arrival_s' is not one of ours, but looks like arrival_s. "
        "Map it with --columns arrival_s=trace_arrival_s, or remove it.",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("content", "options", "reason"), FILES)
def test_a_file_that_is_wrong_as_a_whole_is_refused(
    tmp_path: Path, content: str, options: dict[str, Any], reason: str
) -> None:
    path = tmp_path / "some.file"
    path.write_text(content)
    with pytest.raises(UsageError) as error:
        Trace.load(path, **options)
    message = str(error.value)
    assert message == ("some.file: " if message.startswith("some.file: ") else "some.file ") + reason


CLIENTS: list[tuple[str, str, str]] = [
    (
        CLIENT + "oops\n",
        LENGTHS,
        "c-trace.csv line 3: a window of a client has a start, a rate, a variation, a name and two numbers. ",
    ),
    (
        CLIENT + "600,0,0,,0,0\n",
        LENGTHS,
        "c-trace.csv line 3: a window starts at 600 s, but the one before at 600 s. ",
    ),
    (CLIENT.replace("Gamma", "Pareto"), LENGTHS, "c-trace.csv line 1: gaps of 'Pareto' with shape 1 at 0.5 requests"),
    (
        CLIENT,
        LENGTHS.replace('"0"', '"600"', 1),
        "c-trace.csv line 1: there are requests at 0 s, but no lengths at or before it. ",
    ),
    (CLIENT, LENGTHS.replace("input_tokens", "tokens"), "c-dataset.json does not hold the lengths of a ServeGen "),
    (CLIENT, LENGTHS.replace("{5", "{open(5)"), "c-dataset.json does not hold the lengths of a ServeGen client "),
    (CLIENT, "{", "c-dataset.json does not hold the lengths of a ServeGen client (JSONDecodeError: "),
]


@pytest.mark.parametrize(("windows", "lengths", "reason"), CLIENTS)
def test_a_servegen_client_with_something_wrong_is_refused(
    tmp_path: Path, windows: str, lengths: str, reason: str
) -> None:
    (tmp_path / "c-trace.csv").write_text(windows)
    (tmp_path / "c-dataset.json").write_text(lengths)
    with pytest.raises(UsageError) as error:
        Trace.load(tmp_path / "c-trace.csv")
    assert str(error.value).startswith(reason)
    assert str(error.value).endswith("again.")


def test_there_are_enough_of_them() -> None:
    assert len(ROWS) + len(FILES) + len(CLIENTS) >= 40


def test_twins_are_left_out_only_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,prompt_tokens,output_tokens\na,1,1\nb,2,2\na,1,1\n")
    with pytest.raises(UsageError, match=r"^t\.csv line 4: id 'a' stands on line 2 already\. "):
        Trace.load(path)
    trace = Trace.load(path, drop_bad=True)
    assert (trace.ids, trace.dropped) == (("a", "b"), 1)
    assert trace.why_dropped == (("its id stands on an earlier line", 1, 4),)


SEEDS = [
    AZURE + "2023-11-16 18:17:03.9799600,4808,10\r\n2023-11-16 18:17:04+00:00,3180,8\r\n",
    BURST + "5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,1087,0,1317,API log\n",
    VIDUR + "0.0,374,44\n4.314579,396,109\n",
    mooncake(hash_ids=[1, 2]) + mooncake(timestamp=3000, hash_ids=[1]),
    mooncake(session_id="a") + mooncake(session_id="a", delay=5),
    mooncake(chat_id=1, parent_chat_id=-1) + mooncake(chat_id=2, parent_chat_id=1),
    mooncake(session_id="a", hash_ids={"sys_prompt": [1]}, timestamp="5"),
    json.dumps({"input_toks": 2, "output_toks": 1, "arrival_time_ns": 5, "input_tok_ids": [1, 2]}) + "\n",
    aiperf(metrics={"input_sequence_length": {"value": 5}, "output_sequence_length": {"value": 5}}),
    json.dumps({"input_lens": [1, 2], "output_lens": [3, 4], "errors": ["", ""]}),
    CLIENT,
]


@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=400)
def test_damaged_files_give_a_trace_or_a_refusal_and_drop_nothing_silently(tmp_path: Path, data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(SEEDS)).encode()
    content = bytearray(text)
    for _ in range(data.draw(st.integers(0, 4))):
        place = data.draw(st.integers(0, len(content)))
        content[place : place + data.draw(st.integers(0, 3))] = data.draw(
            st.binary(max_size=3)
            | st.sampled_from([b'"', b",", b"\n", b"-", b"e9", b"[", b"{", b"}", b":", b"\r", b"#", b"null", b"0"])
        )
    if data.draw(st.booleans()):
        content = bytearray(gzip.compress(bytes(content)))
    path = tmp_path / "c-trace.csv"
    path.write_bytes(content)
    (tmp_path / "c-dataset.json").write_text(LENGTHS)
    for drop_bad in (False, True):
        try:
            trace = Trace.load(path, drop_bad=drop_bad, sort=drop_bad)
        except UsageError:
            continue
        assert len(trace) >= 1
        assert trace.dropped == sum(rows for _, rows, _ in trace.why_dropped)
        assert drop_bad or trace.dropped == 0
        for row in range(min(len(trace), 5)):
            segments = trace.segments(row)
            assert segments is None or sum(length for _, _, length in segments) == trace.prompt_tokens[row]
