"""Kernel tables and layer profiles: parts of iterations on cards that were timed piece by piece."""

from __future__ import annotations

from functools import cache

import simbatch as sb
from fidelity.data import measured
from simbatch.answers.fit import Iterations
from simbatch.answers.fit.tables import built, kernels_of, layers_of, read_tables
from simbatch.timing.kernels import Kernels
from simbatch.timing.layers import LayerTimes
from simbatch.timing.parts import KernelParts, PartsTiming

TABLES = {"h100": "h100_sxm_vllm0.24", "a100-80": "a100_sxm_vllm0.14"}
SHAPES = (
    ("llama-2-7b", 1), ("llama-3.1-8b", 1), ("llama-2-13b", 1), ("qwen2.5-7b", 1), ("qwen2.5-14b", 1),
    ("llama-3.1-8b", 2), ("codellama-34b", 2), ("qwen3-32b", 2), ("llama-2-70b", 4), ("llama-3.1-70b", 4),
)  # fmt: skip
"""Models and GPUs of which steps are built for the card of a GPU."""


@cache
def kernels(gpu: str) -> Kernels:
    pieces = ("gemm_bf16", "decode_attention", "prefill_attention", "allreduce")
    paths = [measured("kernel_tables", f"{TABLES[gpu]}_{piece}.csv.gz") for piece in pieces]
    return kernels_of(read_tables(paths))


def steps(gpu: str, model: str, gpus: int) -> Iterations:
    """Iterations of every kind, built from kernels."""
    here = sb.Deployment(model, gpu=gpu, tensor_parallel_size=gpus)
    return built(KernelParts(kernels(gpu), here), here)


def timing(here: sb.Deployment, gpu: str = "h100") -> PartsTiming:
    """Iteration times from kernels alone, nothing fitted and no host."""
    return PartsTiming(here, KernelParts(kernels(gpu), here))


@cache
def layers(name: str) -> LayerTimes:
    """A layer profile of an RTX PRO 6000, such as ``llama-3.1-8b_tp1``."""
    pieces = ("attention", "dense", "per_sequence", "skew")
    return layers_of(read_tables([measured("layer_profiles", f"rtxpro6000_{name}_{piece}.csv.gz") for piece in pieces]))
