"""Every metric once: a small function of the facts, its definition and unit in its docstring.

Statistics cover the first arrival to the last finish and cut nothing (`simbatch.warmup` does, when
asked to). Means of batch and KV memory are weighted by time, over the time in which anything runs,
which is the time that the rows cover. A figure that does not exist is None, never NaN.
`docs/metrics.md` lists the same for readers; limits and goodput are in `simbatch.limits`, inter-token
gaps in `simbatch.itl`, the verdict in `simbatch.verdict`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simbatch.checks import real
from simbatch.errors import UsageError
from simbatch.facts import CAUSES, FINISHED, KV_SHARES, REFUSED, UNFINISHED, Facts, Floats, Ints, durations_ps
from simbatch.itl import itl
from simbatch.limits import LatencyLimits, few_requests, goodput
from simbatch.stats import exact_dot, exact_sum, figures_s
from simbatch.units import PS_PER_S
from simbatch.verdict import verdict
from simbatch.warmup import AUTO, after_warmup, found_warmup_s

S_PER_HOUR = 3600


def metrics(
    facts: Facts,
    limits: LatencyLimits | None = None,
    *,
    warmup_s: float | str = 0.0,
    price_usd_per_hour: float | None = None,
) -> dict[str, Any]:
    """The JSON object of a run: plain numbers, strings, lists and None.

    The verdict is about all of the run; everything else leaves *warmup_s* seconds after the first
    arrival out, or with "auto" as many as MSER-5 finds. *price_usd_per_hour* is for all GPUs together
    and goes before the run's own.
    Raises UsageError for a price that is none and a warm-up that leaves nothing.
    """
    limits = LatencyLimits() if limits is None else limits
    about_warmup: list[str] = []
    if warmup_s == AUTO:
        warmup_s, about_warmup = found_warmup_s(facts)
    elif isinstance(warmup_s, str):
        raise UsageError(f"a warm-up of {warmup_s!r} is none. Give seconds, or {AUTO!r} to have it found.")
    kept = after_warmup(facts, warmup_s)
    price = facts.price_usd_per_hour
    if price_usd_per_hour is not None and not 0 <= (price := real("the price", price_usd_per_hour, "dollars")) < np.inf:
        raise UsageError(f"the price is {price:g}. Give dollars per hour for all GPUs together, 0 or more.")
    return {
        "config": plain(facts.config),
        "verdict": verdict(facts),
        "bound_by": bound_by(kept),
        "requests": request_counts(kept),
        "latency_s": latency_s(kept),
        "throughput": throughput(kept),
        "goodput": goodput(kept, limits, makespan_s(kept)),
        "batch": batch(kept),
        "kv": kv(kept),
        "cost": cost(kept, price),
        "simulation": {
            "makespan_s": makespan_s(kept),
            "iterations": int(facts.iterations),
            "events": int(facts.events),
            "wall_s": float(facts.wall_s),
            "warmup_s": float(warmup_s),
        },
        "warnings": [*facts.warnings, *about_warmup, *few_requests(kept, limits)],
    }


def plain(value: Any) -> Any:
    """*value* as JSON gives it back: lists for tuples, Python's numbers for numpy's, names for objects."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic | np.ndarray):
        return plain(value.tolist())
    if value is None or isinstance(value, bool | int | float | str):
        return value
    kind = value if isinstance(value, type) else type(value)
    return f"{kind.__module__}:{kind.__qualname__}"


def makespan_s(facts: Facts) -> float | None:
    """First arrival to last finish, in seconds; None where nothing finished."""
    finished_ps = facts.requests["finished_ps"]
    if not (finished_ps >= 0).any():
        return None
    return float(finished_ps.max() - facts.requests["arrival_ps"].min()) / PS_PER_S


def request_counts(facts: Facts) -> dict[str, int]:
    """What became of the requests, how often they were preempted, and tokens computed again or found in the cache.

    `recomputed_tokens`: tokens that resumed requests are scheduled for, up to the one that yields
    their next output, cache hits left out. `cached_tokens`: prompt tokens found in the prefix cache.
    """
    status = facts.requests["status"]
    return {
        "arrived": int(status.size),
        "finished": int((status == FINISHED).sum()),
        "refused": int((status == REFUSED).sum()),
        "unfinished": int((status == UNFINISHED).sum()),
        "preemptions": int(facts.requests["preemptions"].sum()),
        "recomputed_tokens": int(facts.requests["recomputed_tokens"].sum()),
        "cached_tokens": int(facts.requests["cached_tokens"].sum()),
    }


def ttft_ps(facts: Facts) -> Ints:
    """Time to first token: arrival to the end of the iteration that gave token 1, queueing included."""
    first, arrival = facts.requests["first_token_ps"], facts.requests["arrival_ps"]
    return (first - arrival)[first >= 0]


def tpot_ps(facts: Facts) -> Floats:
    """Time per output token of a finished request: last minus first token time ÷ (output tokens - 1).

    Requests of one token have none and are left out.
    """
    requests = facts.requests
    some = (requests["status"] == FINISHED) & (requests["output_tokens"] > 1)
    took = (requests["finished_ps"] - requests["first_token_ps"])[some]
    means: Floats = took / (requests["output_tokens"][some] - 1)
    return means


def e2e_ps(facts: Facts) -> Ints:
    """End to end: arrival to the last token of a finished request."""
    done = facts.requests["status"] == FINISHED
    took: Ints = (facts.requests["finished_ps"] - facts.requests["arrival_ps"])[done]
    return took


def queue_ps(facts: Facts) -> Ints:
    """Queueing: arrival to the start of the first iteration that computes anything of the request."""
    scheduled, arrival = facts.requests["first_scheduled_ps"], facts.requests["arrival_ps"]
    return (scheduled - arrival)[scheduled >= 0]


def normalized_ps(facts: Facts) -> Floats:
    """Normalized latency: end to end ÷ output tokens, of finished requests."""
    outputs = facts.requests["output_tokens"][facts.requests["status"] == FINISHED]
    per_token: Floats = e2e_ps(facts) / outputs
    return per_token


def latency_s(facts: Facts) -> dict[str, dict[str, float | None]]:
    """Each latency by mean, percentiles (linear interpolation) and maximum, in seconds."""
    return {
        "ttft": figures_s(ttft_ps(facts)),
        "tpot": figures_s(tpot_ps(facts)),
        "itl": itl(facts),
        "e2e": figures_s(e2e_ps(facts)),
        "queue": figures_s(queue_ps(facts)),
        "normalized": figures_s(normalized_ps(facts)),
    }


def finished_tokens(facts: Facts) -> tuple[int, int]:
    """Prompt and output tokens of the requests that finished."""
    done = facts.requests["status"] == FINISHED
    return int(facts.requests["prompt_tokens"][done].sum()), int(facts.requests["output_tokens"][done].sum())


def throughput(facts: Facts) -> dict[str, float | None]:
    """Finished requests, their output tokens, and their prompt and output tokens together, each ÷ the makespan."""
    span_s = makespan_s(facts)
    prompts, outputs = finished_tokens(facts)
    finished = int((facts.requests["status"] == FINISHED).sum())
    totals = {"requests_per_s": finished, "output_tokens_per_s": outputs, "total_tokens_per_s": prompts + outputs}
    return {name: total / span_s if span_s else None for name, total in totals.items()}


def batch(facts: Facts) -> dict[str, float | int | None]:
    """Sequences running and waiting: means over the time in which anything runs, and the most that ran at once."""
    lasts = durations_ps(facts.rows)
    busy_ps = exact_sum(lasts)
    if not busy_ps:
        return {"running_mean": None, "running_max": None, "waiting_mean": None}
    return {
        "running_mean": exact_dot(facts.rows["running"], lasts) / busy_ps,
        "running_max": int(facts.rows["running"].max()),
        "waiting_mean": exact_dot(facts.rows["waiting"], lasts) / busy_ps,
    }


def bound_by(facts: Facts) -> dict[str, float | None]:
    """Share of the time in which anything runs that the head of the queue was held back, by cause; sums to 1."""
    lasts = durations_ps(facts.rows)
    busy_ps = exact_sum(lasts)
    held = {name: exact_sum(lasts[facts.rows["cause"] == code]) for code, name in enumerate(CAUSES)}
    return {name: held[name] / busy_ps if busy_ps else None for name in (*CAUSES[1:], CAUSES[0])}


def kv(facts: Facts) -> dict[str, float | int | None]:
    """How KV memory was used: shares of the capacity, means over the time in which anything runs.

    The five sum to 1. `peak_share`: the largest share that was held at once, over the whole run.
    `gpu_memory_share`: KV memory ÷ GPU memory.
    """
    lasts = durations_ps(facts.rows).astype(np.float64)
    capacity, busy = facts.capacity_tokens, float(lasts.sum())
    shares: dict[str, float | int | None] = {"capacity_tokens": int(capacity)}
    for name in KV_SHARES:
        mean = float(facts.rows[f"{name}_mean"] @ lasts) / busy if busy else None
        shares[f"{name}_share"] = mean / capacity if mean is not None and capacity else None
    shares["peak_share"] = facts.peak_held_tokens / capacity if capacity else None
    shares["gpu_memory_share"] = None if facts.gpu_memory_share is None else float(facts.gpu_memory_share)
    return shares


def cost(facts: Facts, price_usd_per_hour: float | None) -> dict[str, float | None] | None:
    """What the GPUs cost over the makespan ÷ millions of tokens of finished requests; None without a price."""
    if price_usd_per_hour is None:
        return None
    span_s = makespan_s(facts)
    spent_usd = None if span_s is None else price_usd_per_hour * span_s / S_PER_HOUR
    prompts, outputs = finished_tokens(facts)
    return {
        "usd_per_hour": float(price_usd_per_hour),
        "usd_per_million_output_tokens": _per_million(spent_usd, outputs),
        "usd_per_million_tokens": _per_million(spent_usd, prompts + outputs),
    }


def _per_million(spent_usd: float | None, tokens: int) -> float | None:
    return spent_usd / tokens * 1e6 if spent_usd is not None and tokens else None
