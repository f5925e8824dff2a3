"""The two small kernels between products: residual + RMS norm, and SiLU times up. One pass over memory each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

from validation.kernels.decode import next_power_of_2

if TYPE_CHECKING:
    import torch

_SILU_BLOCK = 1024


@triton.jit
def add_norm_kernel(
    x,  # [tokens, WIDTH]: what the layer added
    residual,  # [tokens, WIDTH]: in and out, residual + x
    weight,  # [WIDTH]
    out,  # [tokens, WIDTH]
    x_row,  # strides in elements
    residual_row,
    out_row,
    epsilon,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,  # power of two >= WIDTH
    ADD: tl.constexpr,  # False: residual = x, for the first norm
):
    """Grid (tokens,). Reads 3 and writes 2 rows of WIDTH; the norm in fp32 of the rounded sum."""
    token = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, BLOCK)
    real = d < WIDTH
    value = tl.load(x + token * x_row + d, mask=real, other=0.0).to(tl.float32)
    if ADD:
        value += tl.load(residual + token * residual_row + d, mask=real, other=0.0).to(tl.float32)
    rounded = value.to(residual.dtype.element_ty)
    tl.store(residual + token * residual_row + d, rounded, mask=real)
    value = rounded.to(tl.float32)
    mean_square = tl.sum(value * value, 0) / WIDTH
    scaled = value * (1.0 / tl.sqrt(mean_square + epsilon))
    scaled = scaled * tl.load(weight + d, mask=real, other=0.0).to(tl.float32)
    tl.store(out + token * out_row + d, scaled.to(out.dtype.element_ty), mask=real)


@triton.jit
def silu_up_kernel(
    gate_up,  # [tokens, 2 * width]: gate, then up
    out,  # [tokens, width]
    width,
    in_row,  # strides in elements
    out_row,
    BLOCK: tl.constexpr,
):
    """Grid (tokens, ceil(width / BLOCK)). Reads 2 and writes 1 element for each output; in fp32."""
    token = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    real = d < width
    gate = tl.load(gate_up + token * in_row + d, mask=real, other=0.0).to(tl.float32)
    up = tl.load(gate_up + token * in_row + width + d, mask=real, other=0.0).to(tl.float32)
    result = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(out + token * out_row + d, result.to(out.dtype.element_ty), mask=real)


def add_norm(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    out: torch.Tensor,
    *,
    add: bool = True,
    epsilon: float = 1e-5,
) -> torch.Tensor:
    """residual += x (or = x without *add*), then *out* = norm(residual) · weight; all [tokens, width]."""
    tokens, width = x.shape
    block = next_power_of_2(width)
    add_norm_kernel[(tokens,)](
        x,
        residual,
        weight,
        out,
        x.stride(0),
        residual.stride(0),
        out.stride(0),
        epsilon,
        WIDTH=width,
        BLOCK=block,
        ADD=add,
        num_warps=8 if block > 2048 else 4,
    )
    return out


def silu_up(gate_up: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """*out* [tokens, width] = silu(gate) · up of *gate_up* [tokens, 2 · width]."""
    tokens, width = out.shape
    silu_up_kernel[(tokens, -(-width // _SILU_BLOCK))](
        gate_up, out, width, gate_up.stride(0), out.stride(0), BLOCK=_SILU_BLOCK, num_warps=4
    )
    return out
