"""The models known by name: `model-shapes.csv`, row by row.

The file is kept as it was collected, with a certainty mark for each row (see SOURCES.md). What it
states in words only (how many layers slide, which layers have experts) is read here, and a total
is computed from the shape where that agrees with the row's rounded figure.
"""

from __future__ import annotations

import csv
import re
from functools import cache
from importlib.resources import files
from typing import Any

from simbatch.deployment.context_lengths import native_context
from simbatch.deployment.model import LatentAttention, ModelShape, count_params
from simbatch.deployment.names import match_model

_PUBLISHED_IN = {
    "DeepSeek-V3 / DeepSeek-R1": "fp8",
    "DeepSeek-V3.2": "fp8",
    "Kimi-K2": "fp8",
    "gpt-oss-20b": "mxfp4",
    "gpt-oss-120b": "mxfp4",
}
"""Rows whose original weights are not 16 bit."""

_EXPERTS_IN_EVERY = {"Llama-4-Maverick-17B-128E": (2, 16384)}
"""Experts in every n-th layer only, and the width of the layers between."""


def list_models() -> list[ModelShape]:
    """Every row of the table, in its order; those that cannot be deployed say why in `unusable`."""
    return list(_shapes().values())


def find_model(name: str) -> ModelShape:
    """The shape that *name* stands for, with the quantization that its ending says.

    Case, separators, an organisation and endings such as ``-Instruct`` do not matter. Raises
    UsageError with the nearest names where no row or more than one is left.

    >>> find_model("meta-llama/Meta-Llama-3.1-8B-Instruct").kv_elements_per_token() * 2
    131072
    """
    row, part, quantization = match_model(name, list(_shapes()))
    shape = _shapes()[row]
    changes: dict[str, Any] = {"name": part, "max_model_len": native_context(part)}
    if quantization:
        changes["quantization"] = quantization
    return ModelShape(**{**shape.__dict__, **changes})


@cache
def _shapes() -> dict[str, ModelShape]:
    text = files("simbatch.deployment").joinpath("model-shapes.csv").read_text(encoding="utf-8")
    return {row["model"]: _shape(row) for row in csv.DictReader(text.splitlines())}


def _shape(row: dict[str, str]) -> ModelShape:
    def whole(column: str) -> int:
        return int(row[column]) if row[column] else 0

    name = row["model"]
    layers, hidden, heads = whole("layers"), whole("hidden"), whole("heads")
    kv_heads, head_dim = whole("kv_heads"), whole("head_dim")
    latent = None
    if row["mla_kv_lora_rank"]:
        latent = LatentAttention(
            kv_lora_rank=whole("mla_kv_lora_rank"),
            q_lora_rank=whole("mla_q_lora_rank"),
            rope_dim=whole("mla_rope_dim"),
            nope_dim=whole("mla_nope_dim"),
            v_dim=whole("mla_v_dim"),
        )
    kv_bytes = whole("kv_bytes_per_token_bf16")
    kv_layers = layers if latent else kv_bytes // (2 * 2 * kv_heads * head_dim)
    experts, dense_layers = whole("experts"), whole("dense_layers")
    moe_layers = layers - dense_layers if experts else 0
    intermediate = whole("intermediate")
    # Shared experts are as wide as the routed ones, times their number, unless the row has no
    # dense layer whose width the column could mean.
    shared = whole("shared_experts") * whole("moe_intermediate")
    if shared and intermediate and not dense_layers:
        shared = intermediate
    between = intermediate
    if name in _EXPERTS_IN_EVERY:
        every, between = _EXPERTS_IN_EVERY[name]
        moe_layers = layers // every
    position_params = (2048 + 2) * hidden if "learned positions" in row["params_note"] else 0
    window_tokens, local_layers = _window(row, kv_layers)
    counted = count_params(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab=whole("vocab"),
        tied_embeddings=row["tied_embeddings"] == "1",
        intermediate=between,
        gated="no gate" not in row["params_note"] and not name.startswith(("OPT", "Phi-2")),
        shared_intermediate=shared,
        experts=experts,
        moe_intermediate=whole("moe_intermediate"),
        moe_layers=moe_layers,
        latent=latent,
        position_params=position_params,
    )
    stated = round(float(row["params_b"] or 0) * 1e9)
    agrees = abs(counted - stated) <= max(5_000_000, stated // 5000) and "nominal" not in row["params_note"]
    return ModelShape(
        name=name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab=whole("vocab"),
        params=counted if agrees else stated,
        intermediate=max(intermediate, shared, between),
        tied_embeddings=row["tied_embeddings"] == "1",
        position_params=position_params,
        experts=experts,
        experts_per_token=whole("experts_per_token"),
        moe_intermediate=whole("moe_intermediate"),
        moe_layers=moe_layers,
        latent=latent,
        kv_layers=kv_layers,
        local_layers=local_layers,
        window_tokens=window_tokens,
        quantization=_PUBLISHED_IN.get(name),
        notes=_notes(row, local_layers, window_tokens),
        unusable=_unusable(row),
        source=row["source"],
    )


def _window(row: dict[str, str], kv_layers: int) -> tuple[int, int]:
    """(window in tokens, layers that keep to it) from a column and a note such as "13 sliding, 13 full"."""
    note = row["window_note"]
    if chunked := re.match(r"(\d+)\b.*?\bchunked(?: attention)? (\d+)", note):
        return int(chunked[2]), int(chunked[1])
    if not row["sliding_window"]:
        return 0, 0
    sliding = re.match(r"(\d+) sliding", note)
    return int(row["sliding_window"]), int(sliding[1]) if sliding else kv_layers


def _notes(row: dict[str, str], local_layers: int, window_tokens: int) -> tuple[str, ...]:
    notes = []
    if local_layers:
        notes.append(
            f"{local_layers} of {row['layers']} layers attend to at most {window_tokens} tokens; "
            "KV memory is counted as if they kept everything"
        )
    elif row["window_note"]:
        notes.append(f"{row['window_note']}: not modelled")
    if "nominal" in row["params_note"]:
        notes.append(f"the number of parameters is {row['params_note']}")
    return tuple(notes)


def _unusable(row: dict[str, str]) -> str:
    if not row["params_b"]:
        return f"its number of parameters is not in the table ({row['window_note']})"
    if not row["kv_bytes_per_token_bf16"]:
        return f"its KV cache has several layouts and no single size per token ({row['window_note']})"
    return ""
