"""Writes to the KV cache by slot mapping: plain, and fused with the rotary embedding.

A slot is a token's place in the cache: page · page size + offset in a paged cache, the token's address
in a contiguous one (one page as large as the cache). Slot -1 writes nothing: padding of a batch bucket.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import triton
import triton.language as tl

if TYPE_CHECKING:
    import torch


@triton.jit(do_not_specialize=["page_tokens"])
def write_kv_kernel(
    k,  # [tokens, kv heads, DIM]
    v,  # as k
    k_cache,  # [pages, kv heads, page, DIM]
    v_cache,
    slots,  # [tokens] int64
    page_tokens,
    row_stride,  # strides in elements from here on
    head_stride,
    cache_page,
    cache_head,
    cache_slot,
    DIM: tl.constexpr,
    HEADS_EACH: tl.constexpr,  # divides the KV heads
):
    """Grid (tokens, kv heads / HEADS_EACH). Reads and writes 2 · DIM elements for each head."""
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots + token).to(tl.int64)
    if slot < 0:
        return
    head = tl.program_id(1).to(tl.int64) * HEADS_EACH + tl.arange(0, HEADS_EACH)[:, None]
    d = tl.arange(0, DIM)[None, :]
    source = token * row_stride + head * head_stride + d
    place = slot // page_tokens * cache_page + head * cache_head + slot % page_tokens * cache_slot + d
    tl.store(k_cache + place, tl.load(k + source))
    tl.store(v_cache + place, tl.load(v + source))


@triton.jit(do_not_specialize=["page_tokens"])
def rotate_and_write_kernel(
    qkv,  # [tokens, (heads + 2 kv heads) * 2 * HALF]: queries, keys, values; queries and keys are rotated in place
    k_cache,  # [pages, kv heads, page, 2 * HALF]
    v_cache,
    slots,  # [tokens] int64
    positions,  # [tokens] int64
    cosines,  # [longest, HALF] fp32
    sines,
    page_tokens,
    qkv_row,  # strides in elements from here on
    cache_page,
    cache_head,
    cache_slot,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HALF: tl.constexpr,
    HEADS_EACH: tl.constexpr,  # divides both numbers of heads
):
    """Grid (tokens, (heads + kv heads) / HEADS_EACH). Rotation of halves, in fp32; keys and values go to the cache."""
    token = tl.program_id(0).to(tl.int64)
    first = tl.program_id(1) * HEADS_EACH
    head = first + tl.arange(0, HEADS_EACH)[:, None]
    d = tl.arange(0, HALF)[None, :]
    position = tl.load(positions + token).to(tl.int64)
    cos = tl.load(cosines + position * HALF + d)
    sin = tl.load(sines + position * HALF + d)
    here = qkv + token * qkv_row + head * (2 * HALF) + d
    low = tl.load(here).to(tl.float32)
    high = tl.load(here + HALF).to(tl.float32)
    new_low = (low * cos - high * sin).to(qkv.dtype.element_ty)
    new_high = (high * cos + low * sin).to(qkv.dtype.element_ty)
    tl.store(here, new_low)
    tl.store(here + HALF, new_high)
    if first >= HEADS:
        slot = tl.load(slots + token).to(tl.int64)
        if slot >= 0:
            kv_head = (head - HEADS).to(tl.int64)
            place = slot // page_tokens * cache_page + kv_head * cache_head + slot % page_tokens * cache_slot + d
            value = here + KV_HEADS * 2 * HALF
            tl.store(k_cache + place, new_low)
            tl.store(k_cache + place + HALF, new_high)
            tl.store(v_cache + place, tl.load(value))
            tl.store(v_cache + place + HALF, tl.load(value + HALF))


def heads_each(heads: int, kv_heads: int) -> int:
    """Heads that one program takes: with 8 of them every thread moves 16 bytes."""
    return math.gcd(heads, kv_heads, 8)


def _strides(cache: torch.Tensor, page_tokens: int) -> tuple[int, int, int, int]:
    """(tokens of a page, strides of page, head and slot): a contiguous cache is one page."""
    if page_tokens:
        return page_tokens, cache.stride(0), cache.stride(1), cache.stride(2)
    return cache.shape[1], 0, cache.stride(0), cache.stride(1)


def write_kv(
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slots: torch.Tensor,
    page_tokens: int,
) -> None:
    """Put keys and values [tokens, kv heads, dim] into their *slots* ([tokens] int64, -1: nowhere).

    Caches are [pages, kv heads, page, dim], or with *page_tokens* 0 [kv heads, tokens, dim].
    """
    if k.stride() != v.stride() or k.stride(-1) != 1 or k_cache.stride() != v_cache.stride():
        raise ValueError("keys and values must be laid out alike, and the last dimension must be dense")
    tokens, heads, dim = k.shape
    if not tokens:
        return
    each = heads_each(heads, heads)
    page, *others = _strides(k_cache, page_tokens)
    write_kv_kernel[(tokens, heads // each)](
        k,
        v,
        k_cache,
        v_cache,
        slots,
        page,
        k.stride(0),
        k.stride(1),
        *others,
        DIM=dim,
        HEADS_EACH=each,
        num_warps=4 if each == 8 else 1,
    )


def rotate_and_write(
    qkv: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    slots: torch.Tensor,
    positions: torch.Tensor,
    cosines: torch.Tensor,
    sines: torch.Tensor,
    heads: int,
    kv_heads: int,
    page_tokens: int,
) -> None:
    """Rotate queries and keys of *qkv* [tokens, (heads + 2 kv heads) · dim] in place and cache keys and values.

    *cosines*, *sines*: [longest, dim / 2] fp32 by position; *slots*, *positions*: [tokens] int64.
    """
    tokens = qkv.shape[0]
    half = cosines.shape[1]
    page, *others = _strides(k_cache, page_tokens)
    each = heads_each(heads, kv_heads)
    rotate_and_write_kernel[(tokens, (heads + kv_heads) // each)](
        qkv,
        k_cache,
        v_cache,
        slots,
        positions,
        cosines,
        sines,
        page,
        qkv.stride(0),
        *others,
        HEADS=heads,
        KV_HEADS=kv_heads,
        HALF=half,
        HEADS_EACH=each,
        num_warps=2 if each == 8 else 1,
    )
