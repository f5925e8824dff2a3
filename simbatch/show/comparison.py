"""A comparison as text: one row per system, first what customers see, then where the memory went.

Reads the JSON object of `simbatch.answers.comparison` and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from simbatch.answers.comparison import first_that_served
from simbatch.limits import limits_met
from simbatch.show.comparison_ranges import ranges_notes, ranges_table
from simbatch.show.summary import CAUSES, origin, timing_parts
from simbatch.show.text import line, number, paragraphs, percent, table, time
from simbatch.units import show_s

_SHARES = ("live", "reserved", "internal", "external", "free")


def comparison_text(metrics: dict[str, Any]) -> str:
    """The systems of a comparison for people; no line break at the end."""
    runs = metrics["systems"]
    # Failed ones stand where they were asked for.
    names = [name for name in metrics["config"]["systems"] if name in runs or name in metrics["failed"]]
    tables = [_serving(runs, names), _memory(runs)]
    if "replications" in metrics and len(runs) > 1:
        tables.append(_differences(metrics))
    if metrics.get("uncertainty", {}).get("systems"):
        tables.append(ranges_table(metrics["uncertainty"]))
    return "\n\n".join([*tables, paragraphs(_notes(metrics), _provenance(metrics))])


def _serving(runs: dict[str, Any], names: list[str]) -> str:
    base = _rate(runs[first_that_served(runs)])
    heads = ["system", "verdict", "req/s", "output tok/s", "gain", "TTFT mean", "p99", "TPOT mean", "p99", "running"]
    rows = []
    for name in names:
        if name not in runs:
            rows.append([name, "failed", *["-"] * (len(heads) - 2)])
            continue
        run = runs[name]
        rate, latency = _rate(run), run["latency_s"]
        rows.append(
            [
                name,
                run["verdict"],
                number(run["throughput"]["requests_per_s"]),
                number(rate),
                "-" if not base or rate is None else f"{rate / base:.2f}",
                *(time(latency[which][figure]) for which in ("ttft", "tpot") for figure in ("mean", "p99")),
                number(run["batch"]["running_mean"]),
            ]
        )
    return table(heads, rows, texts=2)


def _memory(runs: dict[str, Any]) -> str:
    costs = any(run["cost"] for run in runs.values())
    heads = ["KV memory", *_SHARES, "preempted", "held back by", *(["$/M output"] if costs else [])]
    rows = []
    for name, run in runs.items():
        kv = run["kv"]
        rows.append(
            [
                name,
                *(percent(kv[f"{share}_share"]) for share in _SHARES),
                number(run["requests"]["preemptions"]),
                _held_back(run["bound_by"]),
            ]
        )
        if costs:
            rows[-1].append(number(run["cost"]["usd_per_million_output_tokens"]))
    return table(heads, rows, texts=1)


_SHOWN = {
    "throughput.output_tokens_per_s": ("output tok/s", number),
    "latency_s.ttft.mean": ("TTFT mean", time),
    "latency_s.ttft.p99": ("TTFT p99", time),
    "latency_s.tpot.mean": ("TPOT mean", time),
    "goodput.share": ("keep limits", percent),
}


def _differences(metrics: dict[str, Any]) -> str:
    """How much more each system has than the first, as an interval over the seeds."""
    base = first_that_served(metrics["systems"])
    entries = {(entry["b"], entry["metric"]): entry for entry in metrics["differences"] if entry["a"] == base}
    # Pairs stand in the order of systems, and the first that served anything need not be the first of all.
    entries |= {
        (entry["a"], entry["metric"]): {"low": -entry["high"], "high": -entry["low"]}
        for entry in metrics["differences"]
        if entry["b"] == base
    }
    columns = [path for path in _SHOWN if any(metric == path for _, metric in entries)]
    rows = []
    for name in metrics["systems"]:
        if name != base:
            rows.append([name, *(_apart(entries.get((name, path)), _SHOWN[path][1]) for path in columns)])
    return table([f"more than {base}", *(_SHOWN[path][0] for path in columns)], rows, texts=1)


def _apart(entry: dict[str, Any] | None, show: Callable[[float], str]) -> str:
    """An interval of a difference, or that it shows none."""
    if entry is None:
        return "-"
    low, high = entry["low"], entry["high"]
    if low <= 0 <= high:
        return "no difference shown"
    signed = [f"{'-' if end < 0 else '+'}{show(abs(end))}" for end in (low, high)]
    return " to ".join(signed)


def _rate(run: dict[str, Any]) -> float | None:
    rate: float | None = run["throughput"]["output_tokens_per_s"]
    return rate


def _held_back(bound_by: dict[str, float | None]) -> str:
    """What held the head of the queue back most, and for which share of the time."""
    causes = {name: share for name, share in bound_by.items() if share and name != "nothing"}
    if not causes:
        return "nothing"
    most = max(causes, key=lambda name: causes[name])
    share = causes[most]
    rounded = "<1 %" if share < 0.005 else ">99 %" if 0.995 < share < 1 else f"{share * 100:.0f} %"
    return f"{CAUSES[most].removeprefix('the ')} {rounded}"


def _notes(metrics: dict[str, Any]) -> Iterator[str]:
    runs = metrics["systems"]
    first = next(iter(runs))
    if len(runs) > 1:
        yield line("gain", f"output tokens per second against {first_that_served(runs)}, on the same requests")
    yield from ranges_notes(metrics["uncertainty"]) if "uncertainty" in metrics else ()
    if runs[first]["goodput"]:
        met = [name for name, run in runs.items() if limits_met(run)]
        share = f"{runs[first]['goodput']['percentile']:g} % of requests must keep every limit"
        yield line("limits", f"MET by {', '.join(met)}" if met else "NOT MET by any", share)
        yield line("", *(f"{name} {percent(run['goodput']['share'])}" for name, run in runs.items()))
    for name, run in runs.items():
        counts = run["requests"]
        rest = [f"{counts[key]:,} {key}" for key in ("refused", "unfinished") if counts[key]]
        if rest:
            yield line("requests", f"{name}: {counts['finished']:,} of {counts['arrived']:,} finished", *rest)
    for name, message in metrics["failed"].items():
        yield line("failed", f"{name}: {message}")


def _provenance(metrics: dict[str, Any]) -> Iterator[str]:
    config, runs = metrics["config"], metrics["systems"]
    first = next(iter(runs.values()))
    on = config["deployment"]
    if on is not None:
        yield line("deployment", f"{on['model']} on {on['tensor_parallel_size']} x {on['gpu']}")
    yield from origin({**first["config"], "timing": None})
    for timing, names in _timings(runs).items():
        yield line("timing", *([] if len(names) == len(runs) else [", ".join(names)]), timing)
    iterations = sum(run["simulation"]["iterations"] for run in runs.values())
    wall_s = sum(run["simulation"]["wall_s"] for run in runs.values())
    yield line(
        "run",
        f"{first['requests']['arrived']:,} requests",
        f"{len(runs)} {'system' if len(runs) == 1 else 'systems'}",
        f"{iterations:,} iterations in {show_s(wall_s)}",
        f"seed {config['seed']}",
        f"simbatch {config['simbatch']}",
    )
    if config.get("command"):
        yield line("repeat", str(config["command"]))
    if "replications" in metrics:
        seeds = metrics["replications"]["seeds"]
        level = f"{metrics['replications']['confidence']:.0%}".replace("%", " %")
        yield line(
            "seeds",
            f"{len(seeds)} from {seeds[0]}",
            f"tables of runs are of seed {seeds[0]}",
            f"intervals hold {level}",
        )
    for warning in metrics["warnings"]:
        yield line("warning", warning)


def _timings(runs: dict[str, Any]) -> dict[str, list[str]]:
    """Which systems each timing was used for."""
    found: dict[str, list[str]] = {}
    for name, run in runs.items():
        shown = " · ".join(timing_parts(run["config"]))
        found.setdefault(shown, []).append(name)
    return found
