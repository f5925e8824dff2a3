"""The KV cache on the device: pages for the paged memories, one address space for the contiguous ones.

Both hold [layers, …] for keys and for values and answer the same three things: where a token lies
(`slot`), what a row of the table says (`entry`), and the keys and values of a cached prefix (`gather`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from validation.shape import Shape


def _random(size: tuple[int, ...], dtype: torch.dtype, device: Any) -> torch.Tensor:
    """Never zeros: products on zeros run faster than on data."""
    import torch

    return torch.empty(size, dtype=dtype, device=device).normal_(0, 0.5)


class PagedCache:
    """*pages* pages of *page_tokens*: [layers, pages, kv heads, page, dim], a head's page in one row of memory."""

    def __init__(self, shape: Shape, pages: int, page_tokens: int, dtype: torch.dtype, device: Any) -> None:
        size = (shape.layers, pages, shape.kv_heads, page_tokens, shape.head_dim)
        self.page_tokens = page_tokens
        self.pages = pages
        self.capacity_tokens = pages * page_tokens
        self.k = _random(size, dtype, device)
        self.v = _random(size, dtype, device)

    def columns(self, longest_tokens: int) -> int:
        """Width of the block table for sequences of up to *longest_tokens*."""
        return -(-longest_tokens // self.page_tokens)

    def room(self, place: Sequence[int]) -> int:
        """Tokens that *place* can hold."""
        return len(place) * self.page_tokens

    def slot(self, place: Sequence[int], token: int) -> int:
        return place[token // self.page_tokens] * self.page_tokens + token % self.page_tokens

    def entry(self, place: Sequence[int]) -> Sequence[int]:
        return place

    def gather(
        self, layer: int, table: torch.Tensor, place: Sequence[int], tokens: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values [tokens, kv heads, dim] of the first *tokens*: copied, since pages lie anywhere."""
        ids = table[: self.columns(tokens)]

        def flat(cache: torch.Tensor) -> torch.Tensor:
            picked = cache[layer].index_select(0, ids).permute(0, 2, 1, 3)
            return picked.reshape(-1, *picked.shape[2:])[:tokens]

        return flat(self.k), flat(self.v)


class ContiguousCache:
    """One dense buffer for each request, in an arena of *capacity_tokens*: [layers, kv heads, tokens, dim]."""

    page_tokens = 0

    def __init__(self, shape: Shape, capacity_tokens: int, dtype: torch.dtype, device: Any) -> None:
        size = (shape.layers, shape.kv_heads, capacity_tokens, shape.head_dim)
        self.capacity_tokens = capacity_tokens
        self.k = _random(size, dtype, device)
        self.v = _random(size, dtype, device)

    def columns(self, longest_tokens: int) -> int:
        return 1

    def room(self, place: Sequence[int]) -> int:
        return place[1]

    def slot(self, place: Sequence[int], token: int) -> int:
        return place[0] + token

    def entry(self, place: Sequence[int]) -> Sequence[int]:
        return place[:1]

    def gather(
        self, layer: int, table: torch.Tensor, place: Sequence[int], tokens: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values [tokens, kv heads, dim]: a view, nothing is copied."""
        rows = slice(place[0], place[0] + tokens)
        return self.k[layer][:, rows].transpose(0, 1), self.v[layer][:, rows].transpose(0, 1)


Cache = PagedCache | ContiguousCache
