"""A trace as text: what it asks, when, how its requests hang together, what was left out and why.

Reads the figures of `simbatch.trace.statistics` and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from simbatch.show.text import line, number, paragraphs, percent, table
from simbatch.units import show_s

_MOST_REASONS = 8


def trace_text(figures: dict[str, Any]) -> str:
    """The figures of a trace for people; no line break at the end."""
    return paragraphs(_times(figures), _lengths(figures), _shared(figures), _dropped(figures), _origin(figures))


def _times(figures: dict[str, Any]) -> Iterator[str]:
    yield f"{figures['name']}: {figures['rows']:,} request{'s' if figures['rows'] != 1 else ''}, {figures['format']}."
    times = figures["arrivals"]
    if times is None:
        yield line("arrivals", "no times: give a rate, or everything arrives at once")
        return
    rate = "all at once" if times["rate_per_s"] is None else f"{number(times['rate_per_s'])} requests/s"
    yield line("arrivals", rate, f"over {show_s(times['span_s'])}", f"gaps vary by {number(times['gap_cv'])} (CV)")
    windows = ", ".join(f"{number(value)} at {window}" for window, value in times["dispersion"].items())
    yield line("dispersion", windows, "1 is Poisson")


def _lengths(figures: dict[str, Any]) -> Iterator[str]:
    heads = ("tokens", *figures["prompt_tokens"])
    rows = [(name, *map(number, figures[f"{name}_tokens"].values())) for name in ("prompt", "output")]
    yield from table(heads, rows, 1).splitlines()
    yield line("correlation", number(figures["correlation"]))


def _shared(figures: dict[str, Any]) -> Iterator[str]:
    sessions, prefix = figures["sessions"], figures["prefix"]
    if sessions is not None:
        think = sessions["think_s_mean"]
        yield line(
            "sessions",
            f"{sessions['count']:,}",
            f"{number(sessions['turns_mean'])} turns on average",
            "a turn waits for the one before" + (f", then {show_s(think)} on average" if think else ""),
        )
    if prefix is not None:
        share = percent(prefix["reused_share"])
        yield line("prefixes", f"{share} of all prompt tokens stood at the beginning of an earlier row")


def _dropped(figures: dict[str, Any]) -> Iterator[str]:
    if figures["dropped"]:
        rows = f"{figures['dropped']:,} row{'s' if figures['dropped'] > 1 else ''}"
        yield line("left out", rows)
    for why in figures["why_dropped"][:_MOST_REASONS]:
        yield line("", f"{why['rows']:,}: {why['reason']} (line {why['first_line']}{' first' * (why['rows'] > 1)})")
    if len(figures["why_dropped"]) > _MOST_REASONS:
        yield line("", f"and for {len(figures['why_dropped']) - _MOST_REASONS} more reasons")
    if figures["ignored_columns"]:
        yield line("not used", f"columns {', '.join(figures['ignored_columns'])}")


def _origin(figures: dict[str, Any]) -> Iterator[str]:
    for text in figures["provenance"]:
        yield line("", text.strip())
    if figures["transforms"]:
        yield line("changed by", ", ".join(figures["transforms"]))
    yield line("sha256", figures["sha256"])
