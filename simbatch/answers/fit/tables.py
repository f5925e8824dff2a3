"""Tables of kernels and layers: read by their columns, and iterations built from them.

Vendors time kernels by size, profilers the layers of a model. From either, iterations of every kind that
an engine meets are put together (`simbatch.timing.parts`), and those are what is fitted: so the same
formula comes out, with the host's time left to be added from elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simbatch.answers.fit.files import numbers, read_frame
from simbatch.answers.fit.rows import Iterations
from simbatch.deployment import Deployment
from simbatch.errors import UsageError
from simbatch.timing.base import Iteration
from simbatch.timing.coefficients import Coefficients
from simbatch.timing.kernels import Grid, Kernels
from simbatch.timing.layers import NOTHING, LayerParts, LayerTimes
from simbatch.timing.parts import KernelParts, Parts, PartsTiming
from simbatch.timing.work import FEATURES
from simbatch.units import PS_PER_S

if TYPE_CHECKING:
    import pandas as pd

KINDS: dict[str, set[str]] = {
    "products": {"m", "n", "k", "us"},
    "decodes": {"batch", "q_heads", "kv_heads", "context", "us"},
    "prompts": {"batch", "new_tokens_each", "q_heads", "kv_heads", "us"},
    "exchange": {"gpus", "elements_or_bytes", "us"},
    "attention": {"prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "time_us"},
    "dense": {"layer", "tokens", "time_us"},
    "head": {"layer", "sequences", "time_us"},
    "ragged": {"t_mean_us", "t_skew_us", "regime"},
}
"""Columns by which a table is known."""
_WORDS = {"layer", "regime"}
_TIMES = {"us", "time_us", "t_mean_us", "t_skew_us"}
DECODES = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
CONTEXTS = (16, 128, 512, 1024, 2048, 4096, 8192, 16384)
PROMPTS = (128, 256, 512, 1024, 2048, 4096, 8192)
MOST_CONTEXT = 400_000
"""Tokens in the cache in the largest iteration that is built."""


def kind_of(columns: Iterable[str]) -> str | None:
    """Which table has these columns."""
    found = set(columns)
    return next((kind for kind, needed in KINDS.items() if needed <= found), None)


def kernels_of(tables: Mapping[str, pd.DataFrame]) -> Kernels:
    """Kernels from tables by kind. Raises UsageError where products or attention are missing."""
    missing = [kind for kind in ("products", "decodes", "prompts") if kind not in tables]
    if missing:
        raise UsageError(
            f"steps cannot be built: no table of {', '.join(missing)}. "
            f"Give files with columns {'; '.join(', '.join(sorted(KINDS[kind])) for kind in missing)}."
        )
    prompts = tables["prompts"]
    if "past_tokens" in prompts:
        prompts = prompts[prompts["past_tokens"] == 0]
    exchange = tables.get("exchange")
    if exchange is not None and "kernel" in exchange:
        exchange = exchange[exchange["kernel"].str.contains("graph")]
    heads = ["q_heads", "kv_heads"]
    return Kernels(
        # Some widths suit the card and some do not; only more tokens never take less.
        products=_grid(tables["products"], ("m", "n", "k"), "us", rising=(0,)),
        decodes={_pair(key): _grid(rows, ("batch", "context"), "us") for key, rows in tables["decodes"].groupby(heads)},
        prompts={_pair(key): _grid(rows, ("batch", "new_tokens_each"), "us") for key, rows in prompts.groupby(heads)},
        exchange=None
        if exchange is None
        else {_gpus(key): _grid(rows, ("elements_or_bytes",), "us") for key, rows in exchange.groupby("gpus")},
    )


def layers_of(tables: Mapping[str, pd.DataFrame]) -> LayerTimes:
    """Layer times from tables by kind. Raises UsageError where one is missing."""
    missing = [kind for kind in ("attention", "dense", "head") if kind not in tables]
    if missing:
        raise UsageError(
            f"steps cannot be built: no table of {', '.join(missing)}. "
            f"Give files with columns {'; '.join(', '.join(sorted(KINDS[kind])) for kind in missing)}."
        )
    attention = tables["attention"]
    chunk, rows = attention["prefill_chunk"], attention["n_decode"]
    alone = attention[(rows == 0) & (chunk > 0)].assign(cached=lambda a: a["kv_prefill"] + NOTHING)
    both = attention[(rows > 0) & (chunk > 0)]
    first = alone.set_index(["prefill_chunk", "kv_prefill"])["time_us"]
    base = first.reindex(both.set_index(["prefill_chunk", "kv_prefill"]).index).to_numpy()
    added = both.assign(added=np.maximum(both["time_us"].to_numpy() - base, 0.1))
    known = added[added["added"].notna()]
    by = ["prefill_chunk", "n_decode", "kv_decode"]
    added = known.groupby(by)["added"].median().to_frame().reset_index()
    ragged = 1.0
    if "ragged" in tables:
        pure = tables["ragged"][tables["ragged"]["regime"] == "pure"]
        ragged = max(1.0, float((pure["t_skew_us"] / pure["t_mean_us"]).median()))
    return LayerTimes(
        dense={str(name): _grid(part, ("tokens",), "time_us") for name, part in tables["dense"].groupby("layer")},
        head={str(name): _grid(part, ("sequences",), "time_us") for name, part in tables["head"].groupby("layer")},
        decodes=_grid(attention[(chunk == 0) & (rows > 0)], ("n_decode", "kv_decode"), "time_us"),
        mixed=_grid(added, ("prefill_chunk", "n_decode", "kv_decode"), "added") if len(added) else None,
        prompts=_grid(alone, ("prefill_chunk", "cached"), "time_us"),
        ragged=ragged,
    )


def parts_of(tables: Mapping[str, pd.DataFrame], deployment: Deployment) -> Parts:
    """Parts of *deployment* from whichever kind of tables there are."""
    if "attention" in tables:
        return LayerParts(layers_of(tables), deployment)
    return KernelParts(kernels_of(tables), deployment)


def built(parts: Parts, deployment: Deployment) -> Iterations:
    """Iterations of every kind, with the time that *parts* give them; nothing of the host."""
    timing = PartsTiming(deployment, parts, Coefficients(weight_efficiency=1.0))
    work = list(_every_kind(deployment.tensor_parallel_size))
    rows = {name: np.array([float(getattr(one, name)) for one in work]) for name in FEATURES}
    duration_s = np.array([timing.progression(one)[0] / PS_PER_S for one in work])
    name = f"steps of {deployment.shape.name} on {deployment.tensor_parallel_size} GPU"
    return Iterations(deployment, rows, np.ones(len(work)), duration_s, [name] * len(work), built=True)


def _every_kind(gpus: int) -> Iterable[Iteration]:
    """Decodes, prompts alone and on cached tokens, and both together."""
    for sequences in DECODES:
        for context in CONTEXTS:
            if sequences * context <= MOST_CONTEXT * gpus:
                yield _iteration(sequences, context)
    for tokens in PROMPTS:
        for prompts in (1, 2, 4, 8):
            if tokens // prompts >= 64:
                yield _iteration(0, 0, prompts, tokens // prompts)
        for past in (1024, 4096):
            yield _iteration(0, 0, 1, tokens, past)
    for tokens in (64, 256, 512, 1024, 2048):
        for sequences in (8, 32, 128):
            for context in (256, 1024, 2048):
                yield _iteration(sequences, context, 1, tokens)


def _iteration(sequences: int, context: int, prompts: int = 0, tokens: int = 0, past: int = 0) -> Iteration:
    one = Iteration()
    one.tokens, one.sequences = sequences + prompts * tokens, sequences + prompts
    one.prefill_tokens, one.prefill_sequences = prompts * tokens, prompts
    one.prefill_context_tokens = prompts * (tokens + past)
    one.context_tokens = sequences * context + one.prefill_context_tokens
    one.prefill_pairs = prompts * (tokens * past + tokens * (tokens + 1) // 2)
    return one


def read_tables(paths: Sequence[Path]) -> dict[str, pd.DataFrame]:
    """Tables by kind. Raises UsageError for a file that is none, and for two of a kind."""
    found: dict[str, Any] = {}
    for path in paths:
        frame = read_frame(Path(path))
        kind = kind_of(frame.columns)
        if kind is None:
            raise UsageError(
                f"{path}: no table that is known ({', '.join(map(str, frame.columns[:10]))}). "
                f"Known by their columns: {'; '.join(f'{k} ({chr(44).join(sorted(v))})' for k, v in KINDS.items())}."
            )
        if kind in found:
            raise UsageError(f"{path}: a second table of {kind}. Give one of each kind.")
        for name in KINDS[kind] - _WORDS:
            frame[name] = numbers(frame, name, str(path))
            if name in _TIMES and not (frame[name] > 0).all():
                at = int(np.flatnonzero(~(frame[name] > 0))[0])
                raise UsageError(f"{path}: {name} of row {at + 1} is 0, but a kernel takes time. Leave such rows out.")
        if not len(frame):
            raise UsageError(f"{path}: a table of {kind} without rows. Give one that was measured.")
        found[kind] = frame
    return found


def _grid(frame: pd.DataFrame, axes: Sequence[str], value: str, rising: Sequence[int] | None = None) -> Grid:
    columns = [frame[name].to_numpy(dtype=np.float64) for name in axes]
    return Grid.of(columns, frame[value].to_numpy(dtype=np.float64), rising)


def _gpus(key: Any) -> int:
    return int(key)


def _pair(key: Any) -> tuple[int, int]:
    return int(key[0]), int(key[1])
