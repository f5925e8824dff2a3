"""Decode attention over a paged (or contiguous) KV cache: plan, attend, merge.

Work is cut into *items*, (sequence, split of its context), balanced over the whole batch, so one long
row in a batch of short ones does not set the time. `plan_kernel` makes the list on the device, once an
iteration: the grid is frozen in a CUDA graph while lengths move on. `attend_kernel` runs one program for
each item and KV head, with all query heads of the group in one block of 16 rows. `merge_kernel` joins the
splits of rows that have several and writes zeros for rows that have none.

Invariant: no address is formed in 32 bits, and no byte outside [0, length) of a row is used: whatever
lies in free pages, in the rest of a last page, or in a table behind its end may be NaN.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["rows", "items", "target", "least"])
def plan_kernel(
    lens,  # [rows] int32: tokens in the cache, 0 for padding
    item_row,  # [items] int32, out: -1 behind the last item
    item_split,  # [items] int32, out
    splits,  # [rows] int32, out: items of each row
    first_item,  # [rows] int32, out
    chunk,  # [1] int32, out: tokens of an item, a multiple of TILE
    rows,
    items,
    target,  # items wanted if all rows were one
    least,  # tokens that an item has at least
    ROWS: tl.constexpr,  # power of two >= rows
    ITEMS: tl.constexpr,  # items of one program
    TILE: tl.constexpr,
):
    """Grid (ceil(items / ITEMS),). At most rows + target items arise, whatever the lengths."""
    row = tl.arange(0, ROWS)
    length = tl.load(lens + row, mask=row < rows, other=0)
    total = tl.sum(length, 0)
    size = tl.maximum((total + target - 1) // target, least)
    size = (size + TILE - 1) // TILE * TILE
    count = (length + size - 1) // size
    end = tl.cumsum(count, 0)
    item = tl.program_id(0) * ITEMS + tl.arange(0, ITEMS)
    before = (end[None, :] <= item[:, None]).to(tl.int32)
    which = tl.sum(before, 1)
    split = item - tl.sum(before * count[None, :], 1)
    real = item < tl.sum(count, 0)
    tl.store(item_row + item, tl.where(real, which, -1), mask=item < items)
    tl.store(item_split + item, tl.where(real, split, 0), mask=item < items)
    if tl.program_id(0) == 0:
        tl.store(splits + row, count, mask=row < rows)
        tl.store(first_item + row, end - count, mask=row < rows)
        tl.store(chunk, size)


@triton.jit
def attend_kernel(
    q,  # [rows, heads, DIM]
    k_cache,  # paged [pages, kv heads, PAGE, DIM], contiguous [kv heads, tokens, DIM]
    v_cache,  # as k_cache
    tables,  # paged [rows, columns] int32 of page ids, contiguous [rows] int64 of first tokens
    lens,  # [rows] int32
    item_row,
    item_split,
    splits,
    chunk,
    out,  # [rows, heads, DIM], as q
    part,  # [items, heads, DIM] fp32
    part_lse,  # [items, heads] fp32, base 2
    scale_log2,  # softmax scale times log2(e)
    q_row,  # strides in elements from here on
    q_head,
    page_stride,
    head_stride,
    slot_stride,
    table_row,
    out_row,
    out_head,
    GROUP: tl.constexpr,  # query heads of a KV head, at most BLOCK_H
    BLOCK_H: tl.constexpr,
    DIM: tl.constexpr,
    PAGE: tl.constexpr,  # tokens of a page; 0: contiguous
    TILE: tl.constexpr,
    STAGES: tl.constexpr,
    WIDEN: tl.constexpr,  # compute in fp32: the interpreter gets bf16 arithmetic wrong
):
    """Grid (kv heads, items). Scores and sums in fp32; the probabilities are rounded to the cache's type."""
    head = tl.program_id(0).to(tl.int64)
    item = tl.program_id(1)
    row = tl.load(item_row + item)
    if row < 0:
        return
    size = tl.load(chunk)
    length = tl.load(lens + row)
    start = tl.load(item_split + item) * size
    end = tl.minimum(start + size, length)
    row64 = row.to(tl.int64)

    offs_h = tl.arange(0, BLOCK_H)
    offs_d = tl.arange(0, DIM)
    offs_n = tl.arange(0, TILE)
    real_h = offs_h < GROUP
    heads = head * GROUP + offs_h
    query = tl.load(q + row64 * q_row + heads[:, None] * q_head + offs_d[None, :], mask=real_h[:, None], other=0.0)
    if WIDEN:
        query = query.to(tl.float32)

    k_head = k_cache + head * head_stride
    v_head = v_cache + head * head_stride
    if PAGE == 0:
        first = tl.load(tables + row)
    else:
        table = tables + row64 * table_row

    top = tl.full([BLOCK_H], -1e30, tl.float32)
    total = tl.full([BLOCK_H], 0.0, tl.float32)
    acc = tl.full([BLOCK_H, DIM], 0.0, tl.float32)
    for at in tl.range(start, end, TILE, num_stages=STAGES):
        where = at + offs_n
        inside = where < end
        if PAGE == 0:
            base = (first + where) * slot_stride
        else:
            # Half of the stages go to this load (two stages: none of them), the other half to those that need it.
            # Carrying the ids of the next tile in a variable looks better and is not: nothing overlaps then.
            page = tl.load(table + where // PAGE, mask=inside, other=0).to(tl.int64)
            base = page * page_stride + (where % PAGE) * slot_stride
        # K is loaded like V, one address for both, and turned in shared memory.
        k = tl.load(k_head + base[:, None] + offs_d[None, :], mask=inside[:, None], other=0.0)
        v = tl.load(v_head + base[:, None] + offs_d[None, :], mask=inside[:, None], other=0.0)
        if WIDEN:
            k = k.to(tl.float32)
            v = v.to(tl.float32)
        scores = tl.dot(query, tl.trans(k), input_precision="ieee") * scale_log2
        scores = tl.where(inside[None, :], scores, float("-inf"))
        new_top = tl.maximum(top, tl.max(scores, 1))
        weights = tl.exp2(scores - new_top[:, None])
        shrink = tl.exp2(top - new_top)
        total = total * shrink + tl.sum(weights, 1)
        acc = acc * shrink[:, None]
        acc = tl.dot(weights.to(v.dtype), v, acc, input_precision="ieee")
        top = new_top

    # A row with items has tokens, and so has each of its items: total is never 0 here.
    acc = acc / total[:, None]
    if tl.load(splits + row) == 1:
        place = out + row64 * out_row + heads[:, None] * out_head + offs_d[None, :]
        tl.store(place, acc.to(out.dtype.element_ty), mask=real_h[:, None])
    else:
        slot = item.to(tl.int64) * (tl.num_programs(0) * GROUP) + heads
        tl.store(part + slot[:, None] * DIM + offs_d[None, :], acc, mask=real_h[:, None])
        tl.store(part_lse + slot, top + tl.log2(total), mask=real_h)


@triton.jit(do_not_specialize=["heads"])
def merge_kernel(
    part,
    part_lse,
    splits,
    first_item,
    out,  # [rows, heads, DIM]
    heads,
    out_row,
    out_head,
    DIM: tl.constexpr,
    BLOCK_S: tl.constexpr,  # splits read at once
    HEADS: tl.constexpr,  # heads that one program takes, one after the other
):
    """Grid (rows, ceil(heads / HEADS)). Rows of one split have been written; rows of none get zeros."""
    row = tl.program_id(0)
    count = tl.load(splits + row)
    if count == 1:
        return
    first = tl.load(first_item + row).to(tl.int64)
    offs_d = tl.arange(0, DIM)
    offs_s = tl.arange(0, BLOCK_S)
    for h in range(HEADS):
        head = tl.program_id(1) * HEADS + h
        if head < heads:
            top = -1e30
            total = 0.0
            acc = tl.full([DIM], 0.0, tl.float32)
            for at in range(0, count, BLOCK_S):
                split = at + offs_s
                real = split < count
                slot = (first + split) * heads + head
                lse = tl.load(part_lse + slot, mask=real, other=float("-inf"))
                values = tl.load(part + slot[:, None] * DIM + offs_d[None, :], mask=real[:, None], other=0.0)
                new_top = tl.maximum(top, tl.max(lse, 0))
                weights = tl.exp2(lse - new_top)
                shrink = tl.exp2(top - new_top)
                acc = acc * shrink + tl.sum(weights[:, None] * values, 0)
                total = total * shrink + tl.sum(weights, 0)
                top = new_top
            result = acc / tl.where(total == 0.0, 1.0, total)
            place = out + row.to(tl.int64) * out_row + head * out_head + offs_d
            tl.store(place, result.to(out.dtype.element_ty))
