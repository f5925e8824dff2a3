"""A run's facts as signals, and the run as something that can be repeated with a change.

Means are over the time in which somebody waits, where somebody does for long enough, so that they answer
what the engine held while it held requests back.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simbatch.answers.diagnose.effect import Scenario
from simbatch.answers.diagnose.signals import Signals
from simbatch.facts import FINISHED, KV_SHARES, Facts, durations_ps
from simbatch.result import Result
from simbatch.units import PS_PER_S

LONG_ENOUGH = 0.01
"""Share of the time that somebody has to wait for means over it to stand for anything."""


def run_signals(result: Result) -> Signals:
    """What a server with these facts would show."""
    facts, found = result.facts, result.metrics()
    deployment = result.config.get("deployment") or {}
    limits = result.config.get("limits") or {}
    counts, held = found["requests"], {**found["bound_by"]}
    signals: Signals = {
        "engine": f"simbatch {result.config.get('system', '')}".strip(),
        "system": result.config.get("system"),
        "model": deployment.get("model"),
        "gpu": deployment.get("gpu"),
        "tensor_parallel": deployment.get("tensor_parallel_size"),
        "max_num_seqs": _seats(found, limits.get("max_num_seqs")),
        "max_num_batched_tokens": limits.get("max_num_batched_tokens"),
        "kv_tokens": facts.capacity_tokens,
        "kv_memory_share": facts.gpu_memory_share,
        "paged": _is_paged(result.config),
        "verdict": found["verdict"],
        "requests_finished": counts["finished"],
        "preemptions": counts["preemptions"],
        "recomputed_share": _recomputed_share(facts),
        "ttft_p50_s": found["latency_s"]["ttft"]["p50"],
        "finished_req_s": found["throughput"]["requests_per_s"],
        "held_back": held if None not in held.values() else None,
        "queued_share": None if held["nothing"] is None else 1.0 - held["nothing"],
        **_means(facts),
    }
    return {key: value for key, value in signals.items() if value is not None}


def _seats(found: dict[str, Any], limit: int | None) -> int | None:
    """Sequences that may run at once: those that did, where a system of its own kind (naive, static) stops earlier."""
    most, held = found["batch"]["running_max"], found["bound_by"]["max_num_seqs"]
    return int(most) if most and held and held > LONG_ENOUGH and (limit is None or most < limit) else limit


def _means(facts: Facts) -> Signals:
    """Batch, queue and KV memory, while somebody is held back if that is long enough."""
    lasts = durations_ps(facts.rows).astype(np.float64)
    held = lasts * (facts.rows["cause"] > 0)
    queues = bool(lasts.sum()) and held.sum() > LONG_ENOUGH * lasts.sum()
    weights = held if queues else lasts
    if not weights.sum():
        return {}

    def mean(column: Any) -> float:
        return float(column @ weights / weights.sum())

    signals: Signals = {"running": mean(facts.rows["running"]), "waiting": mean(facts.rows["waiting"])}
    if queues:
        signals["running_while_queueing"] = signals["running"]
    if facts.capacity_tokens:
        shares = {name: mean(facts.rows[f"{name}_mean"]) / facts.capacity_tokens for name in KV_SHARES}
        signals |= {f"{name}_share": max(0.0, shares[name]) for name in KV_SHARES if name != "free"}
        signals["kv_usage"] = min(1.0, max(0.0, 1.0 - shares["free"]))
    return signals


def _recomputed_share(facts: Facts) -> float | None:
    """Of all tokens that were computed, those that had been before."""
    requests = facts.requests
    again = int(requests["recomputed_tokens"].sum())
    done = requests["status"] == FINISHED
    once = int(requests["prompt_tokens"][done].sum() + requests["output_tokens"][done].sum())
    return again / (again + once) if once else None


def _is_paged(config: dict[str, Any]) -> bool | None:
    """By the name of the memory; None for somebody's own."""
    name = str((config.get("memory") or {}).get("name", ""))
    return True if name.startswith("paged") else False if "contiguous" in name else None


def run_scenario(result: Result) -> Scenario | None:
    """The run as something to repeat; None where not everything that it was is known."""
    from simbatch.deployment import Deployment
    from simbatch.errors import SimbatchError
    from simbatch.trace import Trace

    config, requests = result.config, result.facts.requests
    deployment, timing = config.get("deployment"), (config.get("timing") or {}).get("name")
    done = requests["status"] == FINISHED
    shares_prompts = bool(requests["cached_tokens"].any())
    if not deployment or not done.any() or shares_prompts or config.get("replicas", 1) != 1:
        return None
    order = np.flatnonzero(done)
    order = order[np.argsort(requests["arrival_ps"][order], kind="stable")]
    try:
        here = Deployment(**{key: value for key, value in deployment["given"].items() if value is not None})
        scenario = Scenario(
            trace=Trace.from_columns(
                arrival_s=(requests["arrival_ps"][order] / PS_PER_S).tolist(),
                prompt_tokens=requests["prompt_tokens"][order].tolist(),
                output_tokens=requests["output_tokens"][order].tolist(),
            ),
            deployment=here,
            what=f"the run's own {len(order):,} requests",
            arguments={
                "system": config["system"],
                "timing": timing,
                "concurrency": config.get("concurrency"),
                **(config.get("options") or {}),
            },
            kv_tokens=result.facts.capacity_tokens,
        )
        return scenario if scenario.repeats(config) else None
    except (SimbatchError, KeyError, TypeError):
        return None
