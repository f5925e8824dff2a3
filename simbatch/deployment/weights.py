"""How weights are stored: bits a parameter, which parameters, and the arithmetic they run in.

Embeddings and the output layer stay in 16 bit in every format, as the engines keep them.
"""

from __future__ import annotations

from dataclasses import dataclass

from simbatch.deployment.model import ModelShape
from simbatch.errors import UsageError, unknown


@dataclass(frozen=True)
class WeightFormat:
    """A quantization. *bits* include scales and zero points."""

    name: str
    bits: float
    experts_only: bool = False
    eight_bit_arithmetic: bool = False
    """Activations are quantised too, so that the 8-bit units of the GPU work where it has them."""


_FORMATS = {
    "fp8": WeightFormat("fp8", 8, eight_bit_arithmetic=True),
    "int8": WeightFormat("int8", 8, eight_bit_arithmetic=True),
    # A 16-bit scale and a 4-bit zero point for each 128 weights.
    "int4": WeightFormat("int4", 4 + (16 + 4) / 128),
    # A 32-bit scale for each 64 weights.
    "bitsandbytes": WeightFormat("bitsandbytes", 4 + 32 / 64),
    # An 8-bit scale for each 32 weights; attention is left in 16 bit.
    "mxfp4": WeightFormat("mxfp4", 4 + 8 / 32, experts_only=True),
}
_ALIASES = {
    "awq": "int4", "awq_marlin": "int4", "gptq": "int4", "gptq_marlin": "int4", "w4a16": "int4",
    "w8a8": "int8", "fp8_dynamic": "fp8", "bnb-4bit": "bitsandbytes",
}  # fmt: skip
_BYTES_OF_DTYPE = {"bfloat16": 2, "float16": 2, "float32": 4}
_DTYPE_ALIASES = {"half": "float16", "fp16": "float16", "bf16": "bfloat16", "float": "float32", "fp32": "float32"}


def resolve_dtype(dtype: str, auto: str) -> str:
    """The full name of *dtype*; ``auto`` stands for *auto*. Raises UsageError for an unknown one."""
    name = dtype.lower()
    if name == "auto":
        return auto
    name = _DTYPE_ALIASES.get(name, name)
    if name not in _BYTES_OF_DTYPE:
        also = "Weights of 8 or 4 bits are asked for with quantization."
        raise unknown("dtype", dtype, ["auto", *_BYTES_OF_DTYPE, *_DTYPE_ALIASES], also)
    return name


def dtype_bytes(dtype: str) -> int:
    """Bytes of one element of a resolved *dtype*."""
    return _BYTES_OF_DTYPE[dtype]


def resolve_quantization(quantization: str | None, published: str | None) -> WeightFormat | None:
    """The format that *quantization* names; None asks for the *published* one, ``none`` for no format at all."""
    name = published if quantization is None else quantization.lower()
    if name is None or name == "none":
        return None
    if name in ("compressed-tensors", "modelopt", "quark"):
        raise UsageError(
            f"quantization {name!r} names a file format, not a size. Say what the weights are: fp8, int8 or int4."
        )
    name = _ALIASES.get(name, name)
    if name not in _FORMATS:
        raise unknown("quantization", quantization or name, ["none", *_FORMATS, *_ALIASES])
    return _FORMATS[name]


def resolve_kv_cache_dtype(kv_cache_dtype: str, dtype: str) -> int:
    """Bytes of one element of the KV cache; ``auto`` stores it in the model's *dtype*."""
    name = kv_cache_dtype.lower()
    if name == "auto":
        return dtype_bytes(dtype)
    if name in ("fp8", "fp8_e4m3", "fp8_e5m2"):
        return 1
    name = _DTYPE_ALIASES.get(name, name)
    if name not in ("bfloat16", "float16"):
        raise unknown("kv_cache_dtype", kv_cache_dtype, ["auto", "fp8", "fp8_e4m3", "fp8_e5m2", "bfloat16", "float16"])
    return 2


@dataclass(frozen=True)
class WeightBytes:
    """Weights of a model in bytes, by how an iteration reads them."""

    token_table: float
    """Looked up, not streamed: only the rows of the scheduled tokens are read."""
    output_layer: float
    """Read once an iteration; shared with the token table where the model ties them."""
    rest: float
    """Read once an iteration, whatever is scheduled."""
    expert: float
    """One routed expert of one layer, read if a token goes there."""
    experts: float
    """All routed experts of all layers."""

    @property
    def total(self) -> float:
        return self.token_table + self.output_layer + self.rest + self.experts


def weight_bytes(
    shape: ModelShape, dtype: str, quantization: WeightFormat | None, tensor_parallel_size: int
) -> WeightBytes:
    """What one GPU of *tensor_parallel_size* holds.

    Everything is split evenly but what attention has to copy (see `ModelShape`).
    """
    element_bytes = dtype_bytes(dtype)
    expert_bytes = element_bytes if quantization is None else quantization.bits / 8
    rest_bytes = element_bytes if quantization is None or quantization.experts_only else quantization.bits / 8
    gpus = tensor_parallel_size
    copied = shape.replicated_params * (1 - 1 / gpus)
    if gpus > shape.kv_heads:
        copied += shape.kv_projection_params * (1 / shape.kv_heads - 1 / gpus)
    table_bytes = shape.vocab * shape.hidden * element_bytes / gpus
    return WeightBytes(
        token_table=(0 if shape.tied_embeddings else table_bytes) + shape.position_params * element_bytes,
        output_layer=table_bytes,
        rest=(shape.rest_params / gpus + copied) * rest_bytes,
        expert=shape.expert_params * expert_bytes / gpus,
        experts=shape.routed_params * expert_bytes / gpus,
    )
