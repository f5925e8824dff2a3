"""What was observed of a server, by name: the input of every rule, and nothing that was not in it.

A key that is absent was not observed. Numbers are shares from 0 to 1, tokens, seconds, requests or GiB
as their names say. A range is a pair; an upper bound is written "<0.5"; a word such as "low" is kept.
`docs/diagnose.md` lists the keys.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from simbatch.checks import shown
from simbatch.errors import UsageError

Given: TypeAlias = "Mapping[str, Any] | Sequence[Mapping[str, Any]]"
Signals: TypeAlias = dict[str, Any]

OBSERVED = ("t", "prompt_tok_s", "generation_tok_s", "running", "waiting", "swapped", "kv_usage", "preemptions")
"""What one look at a server gives: keys of a line of `series`, or of the signals themselves."""
SHARES = frozenset(
    {
        "kv_usage",
        "gpu_utilisation",
        "prefix_hit_share",
        "live_share",
        "reserved_share",
        "internal_share",
        "external_share",
        "kv_memory_share",
        "queued_share",
        "recomputed_share",
    }
)
NUMBERS = frozenset(
    {
        *OBSERVED,
        *SHARES,
        "kv_tokens",
        "block_size",
        "num_gpu_blocks",
        "max_num_seqs",
        "max_num_batched_tokens",
        "preemptions_total",
        "preemptions_per_s",
        "requests_finished",
        "finished_req_s",
        "client_concurrency",
        "burst_requests",
        "service_rate_req_s",
        "arrival_rate_req_s",
        "wanted_rate_req_s",
        "ttft_p50_s",
        "ttft_mean_s",
        "ttft_last_s",
        "queue_mean_s",
        "tpot_mean_s",
        "e2e_mean_s",
        "interval_s",
        "prompt_tokens_mean",
        "output_tokens_mean",
        "tokens_per_step_mean",
        "running_while_queueing",
        "n_gpus",
        "tensor_parallel",
        "gpu_total_gib",
        "gpu_memory_utilization",
        "weights_gib",
        "non_torch_gib",
        "activation_gib",
        "kv_gib",
        "max_model_len",
        "max_concurrency",
    }
)
TEXTS = frozenset({"engine", "engine_index", "goal", "model", "gpu", "system", "memory", "verdict", "window"})
FLAGS = frozenset({"prefix_cache", "chunked_prefill", "paged"})
GROUPS = frozenset({"series", "runs", "workload", "generation_tok_s_per_gpu", "held_back", "engines"})
KEYS = NUMBERS | TEXTS | FLAGS | GROUPS

MOST_SHARE = 1.5
"""A share a little above 1 is rounding and counts as 1; one beyond this is a percentage, which is refused."""
_BOUND = re.compile(r"\s*[<≤]=?\s*([0-9.]+)\s*")


def read_signals(given: Given) -> tuple[Signals, list[str]]:
    """(signals, keys that nothing here knows). A list is several looks at one server.

    Raises UsageError for what is neither, and for values of the wrong kind.
    """
    if isinstance(given, Mapping):
        signals = dict(given)
    elif isinstance(given, Sequence) and not isinstance(given, str) and all(isinstance(one, Mapping) for one in given):
        signals = {"series": [dict(one) for one in given]}
    else:
        raise UsageError(f"the signals are {shown(given)}. Give a dict of them, or a list of dicts, one for each look.")
    if not signals or signals == {"series": []}:
        raise UsageError("there are no signals. Give some, such as running, waiting and kv_usage.")
    ignored = [str(key) for key in signals if key not in KEYS]
    found = {key: _checked(key, value) for key, value in signals.items() if key in KEYS and value is not None}
    return found, ignored


def number(value: Any) -> float | None:
    """A number, the middle of a range, or the bound of an upper bound; None for a word or for nothing."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, str):
        bound = _BOUND.fullmatch(value)
        return float(bound[1]) if bound else None
    low, high = value
    return (float(low) + float(high)) / 2


def bounds(value: Any) -> tuple[float, float] | None:
    """Between what a value lies: a number between itself and itself."""
    if isinstance(value, list | tuple):
        return float(value[0]), float(value[1])
    single = number(value)
    return None if single is None else (single, single)


def _checked(key: str, value: Any) -> Any:
    if key in ("series", "runs", "engines"):
        if not isinstance(value, Sequence) or isinstance(value, str) or not all(isinstance(v, Mapping) for v in value):
            raise UsageError(f"the signal {key} is {shown(value)}. Give a list of dicts.")
        return [{k: _checked(k, v) for k, v in line.items() if v is not None} for line in value]
    if key in GROUPS:
        if not isinstance(value, Mapping):
            raise UsageError(f"the signal {key} is {shown(value)}. Give a dict.")
        return dict(value)
    if key in TEXTS:
        return str(value)
    if key in FLAGS:
        if not isinstance(value, bool):
            raise UsageError(f"the signal {key} is {shown(value)}. Give true or false.")
        return value
    return _checked_number(key, value) if key in NUMBERS else value


def _checked_number(key: str, value: Any) -> Any:
    if isinstance(value, str) and number(value) is None:
        return value.strip().lower()
    pair = isinstance(value, list | tuple) and len(value) == 2
    parts = list(value) if pair else [number(value) if not isinstance(value, list | tuple | Mapping) else None]
    for part in parts:
        if isinstance(part, bool) or not isinstance(part, int | float) or not math.isfinite(part) or part < 0:
            raise UsageError(f"the signal {key} is {shown(value)}. Give a number of at least 0, or a pair of them.")
        if key in SHARES and part > MOST_SHARE:
            raise UsageError(
                f"the signal {key} is {shown(value)}, but it is a share. Give a number from 0 to 1, such as 0.99."
            )
    if key in SHARES and not isinstance(value, str):
        shares = [min(1.0, number(part) or 0.0) for part in parts]
        return shares if pair else shares[0]
    return value
