"""What fits, as text: the formula with every term and its unit, so that each number can be done again by hand.

The arithmetic on the label in GB of 10^9 bytes, then what an engine gets in GiB of 2^30 bytes, then
operations against bytes read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

from simbatch.answers.by_label import sequence_bytes
from simbatch.show.text import line, paragraphs, percent
from simbatch.units import show_number

if TYPE_CHECKING:
    from simbatch.answers.capacity import Capacity
    from simbatch.answers.estimates import Range

GB, GIB = 10**9, 2**30

Row: TypeAlias = tuple[str, str, str]
"""What a figure is, the figure, and where it comes from."""


def capacity_text(found: Capacity, warnings: bool = True) -> str:
    """The whole formula for people; no line break at the end."""
    parts = [list(part(found)) for part in (_sizes, _by_label, _memory, _counts, _arithmetic)]
    label = max(len(name) for part in parts for name, _, _ in part) + 2
    width = max(len(figure) for part in parts for _, figure, _ in part)
    blocks = ["\n".join(f"{a:<{label}}{b:>{width}}  {c}".rstrip() for a, b, c in part) for part in parts]
    notes = paragraphs(line("warning", warning) for warning in found.warnings) if warnings else ""
    return "\n\n".join(filter(None, [_title(found), *blocks, notes]))


def _title(found: Capacity) -> str:
    here = found.deployment
    stored = here.weight_format.name if here.weight_format else here.dtype
    gpus = f"{here.tensor_parallel_size} x " if here.tensor_parallel_size > 1 else ""
    return f"{here.shape.name} ({stored}) on {gpus}{here.card.name}. GB are 10^9 bytes, GiB are 2^30 bytes."


def _sizes(found: Capacity) -> Iterator[Row]:
    here, shape, each = found.deployment, found.deployment.shape, found.deployment.kv_element_bytes
    elements = f"2 x {shape.kv_layers} layers x {shape.kv_heads} KV heads x {shape.head_dim}"
    if shape.latent is not None:
        elements = f"{shape.kv_layers} layers x {shape.latent.kv_lora_rank + shape.latent.rope_dim}"
    whole = sequence_bytes(here, found.length_tokens)
    copies = whole / (found.length_tokens * here.kv_bytes_per_token)
    times = "" if copies == 1 else f" x {copies:g} copies"
    yield "weights, GB", f"{here.weights_bytes / GB:.2f}", f"{shape.params / GB:.2f} x 10^9 parameters"
    yield "KV cache of one token, bytes", f"{here.kv_bytes_per_token:,}", f"{elements} x {each} bytes"
    about = f"x {found.length_tokens:,} tokens{times}; {whole / GIB:.4f} GiB"
    yield "KV cache of one sequence, GB", _sequence_gb(whole / GB), about


def _by_label(found: Capacity) -> Iterator[Row]:
    yield "By the label, in GB", "", "(memory - weights) / KV cache of one sequence"
    for way in found.divisions:
        weights, sequence = f"{way.weights_gb:g}", f"{way.sequence_gb:g}"
        if way.is_exact:
            weights, sequence = f"{way.weights_gb:.2f}", _sequence_gb(way.sequence_gb)
        quotient = f"({way.memory_gb:g} - {weights}) / {sequence} = {way.quotient:.2f}"
        yield f"  {way.about}", f"{way.sequences:,}", quotient


def _memory(found: Capacity) -> Iterator[Row]:
    here, memory = found.deployment, found.deployment.memory
    share = f"x gpu_memory_utilization {here.engine_share:g}"
    yield "What vLLM gets, in GiB" + (" on each GPU" if here.tensor_parallel_size > 1 else ""), "", ""
    yield "  memory that a process sees", f"{memory.total_bytes / GIB:.2f}", f"{memory.total_bytes / GB:.2f} GB"
    yield "  share for the engine", f"{memory.budget_bytes / GIB:.2f}", share
    yield "  - weights", f"{found.weights_gib:.2f}", "as given" if "weights_gib" in found.measured else ""
    if found.is_given:
        left_gib = memory.budget_bytes / GIB - found.weights_gib - found.kv_gib.value
        yield "  - KV cache", f"{found.kv_gib.value:.2f}", "as given"
        yield "  = left", f"{left_gib:.2f}", f"an engine needs about {memory.reserve_bytes / GIB:.2f} of it"
        return
    yield "  - activations", *_estimate(found.activation_gib)
    yield "  - outside of torch", *_estimate(found.non_torch_gib)
    if found.takes_graphs_off:
        yield "  - CUDA graphs", *_estimate(found.graph_gib)
    yield "  = KV cache", *_estimate(found.kv_gib)
    if not found.takes_graphs_off:
        version = found.deployment.vllm_version
        yield "  CUDA graphs", _estimate(found.graph_gib)[0], f"beside the share in vLLM {version}: they must fit too"


def _counts(found: Capacity) -> Iterator[Row]:
    here = found.deployment
    block = f"{here.block_size} tokens, {found.block_bytes:,} bytes each; one is the null block"
    if found.layout.is_hybrid:
        block = f"{here.block_size} tokens in 1 of {found.layout.groups} groups of layers, {found.block_bytes:,} bytes"
    yield "KV blocks", f"{found.num_gpu_blocks.value:,}", block
    yield "KV tokens", f"{found.kv_tokens.value:,}", _spread(found.kv_tokens)
    yield "maximum concurrency", f"{found.max_concurrency.value:.2f}", f"x max_model_len, {here.max_model_len:,} tokens"
    blocks = found.blocks_of(found.length_tokens)
    each = f"of {found.length_tokens:,} tokens, {blocks:,} block{'s' if blocks > 1 else ''} each"
    about = "; ".join(filter(None, (each, _spread(found.sequences))))
    yield "sequences that fit", f"{found.sequences.value:,}", about


def _arithmetic(found: Capacity) -> Iterator[Row]:
    here, intensity = found.deployment, found.intensity
    alone, cached, batch = intensity["weights_only"], intensity["with_kv"], f"batch {intensity['fitting_batch']:,}"
    terabytes = here.card.bandwidth_bytes_per_s / 1e12
    yield "FLOP for each byte read", "", ""
    names = {"dense": "16 bit", "sparse": "16 bit, 2:4 sparsity", "fp8": "8 bit"}
    for kind, ridge in found.ridges.items():
        if ridge is not None:
            yield f"  ridge, {names[kind]}", f"{ridge:.1f}", f"{ridge * terabytes:,.0f} TFLOP/s / {terabytes:g} TB/s"
    peak = here.ridge_flop_per_byte
    reached = f"{peak:,.1f} from batch {alone['batch_at_ridge']:,} on"
    if found.ridges["sparse"] is not None:
        reached += f", {2 * peak:,.1f} from {alone['batch_at_sparse_ridge']:,} on"
    bound = f"below {show_number(cached['bound'])} at any batch"
    yield "  weights alone, batch 1", show_number(alone["batch_1"]), f"{_share(alone['batch_1'] / peak)} of {peak:,.1f}"
    yield f"  weights alone, {batch}", show_number(alone["fitting"]), f"{_share(alone['fitting'] / peak)}; {reached}"
    yield "  and KV cache, batch 1", show_number(cached["batch_1"]), _share(cached["batch_1"] / peak)
    yield f"  and KV cache, {batch}", show_number(cached["fitting"]), f"{_share(cached['fitting'] / peak)}; {bound}"


def _estimate(term: Range) -> tuple[str, str]:
    known = term.low == term.high
    return f"{term.value:.2f}", "as given" if known else f"estimated, {term.low:.2f} to {term.high:.2f}"


def _spread(counted: Range) -> str:
    return "" if counted.low == counted.high else f"{counted.low:,} to {counted.high:,}"


def _share(share: float) -> str:
    """How much of the peak an intensity can use: all of it from the ridge on."""
    return f"{share:.2%}".replace("%", " %") if share < 0.1 else percent(min(share, 1.0))


def _sequence_gb(gigabytes: float) -> str:
    return f"{gigabytes:.4f}" if gigabytes >= 0.1 else f"{gigabytes:.4g}"
