"""What the error of the timing does to a comparison, as text: a row of ranges per system, and how to read it.

Reads the block `uncertainty` of the JSON object of a comparison and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from simbatch.show.text import line, number, percent, table, time

_RATE = "throughput.output_tokens_per_s"
_SHOWN: dict[str, tuple[str, Callable[[float | None], str]]] = {
    _RATE: ("output tok/s", number),
    "latency_s.ttft.mean": ("TTFT mean", time),
    "latency_s.tpot.mean": ("TPOT mean", time),
    "cost.usd_per_million_output_tokens": ("$/M output", number),
}


def ranges_table(uncertainty: dict[str, Any]) -> str:
    """Between what the figures and the gain of each system lie; no line break at the end."""
    systems = uncertainty["systems"]
    columns = [path for path in _SHOWN if any(path in one["figures"] for one in systems.values())]
    gains = {entry["b"]: entry for entry in uncertainty["ratios"] if entry["metric"] == _RATE}
    base = next((entry["a"] for entry in gains.values()), None)
    rows = [
        [
            name,
            *(_span(one["figures"].get(path), _SHOWN[path][1]) for path in columns),
            *(["1" if name == base else _span(gains.get(name), number)] if gains else []),
        ]
        for name, one in systems.items()
    ]
    heads = ["from .. to", *(_SHOWN[path][0] for path in columns), *(["gain"] if gains else [])]
    return table(heads, rows, texts=1)


def ranges_notes(uncertainty: dict[str, Any]) -> Iterator[str]:
    """What the ranges are of, the last system's gain in a sentence, and who has none."""
    systems, gains = uncertainty["systems"], [one for one in uncertainty["ratios"] if one["metric"] == _RATE]
    if systems:
        relative = uncertainty["relative"]
        of_each = ", ".join(f"of {name} {percent(one['relative'])}" for name, one in systems.items())
        off = f"take {percent(relative)} less time, or more" if relative is not None else f"{of_each} are off so far"
        alike = " of all systems alike" if gains and all(entry["scaled_alike"] for entry in gains) else ""
        seed = [] if uncertainty["seed"] is None else [f"seed {uncertainty['seed']}"]
        yield line("uncertainty", f"from .. to: if iterations{alike} {off}", *seed)
    if gains:
        last = gains[-1]
        yield line(
            "",
            f"{last['b']} serves {number(last['ratio'])} times as many output tokens as {last['a']}; "
            f"{_span(last, number)} times if so",
        )
    apart = [entry["b"] for entry in gains if not entry["scaled_alike"]]
    if apart:
        yield line("", f"gains of {', '.join(apart)}: another timing, so that each may be off by itself")
    for name, why in uncertainty["left_out"].items():
        yield line("uncertainty", f"{name} has no range: {why}")


def _span(ends: dict[str, Any] | None, show: Callable[[float | None], str]) -> str:
    """Both ends, with the unit once where it is the same."""
    if ends is None:
        return "-"
    low, high = show(ends["low"]), show(ends["high"])
    if low == high:
        return low
    figure, _, unit = low.partition(" ")
    return f"{figure if unit == high.partition(' ')[2] else low} to {high}"
