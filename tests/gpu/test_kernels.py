"""Each kernel against float64, under the interpreter, on poisoned and ragged data."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from validation import checks
from validation.kernels.decode import INTERPRETED, DecodeAttention

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@pytest.fixture(autouse=True)
def _same_data_every_time() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)


def test_kernels_are_interpreted() -> None:
    assert INTERPRETED


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", checks.SMALL, ids=lambda case: case.name)
def test_attention(case: checks.Case, dtype: torch.dtype) -> None:
    check = checks.attention(case, dtype, "cpu")
    assert check.error <= check.limit, check


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_small_kernels(dtype: torch.dtype) -> None:
    found = list(checks.all_checks("cpu", (dtype,), ()))
    assert len(found) == 10
    assert [check for check in found if not check.ok] == []


def test_rows_without_tokens_give_zeros_and_not_what_was_there() -> None:
    case = checks.SMALL[0]
    d = checks.data(case, torch.float16, "cpu")
    attend = DecodeAttention(len(case.lens), case.heads, case.kv_heads, case.dim, case.page, device="cpu")
    out = torch.full_like(d.q, math.nan)
    attend.plan(d.lens)
    attend(d.q, d.k, d.v, d.tables, d.lens, out)
    empty = [row for row, n in enumerate(case.lens) if not n]
    assert len(empty) == 2
    assert (out[empty] == 0).all()


def test_work_is_balanced_over_the_whole_batch() -> None:
    """One row of 6,400 tokens beside seven of 64 is cut, they are not, and the list never overflows."""
    attend = DecodeAttention(8, 4, 1, 64, 16, device="cpu", processors=4, least_tokens=64)
    lens = torch.tensor([64] * 7 + [6400], dtype=torch.int32)
    attend.plan(lens)
    chunk = int(attend.chunk)
    assert attend.target == 12
    assert int(lens.sum()) == 12 * 570 + 8
    assert chunk == 576, "a twelfth, in whole tiles"
    assert attend.splits.tolist() == [1] * 7 + [-(-6400 // 576)]
    assert attend.item_row[:8].tolist() == list(range(8))
    used = int(attend.splits.sum())
    assert attend.item_row[used:].tolist() == [-1] * (attend.items - used)
    assert attend.item_split[7:used].tolist() == list(range(12))


def test_the_list_is_long_enough_for_any_batch() -> None:
    generator = torch.Generator().manual_seed(1)
    attend = DecodeAttention(16, 4, 1, 64, 16, device="cpu", processors=3, least_tokens=64)
    for _ in range(20):
        shape = 10 ** torch.rand(16, generator=generator).mul(4.5)
        lens = (shape * (torch.rand(16, generator=generator) < 0.8)).to(torch.int32)
        attend.plan(lens)
        want = [-(-n // int(attend.chunk)) for n in lens.tolist()]
        assert attend.splits.tolist() == want
        assert sum(want) <= attend.items
        assert attend.item_row[: sum(want)].tolist() == [row for row, n in enumerate(want) for _ in range(n)]


def test_every_cut_of_the_kernel_gives_the_same_answer() -> None:
    from validation.kernels.configs import CONFIGS

    case = replace(checks.SMALL[0], lens=(300, 0, 129, 16), kv_heads=1)
    for config in CONFIGS:
        check = checks.attention(replace(case, config=config), torch.float32, "cpu")
        assert check.ok, (config, check)


def test_shapes_that_the_kernel_does_not_take_are_refused() -> None:
    for heads, kv_heads, dim in ((5, 2, 64), (34, 2, 64), (4, 2, 96)):
        with pytest.raises(ValueError, match="no shape"):
            DecodeAttention(1, heads, kv_heads, dim, 16, device="cpu")
