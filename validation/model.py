"""A LLaMA-shaped model with random weights, one whole iteration at a time, from token ids to arg-max.

Tokens of an iteration lie in one flat dimension for all products: first the decoding rows, padded to
their bucket, then the chunks. Decoding rows attend through the paged kernel, chunks through torch's own
attention. Nothing here asks the device for a value, so an iteration can be captured as a CUDA graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from torch.nn.attention.bias import causal_lower_right

from validation.kernels.cache import rotate_and_write
from validation.kernels.rows import add_norm, silu_up

if TYPE_CHECKING:
    from validation.kernels.decode import DecodeAttention
    from validation.kv import Cache
    from validation.shape import Shape

ROPE_THETA = 10_000.0


class Chunk(NamedTuple):
    """Where a prompt chunk lies in an iteration. Tokens."""

    start: int
    """Of its first token in the flat dimension."""
    new_tokens: int
    cached_tokens: int
    table_row: int
    place: tuple[int, ...]
    """Only a contiguous cache needs it here, and only it depends on it."""


class Inputs(NamedTuple):
    """Device buffers of an iteration: fixed places, so that a graph finds them again."""

    tokens: torch.Tensor
    """[most tokens] int64."""
    positions: torch.Tensor
    """[most tokens] int64."""
    slots: torch.Tensor
    """[most tokens] int64, -1: nowhere."""
    lens: torch.Tensor
    """[most rows] int32, 0: padding."""
    tables: torch.Tensor
    """[most rows, columns] int32, or [most rows] int64 of first tokens."""


class Layer(NamedTuple):
    """Weights of one layer, [out, in]."""

    qkv: torch.Tensor
    o: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor
    attention_norm: torch.Tensor
    mlp_norm: torch.Tensor


class Model:
    """*shape* with weights drawn from *seed*, for sequences of up to *longest_tokens*."""

    def __init__(
        self, shape: Shape, dtype: torch.dtype, device: Any, longest_tokens: int = 8192, seed: int = 0
    ) -> None:
        generator = torch.Generator(device=device).manual_seed(seed)

        def weight(out: int, width: int) -> torch.Tensor:
            empty = torch.empty(out, width, dtype=dtype, device=device)
            return empty.normal_(0, width**-0.5, generator=generator)

        def norm() -> torch.Tensor:
            return torch.empty(shape.hidden, dtype=dtype, device=device).normal_(1, 0.1, generator=generator)

        self.shape = shape
        self.dtype = dtype
        self.device = device
        self.longest_tokens = longest_tokens
        self.embedding = weight(shape.vocab, shape.hidden)
        self.layers = [
            Layer(
                weight(shape.qkv_width, shape.hidden),
                weight(shape.hidden, shape.heads * shape.head_dim),
                weight(2 * shape.intermediate, shape.hidden),
                weight(shape.hidden, shape.intermediate),
                norm(),
                norm(),
            )
            for _ in range(shape.layers)
        ]
        self.norm = norm()
        self.head = weight(shape.vocab, shape.hidden)
        half = shape.head_dim // 2
        frequency = ROPE_THETA ** -(torch.arange(half, dtype=torch.float64) / half)
        angle = torch.arange(longest_tokens, dtype=torch.float64)[:, None] * frequency
        self.cosines = angle.cos().float().to(device)
        self.sines = angle.sin().float().to(device)

    def logits(
        self, inputs: Inputs, rows: int, chunks: tuple[Chunk, ...], cache: Cache, attention: DecodeAttention | None
    ) -> torch.Tensor:
        """[rows + chunks, vocab] of one iteration; keys and values of its tokens are in *cache* then.

        *rows* decoding rows (padding included, *attention* made for as many), then the tokens of *chunks*.
        """
        shape = self.shape
        tokens = rows + sum(chunk.new_tokens for chunk in chunks)
        x = F.embedding(inputs.tokens[:tokens], self.embedding)
        residual = torch.empty_like(x)
        hidden = torch.empty_like(x)
        mixed = torch.empty(tokens, shape.heads * shape.head_dim, dtype=self.dtype, device=self.device)
        inner = torch.empty(tokens, shape.intermediate, dtype=self.dtype, device=self.device)
        if attention is not None:
            attention.plan(inputs.lens)
        add_norm(x, residual, self.layers[0].attention_norm, hidden, add=False)
        for i, layer in enumerate(self.layers):
            qkv = F.linear(hidden, layer.qkv)
            rotate_and_write(
                qkv,
                cache.k[i],
                cache.v[i],
                inputs.slots,
                inputs.positions,
                self.cosines,
                self.sines,
                shape.heads,
                shape.kv_heads,
                cache.page_tokens,
            )
            queries = qkv[:, : shape.heads * shape.head_dim].view(tokens, shape.heads, shape.head_dim)
            out = mixed.view(tokens, shape.heads, shape.head_dim)
            if attention is not None:
                attention(queries[:rows], cache.k[i], cache.v[i], inputs.tables, inputs.lens, out[:rows])
            for chunk in chunks:
                self._attend_chunk(i, chunk, qkv, queries, out, inputs, cache)
            add_norm(F.linear(mixed, layer.o), residual, layer.mlp_norm, hidden)
            silu_up(F.linear(hidden, layer.gate_up), inner)
            following = self.layers[i + 1].attention_norm if i + 1 < len(self.layers) else self.norm
            add_norm(F.linear(inner, layer.down), residual, following, hidden)
        if not chunks:
            return F.linear(hidden, self.head)
        last = [hidden[chunk.start + chunk.new_tokens - 1 :][:1] for chunk in chunks]
        return F.linear(torch.cat([hidden[:rows], *last]), self.head)

    def _attend_chunk(
        self,
        layer: int,
        chunk: Chunk,
        qkv: torch.Tensor,
        queries: torch.Tensor,
        out: torch.Tensor,
        inputs: Inputs,
        cache: Cache,
    ) -> None:
        """Causal attention of a chunk's tokens over its cached prefix and over each other."""
        shape = self.shape
        mine = slice(chunk.start, chunk.start + chunk.new_tokens)
        if chunk.cached_tokens:
            # The chunk's own keys have just been written, so all of them come out of the cache.
            everything = chunk.cached_tokens + chunk.new_tokens
            k, v = cache.gather(layer, inputs.tables[chunk.table_row], chunk.place, everything)
            mask = causal_lower_right(chunk.new_tokens, everything)
        else:
            kv_width = shape.kv_heads * shape.head_dim
            fresh = qkv[mine, shape.heads * shape.head_dim :]
            k = fresh[:, :kv_width].view(-1, shape.kv_heads, shape.head_dim)
            v = fresh[:, kv_width:].view(-1, shape.kv_heads, shape.head_dim)
            mask = None
        answer = F.scaled_dot_product_attention(
            queries[mine].transpose(0, 1)[None],
            k.transpose(0, 1)[None],
            v.transpose(0, 1)[None],
            attn_mask=mask,
            is_causal=mask is None,
            enable_gqa=shape.heads != shape.kv_heads,
        )
        out[mine] = answer[0].transpose(0, 1)
