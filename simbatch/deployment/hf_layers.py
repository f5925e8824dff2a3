"""Which layers of a config.json differ: those that keep to a window, those without experts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from simbatch.errors import UsageError

_LOCAL_KINDS = {"sliding_attention", "chunked_attention"}


def local_layers(config: dict[str, Any], rule: str, layers: int, path: Path) -> tuple[int, int]:
    """(window in tokens, layers that keep to it); (0, 0) where all layers attend to everything.

    The list ``layer_types`` decides where a file has one, else the architecture's *rule*. Raises
    UsageError for layers that are not attention.
    """
    window = _whole(config, "attention_chunk_size" if rule == "chunked" else "sliding_window", 0, path)
    kinds = config.get("layer_types")
    if isinstance(kinds, list) and kinds:
        other = sorted({str(kind) for kind in kinds} - _LOCAL_KINDS - {"full_attention"})
        if other:
            raise UsageError(
                f"{path}: layers of the kind {', '.join(other)} are not modelled. Choose a model whose layers are "
                "all attention."
            )
        local = sum(kind in _LOCAL_KINDS for kind in kinds)
    elif rule == "chunked":
        full = config.get("no_rope_layers")
        local = sum(map(bool, full)) if isinstance(full, list) and full else layers - layers // 4
    elif config.get("use_sliding_window"):
        local = max(0, layers - _whole(config, "max_window_layers", 0, path))
    else:
        pattern = _whole(config, "sliding_window_pattern", 6, path) or 6
        local = {"all": layers, "alternate": (layers + 1) // 2, "five-of-six": layers - layers // pattern}.get(rule, 0)
    return (window, local) if window > 0 and local else (0, 0)


def dense_layers(config: dict[str, Any], layers: int, path: Path) -> int:
    """Layers of a mixture of experts that have none: the first few, those listed, or those between."""
    first = _whole(config, "first_k_dense_replace", 0, path)
    listed = config.get("mlp_only_layers")
    without = [layer for layer in listed if isinstance(layer, int)] if isinstance(listed, list) else []
    if "moe_layer_freq" in config:
        every = _whole(config, "moe_layer_freq", 1, path) or 1
        sparse = [layer for layer in range(layers) if layer >= first and layer % every == 0]
    else:
        key = "interleave_moe_layer_step" if "interleave_moe_layer_step" in config else "decoder_sparse_step"
        every = _whole(config, key, 1, path) or 1
        sparse = [layer for layer in range(layers) if layer >= first and (layer + 1) % every == 0]
    return layers - sum(layer not in without for layer in sparse)


def _whole(config: dict[str, Any], key: str, default: int, path: Path) -> int:
    """The whole number under *key*, or *default*; raises UsageError for anything else."""
    value = config.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise UsageError(f"{path}: {key} is {value!r}, not a whole number. Correct it.")
    return value
