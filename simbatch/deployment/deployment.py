"""A model on GPUs: what fits, and how fast it could be at best.

Everything is worked out once, when the object is made, from names and engine flags spelt as vLLM
spells them. Memory is counted per GPU unless a name says otherwise; *kv_tokens* is the same number
seen from either side, since each GPU keeps its share of every token.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from simbatch.deployment.arguments import checked_arguments
from simbatch.deployment.catalogue import find_model
from simbatch.deployment.defaults import BLOCK_SIZE, EngineLimits, engine_limits
from simbatch.deployment.fitting import UNKNOWN_CONTEXT_TOKENS, refuse_what_does_not_fit, usable_length
from simbatch.deployment.gpu import GIB, GPU, find_gpu
from simbatch.deployment.hf_config import is_model_folder, read_model_folder
from simbatch.deployment.memory_budget import MemoryBudget, memory_budget
from simbatch.deployment.model import ModelShape
from simbatch.deployment.releases import (
    MOST_WHOLE_TOKENS,
    NEWEST,
    MemoryRules,
    about_release,
    find_release,
    memory_rules,
)
from simbatch.deployment.weights import (
    WeightBytes,
    WeightFormat,
    dtype_bytes,
    resolve_dtype,
    resolve_kv_cache_dtype,
    resolve_quantization,
    weight_bytes,
)
from simbatch.errors import UsageError

_NEWER = ("vllm_version", "kv_cache_memory_bytes")
"""Arguments described only where they were given: results saved without them stay as they were."""
KV_SIZES = frozenset({"num_gpu_blocks", "kv_tokens", "kv_cache_memory_bytes"})
"""Arguments that say how large the KV cache is."""


@dataclass(frozen=True, repr=False)
class Deployment:
    """One replica: *model* on *tensor_parallel_size* GPUs.

    *model* is a known name, a folder with a Hugging Face config.json, or a `ModelShape`. What is
    None takes vLLM's default. KV memory is derived from *gpu_memory_utilization* unless
    *num_gpu_blocks* (as vLLM counts them: one is the null block), *kv_tokens* (usable tokens,
    exactly) or *kv_cache_memory_bytes* (of each GPU) says what it is. *vllm_version* is the release
    whose memory accounting holds. Raises UsageError for unknown names and for what cannot run.

    >>> Deployment("llama-3.1-8b", gpu="h100").kv_bytes_per_token
    131072
    """

    model: str | Path | ModelShape = "llama-3.1-8b"
    gpu: str | GPU = "h100"
    tensor_parallel_size: int = 1
    dtype: str = "auto"
    quantization: str | None = None
    kv_cache_dtype: str = "auto"
    gpu_memory_utilization: float | None = None
    block_size: int = BLOCK_SIZE
    max_model_len: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    enable_chunked_prefill: bool = True
    num_gpu_blocks: int | None = None
    kv_tokens: int | None = None
    price_usd_per_hour: float | None = None
    """Per GPU."""
    vllm_version: str | None = None
    kv_cache_memory_bytes: int | None = None

    shape: ModelShape = field(init=False, compare=False)
    card: GPU = field(init=False, compare=False)
    given: dict[str, Any] = field(init=False, compare=False)
    """The arguments as they were given, defaults left out: ``Deployment(**given)`` repeats it."""
    limits: EngineLimits = field(init=False, compare=False)
    rules: MemoryRules = field(init=False, compare=False)
    warnings: tuple[str, ...] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        self._set(**checked_arguments({f.name: getattr(self, f.name) for f in fields(self) if f.init}))
        given = {f.name: getattr(self, f.name) for f in fields(self) if f.init and getattr(self, f.name) != f.default}
        shape = self.model if isinstance(self.model, ModelShape) else _find_shape(self.model)
        card = self.gpu if isinstance(self.gpu, GPU) else find_gpu(self.gpu)
        release = NEWEST if self.vllm_version is None else find_release(self.vllm_version)
        rules = memory_rules(release)
        self._set(given=given, shape=shape, card=card, rules=rules)
        if self.gpu_memory_utilization is None:
            self._set(gpu_memory_utilization=rules.default_utilization)
        self._check()
        self._set(dtype=resolve_dtype(self.dtype, shape.dtype if card.has_bf16 else "float16"))
        if self.dtype == "bfloat16" and not card.has_bf16:
            raise UsageError(f"{card.name} has no bfloat16. Use dtype float16.")
        longest = self.max_model_len or shape.max_model_len or UNKNOWN_CONTEXT_TOKENS
        self._set(
            limits=engine_limits(
                card,
                longest,
                max_num_batched_tokens=self.max_num_batched_tokens,
                max_num_seqs=self.max_num_seqs,
                enable_chunked_prefill=self.enable_chunked_prefill
                and not (rules.whole_prompts and longest <= MOST_WHOLE_TOKENS),
                small=rules.small_defaults,
            )
        )
        memory_given = bool(KV_SIZES & given.keys())
        notes = [f"{shape.name}: {note}" for note in shape.notes] + about_release(release)
        notes += refuse_what_does_not_fit(self, memory_given)
        if self.kv_tokens is None:
            if self.num_gpu_blocks is None:
                block_bytes = self.block_size * self.kv_bytes_per_token_per_gpu
                self._set(num_gpu_blocks=(self.kv_cache_memory_bytes or self.memory.kv_cache_bytes) // block_bytes)
            self._set(kv_tokens=((self.num_gpu_blocks or 1) - 1) * self.block_size)
        else:
            self._set(num_gpu_blocks=self.kv_tokens // self.block_size + 1)
        length, about_length = usable_length(self)
        notes += about_length
        if self.weight_format and self.weight_format.eight_bit_arithmetic and card.fp8_flop_per_s is None:
            notes.append(f"{card.name} has no 8-bit floating point: weights are small, arithmetic is 16 bit")
        if self.dtype == "float32":
            notes.append("the peak for float32 is not in the table: half of the 16-bit peak is used")
        self._set(max_model_len=length, warnings=tuple(notes))

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _check(self) -> None:
        if self.shape.unusable:
            raise UsageError(f"{self.shape.name} cannot be deployed: {self.shape.unusable}. Choose another model.")
        self.shape.check_tensor_parallel(self.tensor_parallel_size)
        if self.tensor_parallel_size > 1 and self.card.link_bytes_per_s is None:
            raise UsageError(f"{self.card.name} has no link to other GPUs in the table. Use tensor_parallel_size 1.")

    @cached_property
    def weight_format(self) -> WeightFormat | None:
        """The quantization of the weights; None where they are stored in *dtype*."""
        return resolve_quantization(self.quantization, self.shape.quantization)

    @cached_property
    def weights(self) -> WeightBytes:
        """What one GPU holds, by how an iteration reads it."""
        return weight_bytes(self.shape, self.dtype, self.weight_format, self.tensor_parallel_size)

    @property
    def weights_bytes_per_gpu(self) -> int:
        return round(self.weights.total)

    @property
    def weights_bytes(self) -> int:
        """Of all GPUs together, copies included."""
        return self.weights_bytes_per_gpu * self.tensor_parallel_size

    @cached_property
    def kv_element_bytes(self) -> int:
        return resolve_kv_cache_dtype(self.kv_cache_dtype, self.dtype)

    @property
    def kv_bytes_per_token(self) -> int:
        """KV cache of one token, one copy, all layers counted."""
        return self.shape.kv_elements_per_token() * self.kv_element_bytes

    @property
    def kv_bytes_per_token_per_gpu(self) -> int:
        """The part of a token's KV cache that each GPU keeps."""
        return self.shape.kv_elements_per_token(self.tensor_parallel_size) * self.kv_element_bytes

    @cached_property
    def memory(self) -> MemoryBudget:
        """Estimated use of one GPU's memory, before any override of the KV cache."""
        return memory_budget(
            self.shape,
            total_bytes=self.card.memory_bytes,
            gpu_memory_utilization=self.engine_share,
            weights_bytes=self.weights_bytes_per_gpu,
            element_bytes=dtype_bytes(self.dtype),
            tensor_parallel_size=self.tensor_parallel_size,
            max_num_batched_tokens=self.limits.max_num_batched_tokens,
            max_num_seqs=self.limits.max_num_seqs,
            rules=self.rules,
        )

    @property
    def engine_share(self) -> float:
        """Share of a GPU's memory for the engine: *gpu_memory_utilization*, by default that of the release."""
        return self.rules.default_utilization if self.gpu_memory_utilization is None else self.gpu_memory_utilization

    @property
    def kv_cache_bytes_per_gpu(self) -> int:
        """KV memory of one GPU that tokens can use; follows *num_gpu_blocks* and *kv_tokens* where given."""
        return (self.kv_tokens or 0) * self.kv_bytes_per_token_per_gpu

    @property
    def kv_cache_bytes(self) -> int:
        """KV memory of all GPUs."""
        return self.kv_cache_bytes_per_gpu * self.tensor_parallel_size

    @property
    def gpu_memory_bytes(self) -> int:
        """Memory of all GPUs."""
        return self.card.memory_bytes * self.tensor_parallel_size

    @property
    def peak_flop_per_s(self) -> float:
        """Dense peak of one GPU for the arithmetic of the weights (8-bit units where both can)."""
        if self.weight_format and self.weight_format.eight_bit_arithmetic and self.card.fp8_flop_per_s:
            return self.card.fp8_flop_per_s
        return self.card.bf16_flop_per_s / (2 if self.dtype == "float32" else 1)

    @property
    def ridge_flop_per_byte(self) -> float:
        """Operations per byte read from which on a GPU is limited by arithmetic."""
        return self.peak_flop_per_s / self.card.bandwidth_bytes_per_s

    @property
    def usd_per_hour(self) -> float | None:
        """Price of the replica; None where no price was given."""
        return None if self.price_usd_per_hour is None else self.price_usd_per_hour * self.tensor_parallel_size

    def replace(self, **changes: Any) -> Deployment:
        """The same deployment with other arguments; what was derived is derived anew."""
        return Deployment(**{**self.given, **changes})

    def describe(self) -> dict[str, Any]:
        """What repeats it and what it came to, units in the names; plain values, ready for JSON."""
        given = {k: v if isinstance(v, int | float | str | None) else getattr(v, "name", str(v)) for k, v in
                 self.given.items()}  # fmt: skip
        own = {
            f.name: getattr(self, f.name)
            for f in fields(self)
            if f.init
            and f.name not in ("model", "gpu", "quantization", "max_num_batched_tokens", "max_num_seqs")
            and not (f.name in _NEWER and getattr(self, f.name) is None)
        }
        return {
            "model": self.shape.name,
            "gpu": self.card.name,
            "quantization": self.weight_format.name if self.weight_format else None,
            **own,
            "max_num_batched_tokens": self.limits.max_num_batched_tokens,
            "max_num_seqs": self.limits.max_num_seqs,
            "weights_bytes": self.weights_bytes,
            "kv_bytes_per_token": self.kv_bytes_per_token,
            "kv_cache_bytes": self.kv_cache_bytes,
            "gpu_memory_bytes": self.gpu_memory_bytes,
            "reserve_bytes_per_gpu": self.memory.reserve_bytes,
            "ridge_flop_per_byte": self.ridge_flop_per_byte,
            "warnings": list(self.warnings),
            "given": given,
        }

    def __repr__(self) -> str:
        count = f"{self.tensor_parallel_size} x " if self.tensor_parallel_size > 1 else ""
        return (
            f"<{self.shape.name} on {count}{self.card.name}: {self.weights_bytes / GIB:.1f} GiB of weights, "
            f"{self.kv_tokens:,} KV tokens>"
        )


def _find_shape(model: str | Path) -> ModelShape:
    return read_model_folder(model) if is_model_folder(model) else find_model(str(model))
