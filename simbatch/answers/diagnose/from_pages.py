"""One or two scrapes as signals: gauges as they are, counters and histograms as rates and means between scrapes.

With one scrape, totals and means since the server's start; nothing is called a rate. Two scrapes without
the time between them give what happened between them, and no rate either. Percentiles of a histogram are
known between two bucket edges and are given as that pair.
"""

from __future__ import annotations

import math

from simbatch.answers.diagnose.page import Page
from simbatch.answers.diagnose.signals import Signals
from simbatch.errors import UsageError

_MEANS = {
    "ttft": "ttft_mean_s",
    "tpot": "tpot_mean_s",
    "queue": "queue_mean_s",
    "e2e": "e2e_mean_s",
    "prompt_length": "prompt_tokens_mean",
    "output_length": "output_tokens_mean",
    "tokens_per_step": "tokens_per_step_mean",
}


def page_signals(first: Page, second: Page | None = None, interval_s: float | None = None) -> Signals:
    """Signals of one page, or of two that were fetched *interval_s* apart.

    Several engines behind one address come as `engines`. Raises UsageError for pages of different servers,
    and for a restart between them.
    """
    last = first if second is None else second
    if second is not None and first.names is not second.names:
        raise UsageError(
            f"{first.where} is a page of {first.names.engine} and {second.where} one of {second.names.engine}. "
            "Give two scrapes of one server."
        )
    engines = last.engines()
    if second is not None and first.engines() != engines:
        raise UsageError(
            f"{first.where} and {second.where} have other engines in them. Give two scrapes of one server."
        )
    signals = [_of_engine(first, second, engine, interval_s) for engine in engines]
    if len(signals) == 1:
        return signals[0]
    return {"engine": last.names.engine, "engines": signals}


def _of_engine(first: Page, second: Page | None, engine: str, interval_s: float | None) -> Signals:
    last = first if second is None else second
    names = last.names
    signals: Signals = {
        "engine": names.engine,
        "engine_index": engine or None,
        "model": _model(last),
        **_gauges(last, engine),
        **_settings(last),
    }
    if second is None:
        signals["window"] = "since the server's start"
        signals |= _totals(first, engine)
        signals |= _means(first, None, engine)
    else:
        signals["window"] = f"between two scrapes{'' if interval_s is None else f', {interval_s:g} s apart'}"
        looks = [_gauges(page, engine) for page in (first, second)]
        # Without a time between them there are two looks in order, but no pace.
        times = [{"t": 0.0}, {"t": interval_s}] if interval_s is not None else [{}, {}]
        keys = ("running", "waiting", "swapped", "kv_usage")
        signals["series"] = [
            {**time, **{key: look[key] for key in keys if look.get(key) is not None}}
            for time, look in zip(times, looks, strict=True)
        ]
        signals |= _between(first, second, engine, interval_s)
        signals |= _means(first, second, engine)
    return {key: value for key, value in signals.items() if value is not None}


def _gauges(page: Page, engine: str) -> Signals:
    from simbatch.answers.diagnose.names import TGI_BOOKED

    names = page.names
    usage = page.total(names.kv_usage, engine)
    tokens = page.total(names.kv_tokens, engine)
    if names.engine == "tgi" and tokens:
        booked = page.total((TGI_BOOKED,), engine)
        usage = None if booked is None else booked / tokens
    return {
        "running": page.total(names.running, engine),
        "waiting": page.total(names.waiting, engine),
        "swapped": page.total(names.swapped, engine) if names.swapped else None,
        "kv_usage": usage,
        "kv_tokens": tokens,
    }


def _settings(page: Page) -> Signals:
    """What the labels tell; a label that is no number is left out."""
    labels = page.settings()
    found: Signals = {}
    for key, name in (("num_gpu_blocks", "num_gpu_blocks"), ("block_size", "block_size"),
                      ("gpu_memory_utilization", "gpu_memory_utilization")):  # fmt: skip
        try:
            found[key] = float(labels[name])
        except (KeyError, ValueError):
            continue
    if "enable_prefix_caching" in labels:
        found["prefix_cache"] = labels["enable_prefix_caching"] == "True"
    if labels.get("kv_cache_size_tokens", "").isdecimal():
        found["kv_tokens"] = float(labels["kv_cache_size_tokens"])
    elif "num_gpu_blocks" in found and "block_size" in found:
        found["kv_tokens"] = found["num_gpu_blocks"] * found["block_size"]
    return found


def _model(page: Page) -> str | None:
    for name in page.names.running:
        for labels, _ in page.samples.get(name, []):
            if "model_name" in labels:
                return labels["model_name"]
    return None


def _totals(page: Page, engine: str) -> Signals:
    counters = page.names.counters
    found: Signals = {}
    for key, name in (("requests_finished", "finished"), ("preemptions_total", "preemptions")):
        if name in counters:
            found[key] = page.counter(counters[name], engine)
    return found | _hits(_counted(page, engine))


def _counted(page: Page, engine: str) -> dict[str, float]:
    values = {name: page.counter(names, engine) for name, names in page.names.counters.items()}
    return {name: value for name, value in values.items() if value is not None}


def _between(first: Page, second: Page, engine: str, interval_s: float | None) -> Signals:
    before, after = _counted(first, engine), _counted(second, engine)
    for name in before:
        if name in after and after[name] < before[name]:
            raise UsageError(
                f"{second.names.counters[name][0]} fell from {before[name]:,.0f} in {first.where} to "
                f"{after[name]:,.0f} in {second.where}: the server restarted between the scrapes, or they are in "
                "the wrong order. "
                "Scrape twice again, the earlier first."
            )
    more = {name: after[name] - before[name] for name in before if name in after}
    found: Signals = {"requests_finished": more.get("finished"), "preemptions": more.get("preemptions")}
    if interval_s:
        rates = {
            "prompt_tok_s": "prompt_tokens",
            "generation_tok_s": "generation_tokens",
            "finished_req_s": "finished",
            "service_rate_req_s": "finished",
            "preemptions_per_s": "preemptions",
        }
        found |= {key: more[name] / interval_s for key, name in rates.items() if name in more}
        found["interval_s"] = interval_s
        looks = [_gauges(page, engine) for page in (first, second)]
        sums = [(look["running"] or 0.0) + (look["waiting"] or 0.0) for look in looks]
        if "finished" in more:
            found["arrival_rate_req_s"] = max(0.0, (more["finished"] + sums[1] - sums[0]) / interval_s)
    return found | _hits(more)


def _hits(counted: dict[str, float]) -> Signals:
    queries = counted.get("prefix_queries")
    return {"prefix_hit_share": min(1.0, counted.get("prefix_hits", 0.0) / queries)} if queries else {}


def _means(first: Page, second: Page | None, engine: str) -> Signals:
    """Means, and the median of time to first token between two edges."""
    last = first if second is None else second
    found: Signals = {}
    for name, key in _MEANS.items():
        names = last.names.histograms.get(name, ())
        total, count = (_grown(first, second, names, engine, suffix) for suffix in ("_sum", "_count"))
        if total is not None and count:
            found[key] = total / count
    edges = last.buckets(last.names.histograms.get("ttft", ()), engine)
    if second is not None and edges:
        before = first.buckets(first.names.histograms.get("ttft", ()), engine)
        edges = {edge: value - before.get(edge, 0.0) for edge, value in edges.items()}
    median = _median(edges)
    if median is not None:
        found["ttft_p50_s"] = list(median)
    return found


def _grown(first: Page, second: Page | None, names: tuple[str, ...], engine: str, suffix: str) -> float | None:
    before = first.total(names, engine, (suffix,))
    if second is None:
        return before
    after = second.total(names, engine, (suffix,))
    return None if after is None else after - (before or 0.0)


def _median(edges: dict[float, float]) -> tuple[float, float] | None:
    """The edges that half of a histogram lies between; None where it is empty or above the last finite one."""
    total = max(edges.values(), default=0.0)
    low = 0.0
    for edge, count in edges.items():
        if count >= total / 2 > 0:
            return None if math.isinf(edge) else (low, edge)
        low = edge
    return None
