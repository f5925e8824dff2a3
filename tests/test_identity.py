"""Which tokens of a prompt are the same as which others: three forms, one meaning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simbatch.errors import UsageError
from simbatch.trace import Trace


def one(prompt_tokens: int, **columns: Any) -> Trace:
    """A trace of the single request ``a``."""
    cells = {name: [value] for name, value in columns.items()}
    return Trace.from_columns(cells, id=["a"], prompt_tokens=[prompt_tokens], output_tokens=[1], name="t")


def test_nothing_said_means_all_its_own() -> None:
    assert one(20).segments(0) is None
    assert one(20, prefix_tokens=0).segments(0) is None
    assert one(20, hash_ids=[], hash_block_tokens=4).segments(0) is None


def test_a_group_shares_the_beginning() -> None:
    trace = one(20, prefix_group="system", prefix_tokens=12)
    assert trace.segments(0) == (("g:system", 0, 12), ("r:a", 0, 8))
    assert one(12, prefix_group="system", prefix_tokens=12).segments(0) == (("g:system", 0, 12),)
    assert one(12, prefix_group="system", prefix_tokens=0).segments(0) == (("r:a", 0, 12),)


def test_hash_ids_stand_for_blocks_the_last_of_which_may_be_short() -> None:
    assert one(20, hash_ids=[7, "x"], hash_block_tokens=16).segments(0) == (("h:7", 0, 16), ("h:x", 0, 4))
    assert one(40, hash_ids=[7], hash_block_tokens=16).segments(0) == (("h:7", 0, 16), ("r:a", 0, 24))
    assert one(32, hash_ids=[7, 7], hash_block_tokens=16).segments(0) == (("h:7", 0, 16), ("h:7", 0, 16))


def test_segments_are_what_they_say() -> None:
    trace = one(30, segments=[["sys", 0, 16], ["oz", 3, 14]])
    assert trace.segments(0) == (("sys", 0, 16), ("oz", 3, 14))


def test_rows_are_named_by_their_number_without_ids_and_may_differ_in_form() -> None:
    trace = Trace.from_columns(
        prompt_tokens=[8, 8, 8],
        output_tokens=[1, 1, 1],
        prefix_group=["g", None, None],
        prefix_tokens=[4, None, None],
        segments=[None, None, [["o0", 0, 8]]],
    )
    assert [trace.segments(row) for row in range(3)] == [(("g:g", 0, 4), ("r:0", 0, 4)), None, (("o0", 0, 8),)]


MISFITS: list[tuple[dict[str, Any], str]] = [
    ({"prefix_tokens": 3}, "prefix_tokens is 3, but there is no prefix_group to share them with"),
    ({"prefix_group": "g"}, "prefix_group has no prefix_tokens, but they say how much of the prompt is shared"),
    ({"prefix_group": "g", "prefix_tokens": 21}, "prefix_tokens is 21, but the prompt has 20"),
    (
        {"hash_ids": [1]},
        "hash_ids have no hash_block_tokens, but they say how much of the prompt each one stands for",
    ),
    (
        {"hash_ids": [1, 2, 3], "hash_block_tokens": 16},
        "there are 3 hash_ids, but a prompt of 20 tokens has 2 blocks of 16",
    ),
    (
        {"hash_ids": [1, 2], "hash_block_tokens": 20},
        "there are 2 hash_ids, but a prompt of 20 tokens has 1 block of 20",
    ),
    (
        {"hash_ids": [1.5], "hash_block_tokens": 16},
        "hash_ids holds 1.5, but whole numbers or texts are expected",
    ),
    (
        {"hash_ids": [None], "hash_block_tokens": 16},
        "hash_ids holds None, but whole numbers or texts are expected",
    ),
    ({"segments": [["p", 0, 19]]}, "segments cover 19 tokens, but the prompt has 20"),
    ({"segments": [["p", 0, 20], ["p", 0, 1]]}, "segments cover 21 tokens, but the prompt has 20"),
    (
        {"segments": [["p", 0]]},
        "segments holds ['p', 0], but [stream, start, length] such as ['p',0,16] is expected",
    ),
    ({"segments": [["p", -1, 20]]}, "segments holds ['p', -1, 20], but [stream, start, length] such as "),
    ({"segments": [["p", 0, 0]]}, "segments holds ['p', 0, 0], but [stream, start, length] such as "),
    ({"segments": [["p", 0, True]]}, "segments holds ['p', 0, True], but [stream, start, length] such as "),
    ({"segments": [5]}, "segments holds 5, but [stream, start, length] such as ['p',0,16] is expected"),
    (
        {"hash_ids": [1], "hash_block_tokens": 20, "prefix_group": "g", "prefix_tokens": 3},
        "prefix_group and hash_ids both say what the prompt shares, but a row has one form of prefix identity",
    ),
]


@pytest.mark.parametrize(("columns", "reason"), MISFITS)
def test_what_does_not_fit_the_prompt_is_refused(columns: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError) as error:
        one(20, **columns)
    assert str(error.value).startswith(f"t row 0: {reason}")


def test_a_misfit_in_a_file_has_its_line_and_may_be_left_out(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('prompt_tokens,output_tokens,hash_ids,hash_block_tokens\n20,1,"[1,2]",16\n20,1,"[1,2,3]",16\n')
    with pytest.raises(UsageError) as error:
        Trace.load(path)
    assert str(error.value) == (
        "t.csv line 3: there are 3 hash_ids, but a prompt of 20 tokens has 2 blocks of 16. "
        "One row like this; --drop-bad leaves it out."
    )
    trace = Trace.load(path, drop_bad=True)
    assert (len(trace), trace.dropped) == (1, 1)
