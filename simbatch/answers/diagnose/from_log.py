"""An engine's log as signals: vLLM's lines of every few seconds, and what it prints when it starts.

Lines that are none of these are passed over; a log with none of them is an error. Percentages become
shares. Several engines in one log are kept apart by their number.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from simbatch.answers.diagnose.signals import Signals
from simbatch.errors import UsageError

MOST_LINES_KEPT = 30
"""Of the lines of every few seconds, the last ones: five minutes, so that a warm-up long ago does not count."""

_NUMBER = r"([0-9][0-9,]*(?:\.[0-9]+)?)"
_TIME = re.compile(r"\b(\d{2})-(\d{2}) (\d{2}):(\d{2}):(\d{2})")
_ENGINE = re.compile(r"Engine (\d+):")
_FIELDS = {
    "prompt_tok_s": (re.compile(rf"prompt throughput: {_NUMBER} tokens/s", re.I), 1.0),
    "generation_tok_s": (re.compile(rf"generation throughput: {_NUMBER} tokens/s", re.I), 1.0),
    "running": (re.compile(rf"Running: {_NUMBER} reqs?"), 1.0),
    "waiting": (re.compile(rf"(?:Waiting|Pending): {_NUMBER} reqs?"), 1.0),
    "swapped": (re.compile(rf"Swapped: {_NUMBER} reqs?"), 1.0),
    "preemptions": (re.compile(rf"Preemptions: {_NUMBER}"), 1.0),
    "kv_usage": (re.compile(rf"GPU KV cache usage: {_NUMBER}\s*%"), 0.01),
    "prefix_hit_share": (re.compile(rf"Prefix cache hit rate: (?:GPU: )?{_NUMBER}\s*%"), 0.01),
}
_START = {
    "kv_tokens": re.compile(rf"GPU KV cache size: {_NUMBER} tokens"),
    "num_gpu_blocks": re.compile(rf"# (?:GPU|cuda) blocks: {_NUMBER}", re.I),
    "max_concurrency": re.compile(rf"Maximum concurrency for [0-9,]+ tokens per request: {_NUMBER}x"),
    "max_model_len": re.compile(rf"Maximum concurrency for {_NUMBER} tokens per request"),
    "gpu_total_gib": re.compile(rf"total_gpu_memory \({_NUMBER}GiB\)"),
    "gpu_memory_utilization": re.compile(rf"gpu_memory_utilization \({_NUMBER}\)"),
    "weights_gib": re.compile(rf"[Mm]odel (?:weights take|loading took) {_NUMBER} ?GiB"),
    "non_torch_gib": re.compile(rf"non_torch_memory takes {_NUMBER} ?GiB"),
    "activation_gib": re.compile(rf"activation peak memory takes {_NUMBER} ?GiB"),
    "kv_gib": re.compile(rf"(?:reserved for KV Cache is|Available KV cache memory:) {_NUMBER} ?GiB"),
}
_MODEL = re.compile(r"(?:Initializing|Starting) .*?model='([^']+)'")
_PREEMPTED = re.compile(r"is preempted by|Preempted request", re.I)


def is_log(text: str) -> bool:
    """Does *text* hold a line that can be read?"""
    return any(pattern.search(text) for pattern in (*_START.values(), _FIELDS["running"][0]))


def log_signals(lines: Iterable[str], where: str) -> Signals:
    """Signals of a log. Raises UsageError where nothing in it can be read."""
    looks: dict[str, list[dict[str, Any]]] = defaultdict(list)
    signals: Signals = {}
    preempted, is_v0 = 0, False
    for line in lines:
        for key, pattern in _START.items():
            if match := pattern.search(line):
                signals[key] = _number(match[1])
        if match := _MODEL.search(line):
            signals["model"] = match[1]
        preempted += bool(_PREEMPTED.search(line))
        if "Running:" not in line:
            continue
        look = {
            key: _number(match[1]) * scale
            for key, (pattern, scale) in _FIELDS.items()
            if (match := pattern.search(line)) is not None
        }
        if "running" not in look:
            continue
        is_v0 |= "Pending:" in line or "Swapped:" in line
        at = _time_s(line)
        engine = _ENGINE.search(line)
        kept = looks[engine[1].lstrip("0") or "0" if engine else ""]
        kept.append(look if at is None else {"t": at, **look})
        del kept[:-MOST_LINES_KEPT]
    if not looks and not signals:
        raise UsageError(
            f"{where}: no line of a vLLM log in it. Give one with lines such as 'Running: 61 reqs, Waiting: 117 reqs', "
            "which vLLM prints every 10 seconds."
        )
    signals["engine"] = "vllm-v0" if is_v0 else "vllm"
    signals["window"] = f"{sum(map(len, looks.values()))} lines of a log"
    if preempted:
        signals["preemptions_total"] = preempted
    if len(looks) > 1:
        return {**signals, "engines": [_of_looks(own, index) for index, own in sorted(looks.items())]}
    return signals | (_of_looks(next(iter(looks.values()))) if looks else {})


def _of_looks(looks: list[dict[str, Any]], index: str | None = None) -> Signals:
    found: Signals = {} if index is None else {"engine_index": index}
    hits = [look.pop("prefix_hit_share") for look in looks if "prefix_hit_share" in look]
    if hits:
        found["prefix_hit_share"] = min(1.0, hits[-1])
    counted = [look["preemptions"] for look in looks if "preemptions" in look]
    if counted:
        found["preemptions"] = sum(counted)
    # A day that ends makes times go back; then only their order is known.
    times = [look.get("t") for look in looks]
    known = [time for time in times if time is not None]
    if len(known) < len(times) or known != sorted(known):
        for look in looks:
            look.pop("t", None)
    else:
        for look in looks:
            look["t"] -= known[0]
    return {**found, "series": looks}


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def _time_s(line: str) -> float | None:
    """Seconds since the year's start; only differences of them are used."""
    match = _TIME.search(line)
    if match is None:
        return None
    month, day, hour, minute, second = map(int, match.groups())
    try:
        return (datetime(2024, month, day, hour, minute, second) - datetime(2024, 1, 1)).total_seconds()
    except ValueError:
        return None
