"""The same model computed densely: no cache, no pages, no kernels of ours. What the loop is compared with.

Everything is recomputed from the first token for every token, in float64 or in the model's own type.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from validation.model import Model


def dense_logits(model: Model, tokens: Sequence[int], dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """[tokens, vocab] of one sequence."""
    shape = model.shape
    count = len(tokens)
    half = shape.head_dim // 2
    cos, sin = model.cosines[:count].to(dtype), model.sines[:count].to(dtype)

    def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * weight.to(dtype)

    def rotated(x: torch.Tensor) -> torch.Tensor:
        low, high = x[..., :half], x[..., half:]
        c, s = cos[:, None], sin[:, None]
        return torch.cat([low * c - high * s, high * c + low * s], -1)

    x = model.embedding[torch.tensor(list(tokens), device=model.device)].to(dtype)
    ahead = torch.ones(count, count, dtype=torch.bool, device=model.device).triu(1)
    for layer in model.layers:
        qkv = norm(x, layer.attention_norm) @ layer.qkv.to(dtype).T
        heads = qkv.view(count, -1, shape.head_dim)
        q = rotated(heads[:, : shape.heads])
        k = rotated(heads[:, shape.heads : shape.heads + shape.kv_heads])
        v = heads[:, shape.heads + shape.kv_heads :]
        group = shape.heads // shape.kv_heads
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        scores = torch.einsum("qhd,khd->hqk", q, k) * shape.head_dim**-0.5
        weights = scores.masked_fill(ahead, float("-inf")).softmax(-1)
        x = x + torch.einsum("hqk,khd->qhd", weights, v).reshape(count, -1) @ layer.o.to(dtype).T
        gate, up = (norm(x, layer.mlp_norm) @ layer.gate_up.to(dtype).T).chunk(2, -1)
        x = x + (torch.nn.functional.silu(gate) * up) @ layer.down.to(dtype).T
    return norm(x, model.norm) @ model.head.to(dtype).T


def greedy(model: Model, prompt: Sequence[int], outputs: int) -> list[int]:
    """The *outputs* tokens that follow *prompt*."""
    tokens = list(prompt)
    for _ in range(outputs):
        tokens.append(int(dense_logits(model, tokens)[-1].argmax()))
    return tokens[len(prompt) :]
