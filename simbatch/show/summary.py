"""The metrics of a run as text: what people need to decide, in the order in which they ask.

Verdict and what binds, latencies with their limits, throughput and goodput, cost, memory, and where
the numbers come from. Reads the JSON object of `simbatch.metrics` and nothing else, so a saved run
shows the same. Plain text, as wide as `simbatch.show.text` allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from simbatch.limits import limits_met
from simbatch.show.text import LABEL, line, number, paragraphs, percent, time
from simbatch.stats import FIGURES
from simbatch.units import show_s

_CELL = 9

MEANING = {
    "stable": "the queue does not keep growing while requests arrive",
    "growing": "the queue grows in the last third of the arrivals; a longer trace would tell",
    "overloaded": "requests arrive faster than they finish; the queue grows for as long as this lasts",
    "offline": "everything arrives at once, so this is about the time to finish, not about a rate",
    "unserved": "nothing could be served",
}
LATENCIES = {
    "ttft": "TTFT",
    "tpot": "TPOT",
    "itl": "ITL",
    "e2e": "end to end",
    "queue": "queue",
    "normalized": "per token",
}
CAUSES = {"kv": "KV memory", "max_num_seqs": "max_num_seqs", "token_budget": "the token budget"}


def summary_text(metrics: dict[str, Any]) -> str:
    """The metrics of one run for people; no line break at the end.

    >>> from simbatch.facts import facts_from
    >>> from simbatch.metrics import metrics
    >>> summary_text(metrics(facts_from({}, {}))).splitlines()[1]
    '0 requests: 0 finished.'
    """
    return paragraphs(_verdict(metrics), _latency(metrics), _rates(metrics), _memory(metrics), _provenance(metrics))


def _verdict(metrics: dict[str, Any]) -> Iterator[str]:
    verdict, requests = metrics["verdict"], metrics["requests"]
    yield f"{verdict.upper()}: {MEANING[verdict]}."
    bound = {name: share for name, share in metrics["bound_by"].items() if share and name != "nothing"}
    if bound:
        worst = sorted(bound, key=lambda name: -bound[name])
        causes = ", ".join(f"{CAUSES[name]} {percent(bound[name])}" for name in worst)
        yield f"The head of the queue was held back by {causes} of the time."
    elif metrics["bound_by"]["nothing"] is not None:
        yield "Nothing held the head of the queue back."
    counts = [f"{requests['arrived']:,} requests: {requests['finished']:,} finished"]
    counts += [f"{requests[name]:,} {name}" for name in ("refused", "unfinished") if requests[name]]
    yield ", ".join(counts) + "."
    if metrics["goodput"] is not None:
        found = metrics["goodput"]
        is_met = "MET" if limits_met(metrics) else "NOT MET"
        share = f"{percent(found['share'])} of requests keep every limit"
        yield f"Limits {is_met}: {share} ({found['percentile']:g} % required)."


def _latency(metrics: dict[str, Any]) -> Iterator[str]:
    found = metrics["goodput"]
    heads = [*FIGURES, "limit", "kept by"] if found else [*FIGURES]
    yield "latency".ljust(LABEL) + "".join(head.rjust(_CELL) for head in heads)
    for name, label in LATENCIES.items():
        cells = [time(metrics["latency_s"][name][figure]) for figure in FIGURES]
        if found and name in found["limits_s"]:
            cells += [time(found["limits_s"][name]), percent(found["share_by_limit"][name])]
        yield label.ljust(LABEL) + "".join(cell.rjust(_CELL) for cell in cells)


def _rates(metrics: dict[str, Any]) -> Iterator[str]:
    rates, found, cost, batch = metrics["throughput"], metrics["goodput"], metrics["cost"], metrics["batch"]
    yield line(
        "throughput",
        f"{number(rates['requests_per_s'])} requests/s",
        f"{number(rates['output_tokens_per_s'])} output tokens/s",
        f"{number(rates['total_tokens_per_s'])} tokens/s in all",
    )
    if found:
        share = f"{percent(found['share'])} of requests keep all limits"
        yield line("goodput", f"{number(found['requests_per_s'])} requests/s", share)
    yield line(
        "batch",
        f"{number(batch['running_mean'])} running on average, {number(batch['running_max'])} at most",
        f"{number(batch['waiting_mean'])} waiting",
    )
    if cost:
        yield line(
            "cost",
            f"${cost['usd_per_hour']:,.2f} per hour",
            f"${number(cost['usd_per_million_output_tokens'])} per million output tokens",
            f"${number(cost['usd_per_million_tokens'])} per million tokens",
        )
    yield from _ranges(metrics)


def _memory(metrics: dict[str, Any]) -> Iterator[str]:
    kv, requests = metrics["kv"], metrics["requests"]
    of_gpu = kv["gpu_memory_share"]
    share = () if of_gpu is None else (f"{percent(of_gpu)} of GPU memory",)
    yield line("KV memory", f"{kv['capacity_tokens']:,} tokens", *share, f"at most {percent(kv['peak_share'])} held")
    shown = ("live", "reserved", "internal", "external", "free")
    yield line("", *(f"{name} {percent(kv[f'{name}_share'])}" for name in shown))
    counts = {
        "preemptions": requests["preemptions"],
        "tokens computed again": requests["recomputed_tokens"],
        "found in the prefix cache": requests["cached_tokens"],
    }
    always = "preemptions"
    yield line("", *(f"{name} {count:,}" for name, count in counts.items() if count or name == always))


def origin(config: dict[str, Any]) -> Iterator[str]:
    """Where the requests and the times of iterations come from."""
    trace = config.get("trace")
    if trace:
        known = trace if isinstance(trace, dict) else {"name": trace}
        parts = [str(known.get("name", "?")), *map(str, known.get("transforms") or ())]
        yield line("trace", *parts)
        if known.get("rule"):
            yield line("", str(known["rule"]))
    timing = timing_parts(config)
    if timing:
        yield line("timing", *timing)


_RANGED: dict[str, tuple[str, Callable[[float | None], str]]] = {
    "latency_s.ttft.mean": ("mean TTFT {}", time),
    "latency_s.tpot.mean": ("mean TPOT {}", time),
    "throughput.output_tokens_per_s": ("{} output tokens/s", number),
    "goodput.share": ("{} keep all limits", percent),
    "cost.usd_per_million_output_tokens": ("${} per million output tokens", number),
}
_IN_FIRST_LINE = 2


def _ranges(metrics: dict[str, Any]) -> Iterator[str]:
    """Between what figures lie, where the error of the timing was put through the run."""
    if metrics.get("timing_error_left_out"):
        yield line("uncertainty", "not computed for a run of this length: --uncertainty simulates it twice more")
    error = metrics.get("timing_error")
    if not error:
        return
    parts = []
    for path, (what, show) in _RANGED.items():
        if path in error["figures"]:
            low, high = (show(error["figures"][path][end]) for end in ("low", "high"))
            parts.append(what.format(low if low == high else f"{low} to {high}"))
    yield line("uncertainty", *parts[:_IN_FIRST_LINE])
    if parts[_IN_FIRST_LINE:]:
        yield line("", *parts[_IN_FIRST_LINE:])
    yield line("", f"if iterations take {percent(error['relative'])} less time, or more")


def timing_parts(config: dict[str, Any]) -> list[str]:
    """How the times of iterations are known, by what name, and how far off they may be."""
    timing = config.get("timing")
    if not isinstance(timing, dict):
        return []
    parts = [str(timing[key]) for key in ("kind", "name") if timing.get(key)]
    if "use" not in timing:
        return parts
    return [parts[0], f"profile {timing['name']}", f"{timing['use']}, ± {percent(timing['error'])}"]


def _provenance(metrics: dict[str, Any]) -> Iterator[str]:
    config, simulation = metrics["config"], metrics["simulation"]
    yield from origin(config)
    if config.get("frontend_delay_s"):
        delay = show_s(config["frontend_delay_s"])
        yield line("front end", f"{delay} before the engine sees a request, part of TTFT and end to end")
    version, seed = config.get("simbatch"), config.get("seed")
    simulated = [] if simulation["makespan_s"] is None else [f"{show_s(simulation['makespan_s'])} simulated"]
    yield line(
        "run",
        *simulated,
        f"{simulation['iterations']:,} iterations in {show_s(simulation['wall_s'])}",
        *([f"seed {seed}"] if seed is not None else []),
        *([f"simbatch {version}"] if version else []),
    )
    if config.get("replicas", 1) > 1:
        routing = f"{config['replicas']} behind a router, {config['router']}"
        yield line("replicas", routing, "batch and KV memory are those of one that runs")
    if simulation.get("warmup_s"):
        yield line("warm-up", f"the first {show_s(simulation['warmup_s'])} are left out of everything but the verdict")
    if config.get("command"):
        yield line("repeat", str(config["command"]))
    for warning in metrics.get("warnings", ()):
        yield line("warning", warning)
