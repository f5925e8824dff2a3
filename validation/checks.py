"""Kernels against plain float64, on data that is made to find mistakes.

Free pages, the rests of last pages, outputs and workspaces hold NaN; table entries behind a row's end
hold a huge id; pages are permuted; rows are ragged, empty and padded. The same cases run under the
interpreter (tests, ``check --fake``) and on a card (``check``), where they are larger.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from validation.kernels import cache as cache_kernels
from validation.kernels import decode as decode_kernels
from validation.kernels import rows as row_kernels
from validation.kernels.configs import Config

LIMITS = {torch.float32: 2e-6, torch.float16: 6e-4, torch.bfloat16: 6e-3}
"""Largest relative error of any row, by the type that is computed in."""
HUGE_ID = 2**30
GUARD_PAGES = 3
SPLIT = 64
"""Shortest split in the cases: one tile, so that short rows have several."""


@dataclass(frozen=True)
class Check:
    """One case: its largest relative error (NaN: something unwritten or unread came through) and its limit."""

    name: str
    error: float
    limit: float

    @property
    def ok(self) -> bool:
        return self.error <= self.limit


@dataclass(frozen=True)
class Case:
    """Decode attention of rows of *lens* tokens."""

    name: str
    lens: tuple[int, ...]
    heads: int = 4
    kv_heads: int = 2
    dim: int = 64
    page: int = 16
    query_scale: float = 1.0
    config: Config | None = None
    processors: int = 4


_EDGES = (0, 1, 15, 16, 17, SPLIT, SPLIT + 1, 0)
"""Nothing, one, around a page, one split exactly and one more, padding last."""

SMALL = (
    Case("edges", _EDGES),
    Case("group of 1", (5, 0, 70, 33), heads=2, kv_heads=2),
    Case("group of 8", (5, 0, 70, 33), heads=16, kv_heads=2),
    Case("pages of 64", (0, 1, 63, 64, 65, 130), page=64),
    Case("head of 128", (17, 0, 65), dim=128),
    Case("one long row", (700, 3, 1, 9, 0, 20), heads=4, kv_heads=1),
    Case("many splits", (2000, 5), heads=4, kv_heads=1, processors=16),
    Case("large scores", (30, 300, 65), query_scale=60.0),
    Case("contiguous", _EDGES, page=0),
    Case("contiguous, long", (300, 2, 0, 129), page=0, heads=2, kv_heads=1),
    Case("empty batch", (0, 0)),
)
LARGE = (
    Case("13B, batch 1", (8000,), 40, 40, 128),
    Case("13B, ragged", (4000, *(100 + 37 * i for i in range(31))), 40, 40, 128),
    Case("8B, ragged", (16000, *(1 + 61 * i for i in range(63))), 32, 8, 128),
    Case("8B, pages of 64", tuple(50 + 97 * i for i in range(32)), 32, 8, 128, page=64),
    Case("70B", tuple(3 + 211 * i for i in range(16)), 64, 8, 128),
    Case("13B, contiguous", tuple(5 + 301 * i for i in range(12)), 40, 40, 128, page=0),
    Case("large scores", (3000, 200, 65), 32, 8, 128, query_scale=60.0),
)


@dataclass
class Data:
    """Queries and a cache."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    tables: torch.Tensor
    lens: torch.Tensor
    keys: list[torch.Tensor]
    """[kv heads, tokens, dim] of each row, as they went into the cache."""
    values: list[torch.Tensor]


def data(case: Case, dtype: torch.dtype, device: Any, seed: int = 0) -> Data:
    """Queries and a cache for *case*, everything that must not be read poisoned."""
    generator = torch.Generator(device=device).manual_seed(seed)

    def random(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=generator, device=device).to(dtype)

    rows = len(case.lens)
    keys = [random(case.kv_heads, n, case.dim) for n in case.lens]
    values = [random(case.kv_heads, n, case.dim) for n in case.lens]
    if case.page:
        needed = [-(-n // case.page) for n in case.lens]
        pages = sum(needed) + GUARD_PAGES
        ids = torch.randperm(pages, generator=torch.Generator().manual_seed(seed)).tolist()
        size: tuple[int, ...] = (pages, case.kv_heads, case.page, case.dim)
        tables = torch.full((rows + 1, max(needed) + 16), HUGE_ID, dtype=torch.int32)
    else:
        size = (case.kv_heads, sum(case.lens) + 7 * rows + 100, case.dim)
        tables = torch.full((rows + 1,), 2**40, dtype=torch.int64)
    k = torch.full(size, math.nan, dtype=dtype, device=device)
    v = torch.full(size, math.nan, dtype=dtype, device=device)
    at = 0
    for row, n in enumerate(case.lens):
        if case.page:
            for column in range(needed[row]):
                page = ids.pop()
                tables[row, column] = page
                here = slice(column * case.page, min(n, (column + 1) * case.page))
                k[page, :, : here.stop - here.start] = keys[row][:, here]
                v[page, :, : here.stop - here.start] = values[row][:, here]
        else:
            tables[row] = at
            k[:, at : at + n] = keys[row]
            v[:, at : at + n] = values[row]
            at += n + 7
    q = random(rows, case.heads, case.dim) * case.query_scale
    lens = torch.tensor(case.lens, dtype=torch.int32, device=device)
    return Data(q, k, v, tables.to(device), lens, keys, values)


def reference(case: Case, d: Data) -> torch.Tensor:
    """Softmax and products in float64, row by row."""
    out = torch.zeros(d.q.shape, dtype=torch.float64, device=d.q.device)
    for row, n in enumerate(case.lens):
        if n:
            q = d.q[row].double().view(case.kv_heads, -1, case.dim)
            scores = q @ d.keys[row].double().transpose(1, 2) * case.dim**-0.5
            out[row] = (scores.softmax(-1) @ d.values[row].double()).view(case.heads, case.dim)
    return out


def worst_row(got: torch.Tensor, want: torch.Tensor) -> float:
    """Largest relative error of a row; a row that must be zero counts by its absolute size."""
    got, want = got.double().flatten(1), want.double().flatten(1)
    size = want.norm(dim=1)
    error = (got - want).norm(dim=1) / torch.where(size > 0, size, torch.ones_like(size))
    return math.nan if bool(error.isnan().any()) else float(error.max())


def attention(case: Case, dtype: torch.dtype, device: Any, seed: int = 0) -> Check:
    """Plan, attend, merge."""
    d = data(case, dtype, device, seed)
    attend = decode_kernels.DecodeAttention(
        len(case.lens),
        case.heads,
        case.kv_heads,
        case.dim,
        case.page,
        device=device,
        processors=case.processors,
        config=case.config,
        least_tokens=SPLIT,
    )
    out = torch.full_like(d.q, math.nan)
    attend.plan(d.lens)
    attend(d.q, d.k, d.v, d.tables, d.lens, out)
    return Check(f"attention, {case.name}", worst_row(out, reference(case, d)), LIMITS[dtype])


def kv_write(dtype: torch.dtype, device: Any, page: int = 16) -> Check:
    """Keys and values go to their slots and nowhere else; slot -1 writes nothing."""
    tokens, heads, dim = 5, 2, 64
    k = torch.randn(tokens, heads, dim, device=device).to(dtype)
    v = torch.randn(tokens, heads, dim, device=device).to(dtype)
    size = (4, heads, page, dim) if page else (heads, 64, dim)
    slots = torch.tensor([3, -1, 63 if page != 64 else 200, 17, -1], device=device)
    caches = [torch.full(size, math.nan, dtype=dtype, device=device) for _ in range(2)]
    wanted = [torch.full(size, math.nan, dtype=dtype, device=device) for _ in range(2)]
    cache_kernels.write_kv(k, v, caches[0], caches[1], slots, page)
    for token, slot in enumerate(slots.tolist()):
        if slot >= 0:
            for cache, source in zip(wanted, (k, v), strict=True):
                place = cache[slot // page, :, slot % page] if page else cache[:, slot]
                place.copy_(source[token])
    same = all(torch.equal(a.nan_to_num(7.5), b.nan_to_num(7.5)) for a, b in zip(caches, wanted, strict=True))
    return Check(f"KV write, {f'pages of {page}' if page else 'contiguous'}", 0.0 if same else math.inf, 0.0)


def rotary(dtype: torch.dtype, device: Any, heads: int = 4, kv_heads: int = 2, page: int = 16) -> Check:
    """Rotation in place, and rotated keys and plain values in the cache."""
    tokens, dim = 5, 64
    half = dim // 2
    qkv = torch.randn(tokens, (heads + 2 * kv_heads) * dim, device=device).to(dtype)
    positions = torch.tensor([0, 5, 31, 2, 9], device=device)
    slots = torch.tensor([3, -1, 63, 17, 20], device=device)
    angle = torch.rand(32, half, device=device) * 6
    cos, sin = angle.cos(), angle.sin()
    before = qkv.double().view(tokens, -1, dim)
    c, s = cos[positions].double()[:, None], sin[positions].double()[:, None]
    low, high = before[..., :half], before[..., half:]
    wanted = torch.cat([low * c - high * s, high * c + low * s], -1)
    wanted[:, heads + kv_heads :] = before[:, heads + kv_heads :]
    k = torch.full((4, kv_heads, page, dim), math.nan, dtype=dtype, device=device)
    v = k.clone()
    cache_kernels.rotate_and_write(qkv, k, v, slots, positions, cos, sin, heads, kv_heads, page)
    got = qkv.view(tokens, -1, dim)
    errors = [worst_row(got, wanted)]
    written = 0
    for token, slot in enumerate(slots.tolist()):
        if slot >= 0:
            written += 1
            for cache, start in ((k, heads), (v, heads + kv_heads)):
                place = cache[slot // page, :, slot % page]
                errors.append(worst_row(place, got[token, start : start + kv_heads]))
    everything = int((~k.isnan()).sum() + (~v.isnan()).sum())
    if everything != written * 2 * kv_heads * dim:
        errors.append(math.inf)
    return Check(f"rotary and cache write, {heads}/{kv_heads} heads", _largest(errors), LIMITS[dtype])


def norm(dtype: torch.dtype, device: Any, width: int = 160, add: bool = True) -> Check:
    """Residual + RMS norm; the residual is rounded to its own type first, as it is stored."""
    x = torch.randn(3, width, device=device).to(dtype)
    residual = torch.randn(3, width, device=device).to(dtype) if add else torch.full_like(x, math.nan)
    weight = torch.randn(width, device=device).to(dtype)
    out = torch.full_like(x, math.nan)
    total = (x.double() + residual.double() if add else x.double()).to(dtype)
    want = total.double() * torch.rsqrt(total.double().square().mean(1, keepdim=True) + 1e-5) * weight.double()
    row_kernels.add_norm(x, residual, weight, out, add=add)
    error = _largest([worst_row(out, want), worst_row(residual, total)])
    return Check(f"norm of {width}{' + residual' if add else ''}", error, LIMITS[dtype])


def silu(dtype: torch.dtype, device: Any, width: int = 176) -> Check:
    """SiLU times up."""
    gate_up = torch.randn(3, 2 * width, device=device).to(dtype) * 4
    gate, up = gate_up.double().chunk(2, 1)
    out = torch.full((3, width), math.nan, dtype=dtype, device=device)
    row_kernels.silu_up(gate_up, out)
    return Check(f"SiLU x up of {width}", worst_row(out, torch.nn.functional.silu(gate) * up), LIMITS[dtype])


def _largest(errors: list[float]) -> float:
    return math.nan if any(math.isnan(e) for e in errors) else max(errors)


def all_checks(device: Any, dtypes: tuple[torch.dtype, ...], cases: tuple[Case, ...]) -> Iterator[Check]:
    """Every kernel in every type, attention over *cases*."""
    for dtype in dtypes:
        kind = str(dtype).removeprefix("torch.")
        one = [kv_write(dtype, device, page) for page in (16, 64, 0)]
        one += [
            rotary(dtype, device),
            rotary(dtype, device, 16, 8),
            norm(dtype, device),
            norm(dtype, device, add=False),
        ]
        one += [norm(dtype, device, 8192), silu(dtype, device), silu(dtype, device, 1100)]
        for check in one:
            yield Check(f"{kind}: {check.name}", check.error, check.limit)
        for case in cases:
            check = attention(case, dtype, device)
            yield Check(f"{kind}: {check.name}", check.error, check.limit)
