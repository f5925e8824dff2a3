"""Attention and writes at offsets beyond 2³¹ elements: 2.5e9 elements of cache, a few pages near the end touched.

On a CPU the memory is never filled, so a small machine does. An address formed in 32 bits wraps, and then
usually takes the process with it: run it in one of its own.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from validation import checks
from validation.kernels.cache import rotate_and_write, write_kv
from validation.kernels.decode import DecodeAttention

HEADS, PAGE, DIM = 2, 16, 64
PAGES = 2_500_000_000 // (HEADS * PAGE * DIM)
LENS = (40, 17)


def far(device: Any, paged: bool, dtype: torch.dtype = torch.float16) -> checks.Check:
    """Write, attend, rotate and write, all near the end of a cache that serves for keys and for values."""
    page = PAGE if paged else 0
    capacity = PAGES * PAGE
    cache = torch.empty(capacity * HEADS * DIM, dtype=dtype, device=device)
    cache = cache.view(PAGES, HEADS, PAGE, DIM) if paged else cache.view(HEADS, capacity, DIM)
    tables = torch.zeros(2, 3, dtype=torch.int32) if paged else torch.tensor([capacity - 100, capacity - 50])
    slots: list[int] = []
    for row, n in enumerate(LENS):
        if paged:
            pages = [PAGES - 1 - row * 4 - i for i in range(-(-n // PAGE))]
            tables[row, : len(pages)] = torch.tensor(pages)
            slots += [pages[i // PAGE] * PAGE + i % PAGE for i in range(n)]
        else:
            slots += [int(tables[row]) + i for i in range(n)]
    tables = tables.to(device)
    lens = torch.tensor(LENS, dtype=torch.int32, device=device)
    k = torch.randn(sum(LENS), HEADS, DIM, device=device).to(dtype)
    write_kv(k, k, cache, cache, torch.tensor(slots, device=device), page)
    rows = [row.transpose(0, 1) for row in k.split(LENS)]
    q = torch.randn(2, 4, DIM, device=device).to(dtype)
    d = checks.Data(q, cache, cache, tables, lens, rows, rows)
    attend = DecodeAttention(2, 4, HEADS, DIM, page, device=device, processors=2, least_tokens=64)
    out = torch.full_like(q, math.nan)
    attend.plan(lens)
    attend(q, cache, cache, tables, lens, out)
    case = checks.Case("far", LENS, heads=4, kv_heads=HEADS, dim=DIM, page=page)
    error = checks.worst_row(out, checks.reference(case, d))
    qkv = torch.randn(1, 8 * DIM, device=device).to(dtype)
    last = torch.tensor(slots[-1:], device=device)
    ones, zeros = torch.ones(4, DIM // 2, device=device), torch.zeros(4, DIM // 2, device=device)
    rotate_and_write(qkv, cache, cache, last, torch.ones_like(last), ones, zeros, 4, HEADS, page)
    where = cache[slots[-1] // page, :, slots[-1] % page] if paged else cache[:, slots[-1]]
    written = torch.equal(where, qkv.view(8, DIM)[6:])
    name = f"offsets beyond 2^31, {'paged' if paged else 'contiguous'}"
    return checks.Check(name, error if written else math.inf, checks.LIMITS[dtype])
