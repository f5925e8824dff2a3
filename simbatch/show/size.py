"""A size as text: the answer, the rate of a replica with its interval, what binds, how latency climbs, the table.

Reads the JSON object of `simbatch.answers.sized` and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from simbatch.show.summary import CAUSES, origin
from simbatch.show.text import line, number, paragraphs, percent, table, time

_LIMITS = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "end to end"}
_OPTIONS = {"tensor_parallel_size": "tp"}


def size_text(metrics: dict[str, Any]) -> str:
    """The size for people; no line break at the end."""
    parts = [paragraphs(_answer(metrics))]
    if metrics["curve"]:
        parts.append(_curve(metrics))
    if len(metrics["table"]) > 1:
        parts.append(_table(metrics["table"]))
    return "\n\n".join([*parts, paragraphs(_provenance(metrics))])


def _answer(metrics: dict[str, Any]) -> Iterator[str]:
    rate, config = metrics["rate_per_replica"], metrics["config"]
    asked = config["rate_per_s"]
    if metrics["failed"]:
        yield f"NO ANSWER: {metrics['failed']}."
    elif asked is not None and metrics["replicas"] is None:
        yield f"NO ANSWER: {number(asked)} requests/s are not held by the numbers of replicas tried."
    elif asked is not None:
        sized = f"{_count(metrics['replicas'], 'replica')}, {_count(metrics['gpus'], 'GPU')}"
        yield f"{sized}: {number(asked)} requests/s are held within the limits."
    elif rate is not None:
        gpus = _count(metrics["gpus"], "GPU")
        yield f"One replica, {gpus}: {number(rate['mean'])} requests/s are held within the limits."
    if metrics["chosen"]:
        yield line("cheapest", *(f"{_OPTIONS.get(name, name)} {value}" for name, value in metrics["chosen"].items()))
    limits = [f"{_LIMITS[name]} {time(limit)}" for name, limit in config["limits_s"].items()]
    yield line("limits", *limits, f"kept by {config['percentile']:g} % of requests")
    if rate is not None:
        yield from _rate(rate, config)
    if metrics["bound_by"] is not None:
        bound = metrics["bound_by"]
        engine = CAUSES.get(bound["engine"], "the time that iterations take")
        kept = f"{_LIMITS[bound['limit']]} goes first, kept by {percent(bound['limit_kept_by'])} just above"
        yield line("bound by", kept, f"the engine is held back by {engine}", f"queue {bound['verdict']}")
    if metrics["knee_per_s"] is not None:
        yield line(
            "knee", f"{number(metrics['knee_per_s'])} requests/s: most throughput for its mean end-to-end latency"
        )
    if metrics["usd_per_hour"] is not None:
        yield line(
            "cost",
            f"${metrics['usd_per_hour']:,.2f} per hour",
            f"${number(metrics['usd_per_million_output_tokens'])} per million output tokens",
            f"${number(metrics['usd_per_million_tokens'])} per million tokens",
        )
    for check in metrics["checks"]:
        shares = f"{percent(min(check['shares']))} to {percent(max(check['shares']))} keep every limit"
        verdict = "held" if check["held"] else "NOT held"
        yield line("simulated", f"{_count(check['replicas'], 'replica')}, {config['router']}: {verdict}", shares)


def _rate(rate: dict[str, Any], config: dict[str, Any]) -> Iterator[str]:
    seeds = len(config["seeds"])
    interval = ""
    if rate["low"] is not None and rate["mean"]:
        half = percent((rate["high"] - rate["mean"]) / rate["mean"])
        level = f"{rate['confidence']:.0%}".replace("%", " %")
        interval = f"{number(rate['low'])} to {number(rate['high'])} (± {half}, {level}, {seeds} seeds)"
    yield line("a replica", f"{number(rate['mean'])} requests/s", *([interval] if interval else []))
    if "timing_error" in rate:
        error = rate["timing_error"]
        ends = f"{number(error['low'])} to {number(error['high'])} requests/s"
        yield line("", f"{ends} if iterations take {percent(error['relative'])} more or less time")


def _curve(metrics: dict[str, Any]) -> str:
    heads = ["requests/s", "served", "mean end to end", "keep all", "queue"]
    rows = [
        [
            number(one["rate_per_s"]),
            number(one["requests_per_s"]),
            time(one["e2e_mean_s"]),
            percent(one["share"]),
            one["verdict"],
        ]
        for one in metrics["curve"]
    ]
    return table(heads, rows)


def _table(rows: list[dict[str, Any]]) -> str:
    plain = [name for name in rows[0] if name not in _FIGURES and name != "failed"]
    costs = any(row["usd_per_hour"] is not None for row in rows)
    figures = {name: head for name, head in _FIGURES.items() if head and (costs or "usd" not in name)}
    heads = [*(_OPTIONS.get(name, name) for name in plain), *figures.values()]
    cells = []
    for row in rows:
        if row["failed"] and row["rate_per_replica_per_s"] is None:
            shown = ["-"] * len(figures)
            shown[-1] = row["failed"]
        else:
            shown = [_cell(row, name) for name in figures]
        cells.append([*(str(row[name]) for name in plain), *shown])
    return table(heads, cells, texts=len(plain))


_FIGURES = {
    "rate_per_replica_per_s": "req/s each",
    "rate_low_per_s": "from",
    "rate_high_per_s": "to",
    "replicas": "replicas",
    "gpus": "GPUs",
    "usd_per_hour": "$/hour",
    "usd_per_million_output_tokens": "$/M output",
    "usd_per_million_tokens": "",
    "engine": "",
    "bound_by": "bound by",
}


def _cell(row: dict[str, Any], name: str) -> str:
    value = row[name]
    if name == "bound_by":
        return "-" if value is None else _LIMITS[value]
    return number(value)


def _provenance(metrics: dict[str, Any]) -> Iterator[str]:
    config = metrics["config"]
    on = config["deployment"]
    if on is not None:
        yield line("deployment", f"{on['model']} on {on['tensor_parallel_size']} x {on['gpu']}")
    trace = dict(config["trace"])
    trace["transforms"] = trace.get("transforms", [])[:-1]
    yield from origin({"trace": trace})
    yield line("runs", f"{config['requests']:,} requests each", f"seeds {config['seeds'][0]} to {config['seeds'][-1]}",
               f"simbatch {config['simbatch']}")  # fmt: skip
    if config.get("command"):
        yield line("repeat", str(config["command"]))
    for warning in metrics["warnings"]:
        yield line("warning", warning)


def _count(number_of: int | None, what: str) -> str:
    return "-" if number_of is None else f"{number_of:,} {what}{'' if number_of == 1 else 's'}"
