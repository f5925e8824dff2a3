"""The tiny model on a device against its dense recomputation: eager, and as a captured graph where there is one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from validation.checks import Check
from validation.dense import dense_logits
from validation.executor import ModelExecutor
from validation.kv import Cache, ContiguousCache, PagedCache
from validation.model import Model
from validation.shape import TINY
from validation.work import Row, Work

LIMITS = {torch.float32: 5e-6, torch.float16: 4e-3, torch.bfloat16: 4e-2}
"""Of the largest logit; three times what a throw-away prototype reached."""
PROMPTS = ([5, 9, 2, 44, 17], [3, 3, 90, 1, 8, 15, 60, 31, 2, 77, 12], [60])


def loop(dtype: torch.dtype, device: Any, paged: bool = True, steps: int = 3) -> Iterator[Check]:
    """Three prompts, one in two chunks and one of a single token, then *steps* decodes: three rows, a bucket of four.

    The cache starts as NaN. One check for each iteration: the largest error of any of its logits.
    """
    if paged:
        cache: Cache = PagedCache(TINY, 10, 16, dtype, device)
        places: list[list[int]] = [[7], [0, 9], [5]]
    else:
        cache = ContiguousCache(TINY, 80, dtype, device)
        places = [[50, 14], [10, 20], [33, 15]]
    cache.k.fill_(math.nan)
    cache.v.fill_(math.nan)
    model = Model(TINY, dtype, device, longest_tokens=64)
    executor = ModelExecutor(model, cache, most_rows=4, most_tokens=32, processors=4)
    executor.capture()
    known = [list(prompt) for prompt in PROMPTS]
    a, b, c = places
    limit = LIMITS[dtype]

    def step(name: str, work: Work, ends: list[tuple[int, int]]) -> Check:
        logits = executor.logits(work)
        worst = 0.0
        best = []
        for row, (i, length) in zip(logits, ends, strict=True):
            want = dense_logits(model, known[i][:length])[-1]
            error = float((row.double() - want).abs().max() / want.abs().max())
            worst = math.nan if math.isnan(error) or math.isnan(worst) else max(worst, error)
            best.append(int(row.argmax()))
        # The same iteration through the graph, which writes the same keys and values again.
        if executor.run(work).tokens != best:
            worst = math.inf
        for (i, length), token in zip(ends, best, strict=True):
            if length == len(known[i]):
                known[i].append(token)
        return Check(f"loop, {'paged' if paged else 'contiguous'}: {name}", worst, limit)

    yield step("prefill", Work(chunks=[Row(known[0], 0, a), Row(known[1][:6], 0, b)]), [(0, 5), (1, 6)])
    decodes = [Row(known[0][5:], 5, a), Row(known[2], 0, c)]
    yield step("mixed", Work(decodes, [Row(known[1][6:], 6, b)]), [(0, 6), (2, 1), (1, 11)])
    for _ in range(steps):
        rows = [Row(k[-1:], len(k) - 1, place) for k, place in zip(known, places, strict=True)]
        yield step("decode", Work(rows), [(i, len(k)) for i, k in enumerate(known)])
