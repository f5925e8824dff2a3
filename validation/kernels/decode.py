"""Launches decode attention: owns its workspace, plans once an iteration, then runs for each layer.

Everything is allocated when the object is made, so that it can be captured into a CUDA graph.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from validation.kernels.attention import attend_kernel, merge_kernel, plan_kernel
from validation.kernels.configs import BLOCK_H, CONFIGS, CONTIGUOUS, LEAST_SPLIT_TOKENS, Config

if TYPE_CHECKING:
    import torch

INTERPRETED = type(attend_kernel).__name__ == "InterpretedFunction"
"""Are kernels interpreted (TRITON_INTERPRET=1 was set before Triton was imported)?"""
_PLAN_ITEMS = 32
_MERGE_SPLITS = 16


def next_power_of_2(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


class DecodeAttention:
    """Attention of *rows* query tokens, one for each sequence, over a cache.

    Parameters
    ----------
    rows, heads, kv_heads, dim
        Shape of the queries [rows, heads, dim]; *dim* is a power of two, heads a multiple of *kv_heads*.
    page_tokens
        16, 32, 64, … for a paged cache, 0 for a contiguous one.
    processors
        Multiprocessors of the card: how many programs are wanted at once follows from it.
    config
        How the kernel is cut; None: the default for this kind of cache.
    least_tokens
        Shortest split, rounded up to a tile.
    """

    def __init__(
        self,
        rows: int,
        heads: int,
        kv_heads: int,
        dim: int,
        page_tokens: int,
        *,
        device: Any,
        processors: int = 132,
        config: Config | None = None,
        least_tokens: int = LEAST_SPLIT_TOKENS,
    ) -> None:
        import torch

        group = heads // kv_heads
        if heads % kv_heads or group > BLOCK_H or dim & (dim - 1):
            raise ValueError(f"{heads} heads on {kv_heads} KV heads of {dim} are no shape that the kernel takes")
        self.rows, self.heads, self.kv_heads, self.dim = rows, heads, kv_heads, dim
        config = config or (CONFIGS[0] if page_tokens else CONTIGUOUS)
        self.page_tokens, self.config, self.least_tokens = page_tokens, config, least_tokens
        self.group = group
        self.target = max(rows, -(-config.programs * processors // kv_heads))
        self.items = rows + self.target
        i32 = {"dtype": torch.int32, "device": device}
        f32 = {"dtype": torch.float32, "device": device}
        self.item_row = torch.full((self.items,), -1, **i32)
        self.item_split = torch.zeros(self.items, **i32)
        self.splits = torch.zeros(rows, **i32)
        self.first_item = torch.zeros(rows, **i32)
        self.chunk = torch.full((1,), config.tile_tokens, **i32)
        self.part = torch.full((self.items, heads, dim), math.nan, **f32)
        self.part_lse = torch.full((self.items, heads), math.nan, **f32)

    def plan(self, lens: torch.Tensor) -> None:
        """Cut the work of rows of *lens* tokens ([rows] int32). Holds until lengths change; no host sync."""
        plan_kernel[(-(-self.items // _PLAN_ITEMS),)](
            lens,
            self.item_row,
            self.item_split,
            self.splits,
            self.first_item,
            self.chunk,
            self.rows,
            self.items,
            self.target,
            self.least_tokens,
            ROWS=next_power_of_2(self.rows),
            ITEMS=_PLAN_ITEMS,
            TILE=self.config.tile_tokens,
            num_warps=4,
        )

    def __call__(
        self,
        q: torch.Tensor,
        k_cache: torch.Tensor,
        v_cache: torch.Tensor,
        tables: torch.Tensor,
        lens: torch.Tensor,
        out: torch.Tensor,
        scale: float | None = None,
    ) -> torch.Tensor:
        """Fill *out* [rows, heads, dim] for queries *q* of the same shape; call `plan` first.

        *k_cache*, *v_cache*: [pages, kv heads, page, dim] with *tables* [rows, columns] int32 of page ids,
        or contiguous [kv heads, tokens, dim] with *tables* [rows] int64 of first tokens. Any strides, the
        last one 1. *lens* [rows] int32 counts the tokens to attend to, those of this iteration included.
        """
        import torch

        if k_cache.stride() != v_cache.stride() or k_cache.stride(-1) != 1 or q.stride(-1) != 1 or out.stride(-1) != 1:
            raise ValueError("keys and values must be laid out alike, and the last dimension must be dense")
        paged = self.page_tokens > 0
        config = self.config
        attend_kernel[(self.kv_heads, self.items)](
            q,
            k_cache,
            v_cache,
            tables,
            lens,
            self.item_row,
            self.item_split,
            self.splits,
            self.chunk,
            out,
            self.part,
            self.part_lse,
            (self.dim**-0.5 if scale is None else scale) * math.log2(math.e),
            q.stride(0),
            q.stride(1),
            k_cache.stride(0) if paged else 0,
            k_cache.stride(1 if paged else 0),
            k_cache.stride(-2),
            tables.stride(0) if paged else 1,
            out.stride(0),
            out.stride(1),
            GROUP=self.group,
            BLOCK_H=BLOCK_H,
            DIM=self.dim,
            PAGE=self.page_tokens,
            TILE=config.tile_tokens,
            STAGES=config.stages,
            WIDEN=INTERPRETED and q.dtype == torch.bfloat16,
            num_warps=config.warps,
        )
        heads_each = 1 if self.rows <= 16 else 8
        merge_kernel[(self.rows, -(-self.heads // heads_each))](
            self.part,
            self.part_lse,
            self.splits,
            self.first_item,
            out,
            self.heads,
            out.stride(0),
            out.stride(1),
            DIM=self.dim,
            BLOCK_S=_MERGE_SPLITS,
            HEADS=heads_each,
            num_warps=4,
        )
        return out
