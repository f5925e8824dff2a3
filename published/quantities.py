"""What can be asked of a run, of a step and of lengths: names with units, each a plain number.

Of a run: the main metrics of `Result.metrics` under flat names, and a few that published results are given
in. With a window (*from*, *to* in seconds) means of the batch and of KV memory cover that time alone, weighted by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

import simbatch as sb

SHARES = ("live", "reserved", "internal", "external", "free")
_LATENCIES = ("ttft", "tpot", "itl", "e2e", "queue", "normalized")
Floats = NDArray[np.float64]


def of_result(
    result: sb.Result, window_s: tuple[float, float] | None, price_usd_per_hour: float | None
) -> dict[str, float]:
    """Every quantity of a run that exists for it."""
    metrics = result.metrics(price_usd_per_hour=price_usd_per_hour)
    found: dict[str, Any] = {**metrics["throughput"], **metrics["requests"], **metrics["simulation"]}
    found |= {f"{name}_{key}_s": value for name in _LATENCIES for key, value in metrics["latency_s"][name].items()}
    found |= {f"bound_{cause}": share for cause, share in metrics["bound_by"].items()}
    found |= metrics["cost"] or {}
    found |= {"running_max": metrics["batch"]["running_max"], "capacity_tokens": metrics["kv"]["capacity_tokens"]}
    found |= _of_rows(result, window_s)
    return {name: float(value) for name, value in found.items() if value is not None}


def _of_rows(result: sb.Result, window_s: tuple[float, float] | None) -> dict[str, float]:
    """Means over time, from the stretches of equal iterations."""
    steps, facts = result.steps, result.facts
    start, end = (steps[name].to_numpy() for name in ("start_s", "end_s"))
    from_s, to_s = window_s or (0.0, float(end.max()))
    inside = np.clip(np.minimum(end, to_s) - np.maximum(start, from_s), 0, None)
    busy, whole = float(inside.sum()), to_s - from_s if window_s else float(inside.sum())
    if not busy > 0:
        raise sb.UsageError(f"nothing runs from {from_s:g} to {to_s:g} s of {end.max():g}. Move window_s.")
    iterations = steps["iterations"].to_numpy()
    number = np.arange(int(steps["running"].max()) + 1)
    time_at = np.bincount(steps["running"], weights=inside, minlength=number.size) / whole
    time_at[0] += 1 - time_at.sum()
    shares = {name: float(facts.rows[f"{name}_mean"] @ inside / busy) for name in SHARES}
    held = shares["live"] + shares["reserved"] + shares["internal"]
    running = float(number @ time_at)
    asked = facts.requests["finished_ps"] >= 0
    spent = (facts.requests["finished_ps"] - facts.requests["arrival_ps"])[asked] / 1e12
    prefill = steps["prefill_tokens"].to_numpy()
    return {
        **{name: 100 * share / facts.capacity_tokens for name, share in shares.items()},
        "running": running,
        "running_variance": float(number**2 @ time_at) - running**2,
        "waiting": float(steps["waiting"].to_numpy() @ inside / whole),
        "held_tokens": held,
        "waste_tokens": shares["reserved"] + shares["internal"],
        "live_tokens": shares["live"],
        "step_mean_s": float((end - start).sum() / iterations.sum()),
        "prefill_tokens": float(prefill @ iterations),
        "spent_s": float(spent.sum()),
        "in_system_s": float((steps["running"] + steps["waiting"]).to_numpy() @ (end - start)),
        "prompt_tokens_mean": float(facts.requests["prompt_tokens"].mean()),
        "output_tokens_mean": float(facts.requests["output_tokens"].mean()),
        "waited_share": float((facts.requests["first_scheduled_ps"] > facts.requests["arrival_ps"]).mean()),
    }


def of_step(result: sb.Result, prefill_tokens: int) -> dict[str, float]:
    """The one iteration that a step scenario is about: see `published.runs`."""
    rows = result.steps
    row = rows[rows["prefill_tokens"] == prefill_tokens].iloc[-1]
    return {
        "s": float(row["first_s"]),
        "ms": 1e3 * float(row["first_s"]),
        "prefill_tokens": float(row["prefill_tokens"]),
    }


def of_lengths(trace: sb.Trace) -> dict[str, float]:
    """Means, medians, spread and correlation of lengths; rate and spread of the gaps where there are times."""
    prompts, outputs = trace.prompt_tokens.astype(float), trace.output_tokens.astype(float)
    weighted = float((prompts * outputs).mean() / outputs.mean())
    moment = float((outputs**2).mean() / outputs.mean())
    found = {
        "requests": float(len(trace)),
        **{f"prompt_{name}": value for name, value in _spread(prompts).items()},
        **{f"output_{name}": value for name, value in _spread(outputs).items()},
        "output_moment": moment,
        "seen_tokens": weighted + moment / 2,
        "correlation": float(np.corrcoef(prompts, outputs)[0, 1]) if prompts.std() and outputs.std() else 0.0,
    }
    if trace.arrival_ps is not None:
        times = trace.arrival_ps / 1e12
        gaps = np.diff(times)
        windows = np.bincount((times / (4 * gaps.mean())).astype(np.int64))[:-1]
        found |= {
            "rate_per_s": float(gaps.size / (times[-1] - times[0])),
            "gap_cv": float(gaps.std() / gaps.mean()),
            "count_dispersion": float(windows.var() / windows.mean()),
        }
    return found


def _spread(values: Floats) -> dict[str, float]:
    mean, std = float(values.mean()), float(values.std())
    return {
        "mean": mean, "std": std, "cv": std / mean, "p50": float(np.median(values)),
        "p90": float(np.percentile(values, 90)), "max": float(values.max()),
    }  # fmt: skip


def mean_of(each: list[dict[str, float]]) -> Mapping[str, float]:
    """The mean over seeds of what all of them have."""
    return {name: float(np.mean([one[name] for one in each])) for name in each[0] if all(name in one for one in each)}
