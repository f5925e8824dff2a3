"""The metrics of a run as text: what people need to decide, in the order in which they ask.

Verdict and what binds, latencies with their limits, throughput and goodput, cost, memory, and where
the numbers come from. Reads the JSON object of `simbatch.metrics` and nothing else, so a saved run
shows the same. Plain text, at most `WIDTH` columns.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from simbatch.limits import limits_met
from simbatch.stats import FIGURES
from simbatch.units import show_number, show_s

WIDTH = 100
_LABEL = 12
_CELL = 9

MEANING = {
    "stable": "the queue does not keep growing while requests arrive",
    "growing": "the queue grows in the last third of the arrivals; a longer trace would tell",
    "overloaded": "requests arrive faster than they finish; the queue grows for as long as this lasts",
    "offline": "everything arrives at once, so this is about the time to finish, not about a rate",
}
_LATENCIES = {
    "ttft": "TTFT",
    "tpot": "TPOT",
    "itl": "ITL",
    "e2e": "end to end",
    "queue": "queue",
    "normalized": "per token",
}
_CAUSES = {"kv": "KV memory", "max_num_seqs": "max_num_seqs", "token_budget": "the token budget"}


def summary_text(metrics: dict[str, Any]) -> str:
    """The metrics of one run for people; no line break at the end.

    >>> from simbatch.facts import facts_from
    >>> from simbatch.metrics import metrics
    >>> summary_text(metrics(facts_from({}, {}))).splitlines()[1]
    '0 requests: 0 finished.'
    """
    parts = (_verdict(metrics), _latency(metrics), _rates(metrics), _memory(metrics), _provenance(metrics))
    blocks = ["\n".join(line for text in part for line in _wrapped(text)) for part in parts]
    return "\n\n".join(block for block in blocks if block)


def _verdict(metrics: dict[str, Any]) -> Iterator[str]:
    verdict, requests = metrics["verdict"], metrics["requests"]
    yield f"{verdict.upper()}: {MEANING[verdict]}."
    bound = {name: share for name, share in metrics["bound_by"].items() if share and name != "nothing"}
    if bound:
        worst = sorted(bound, key=lambda name: -bound[name])
        causes = ", ".join(f"{_CAUSES[name]} {_percent(bound[name])}" for name in worst)
        yield f"The head of the queue was held back by {causes} of the time."
    elif metrics["bound_by"]["nothing"] is not None:
        yield "Nothing held the head of the queue back."
    counts = [f"{requests['arrived']:,} requests: {requests['finished']:,} finished"]
    counts += [f"{requests[name]:,} {name}" for name in ("refused", "unfinished") if requests[name]]
    yield ", ".join(counts) + "."
    if metrics["goodput"] is not None:
        found = metrics["goodput"]
        is_met = "MET" if limits_met(metrics) else "NOT MET"
        yield f"Limits {is_met}: {_percent(found['share'])} keep all, {found['percentile']:g} % are to."


def _latency(metrics: dict[str, Any]) -> Iterator[str]:
    found = metrics["goodput"]
    heads = [*FIGURES, "limit", "kept by"] if found else [*FIGURES]
    yield "latency".ljust(_LABEL) + "".join(head.rjust(_CELL) for head in heads)
    for name, label in _LATENCIES.items():
        cells = [_time(metrics["latency_s"][name][figure]) for figure in FIGURES]
        if found and name in found["limits_s"]:
            cells += [_time(found["limits_s"][name]), _percent(found["share_by_limit"][name])]
        yield label.ljust(_LABEL) + "".join(cell.rjust(_CELL) for cell in cells)


def _rates(metrics: dict[str, Any]) -> Iterator[str]:
    rates, found, cost, batch = metrics["throughput"], metrics["goodput"], metrics["cost"], metrics["batch"]
    yield _line(
        "throughput",
        f"{_number(rates['requests_per_s'])} requests/s",
        f"{_number(rates['output_tokens_per_s'])} output tokens/s",
        f"{_number(rates['total_tokens_per_s'])} tokens/s in all",
    )
    if found:
        share = f"{_percent(found['share'])} of requests keep all limits"
        yield _line("goodput", f"{_number(found['requests_per_s'])} requests/s", share)
    yield _line(
        "batch",
        f"{_number(batch['running_mean'])} running on average, {_number(batch['running_max'])} at most",
        f"{_number(batch['waiting_mean'])} waiting",
    )
    if cost:
        yield _line(
            "cost",
            f"${cost['usd_per_hour']:,.2f} per hour",
            f"${_number(cost['usd_per_million_output_tokens'])} per million output tokens",
            f"${_number(cost['usd_per_million_tokens'])} per million tokens",
        )


def _memory(metrics: dict[str, Any]) -> Iterator[str]:
    kv, requests = metrics["kv"], metrics["requests"]
    of_gpu = kv["gpu_memory_share"]
    share = () if of_gpu is None else (f"{_percent(of_gpu)} of GPU memory",)
    yield _line("KV memory", f"{kv['capacity_tokens']:,} tokens", *share, f"at most {_percent(kv['peak_share'])} held")
    shown = ("live", "reserved", "internal", "external", "free")
    yield _line("", *(f"{name} {_percent(kv[f'{name}_share'])}" for name in shown))
    counts = {
        "preemptions": requests["preemptions"],
        "tokens computed again": requests["recomputed_tokens"],
        "found in the prefix cache": requests["cached_tokens"],
    }
    always = "preemptions"
    yield _line("", *(f"{name} {count:,}" for name, count in counts.items() if count or name == always))


def _provenance(metrics: dict[str, Any]) -> Iterator[str]:
    config, simulation = metrics["config"], metrics["simulation"]
    trace, timing = config.get("trace"), config.get("timing")
    if trace:
        known = trace if isinstance(trace, dict) else {"name": trace}
        parts = [str(known.get("name", "?")), *map(str, known.get("transforms") or ())]
        yield _line("trace", *parts)
        if known.get("rule"):
            yield _line("", str(known["rule"]))
    if isinstance(timing, dict):
        yield _line("timing", *(str(timing[key]) for key in ("kind", "name") if timing.get(key)))
    version, seed = config.get("simbatch"), config.get("seed")
    simulated = [] if simulation["makespan_s"] is None else [f"{show_s(simulation['makespan_s'])} simulated"]
    yield _line(
        "run",
        *simulated,
        f"{simulation['iterations']:,} iterations in {show_s(simulation['wall_s'])}",
        *([f"seed {seed}"] if seed is not None else []),
        *([f"simbatch {version}"] if version else []),
    )
    if simulation.get("warmup_s"):
        yield _line("warm-up", f"the first {show_s(simulation['warmup_s'])} are left out of everything but the verdict")
    if config.get("command"):
        yield _line("repeat", str(config["command"]))
    for warning in metrics.get("warnings", ()):
        yield _line("warning", warning)


def _line(label: str, *parts: str) -> str:
    return label.ljust(_LABEL) + " · ".join(parts)


def _wrapped(text: str) -> list[str]:
    """*text* within the width; what does not fit stands below the first part."""
    if len(text) <= WIDTH:
        return [text.rstrip()]
    label, rest = text[:_LABEL], text[_LABEL:]
    if label != label.rstrip().ljust(_LABEL):
        return textwrap.wrap(text, WIDTH)
    lines = textwrap.wrap(rest, WIDTH - _LABEL, break_on_hyphens=False)
    return [(label if number == 0 else " " * _LABEL) + line for number, line in enumerate(lines)]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else show_number(value)


def _percent(share: float | None) -> str:
    """A share in per cent, never rounded to all or nothing when it is not."""
    if share is None:
        return "-"
    if 0 < share < 0.001:
        return "< 0.1 %"
    if 0.999 < share < 1:
        return "> 99.9 %"
    return f"{share:.1%}".replace("%", " %")


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else show_s(seconds)
