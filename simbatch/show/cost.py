"""What tokens cost, as text: a row for each load, then what is wasted, then what it rests on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from simbatch.show.summary import timing_parts
from simbatch.show.text import line, number, paragraphs, percent, table

_ROWS = {"as_served": "as served", "full_load": "at full load", "at_limits": "at the limits"}


def cost_text(found: dict[str, Any]) -> str:
    """The JSON object for people; no line break at the end."""
    heads = ["$ per million tokens", "output", "in all", "requests/s", "output tok/s", "tok/s in all", "verdict"]
    rows = []
    for name, label in _ROWS.items():
        load = found[name]
        if load is None:
            rows.append([label, *["-"] * (len(heads) - 2), "no times" if name == "as_served" else _no_limits(found)])
            continue
        cells = (
            "usd_per_million_output_tokens",
            "usd_per_million_tokens",
            "requests_per_s",
            "output_tokens_per_s",
            "total_tokens_per_s",
        )
        rows.append([label, *(number(load[cell]) for cell in cells), load["verdict"]])
    return "\n\n".join([table(heads, rows), paragraphs(_about(found))])


def _no_limits(found: dict[str, Any]) -> str:
    given = any(found["config"]["limits"][name] is not None for name in ("ttft_s", "tpot_s", "e2e_s"))
    return "no rate keeps them" if given else "no limits given"


def _about(found: dict[str, Any]) -> Iterator[str]:
    here, waste = found["config"]["deployment"], found["waste"]
    if waste["system"] == waste["against"]:
        yield line("waste", f"{waste['system']} is the paged, continuous system that others are measured against")
    elif waste["usd_per_hour"] is not None:
        yield line(
            "waste",
            f"${waste['usd_per_hour']:,.2f} of ${found['usd_per_hour']:,.2f} per hour, {percent(waste['share'])}",
            f"{waste['against']} serves {number(waste['gain'])} times the tokens at full load",
        )
    gpus = here["tensor_parallel_size"]
    yield line("price", f"${found['usd_per_hour']:,.2f} per hour", f"{here['model']} on {gpus} x {here['gpu']}")
    trace = found["config"]["trace"]
    yield line("trace", trace["name"], *trace["transforms"])
    yield line("system", waste["system"])
    yield line("timing", *timing_parts(found["config"]))
    error = found["timing_error"]
    yield line("full load", "everything there at once, until the last one ends")
    if error and None not in error["full_load"]["usd_per_million_output_tokens"]:
        low, high = (number(end) for end in error["full_load"]["usd_per_million_output_tokens"])
        ends = f"${low} to {high} per million output tokens"
        yield line("uncertainty", f"{ends}, if iterations take {percent(error['relative'])} less time, or more")
    if found["at_limits"] is not None:
        yield line("limits", f"kept up to {number(found['at_limits']['rate_per_s'])} requests/s, the same requests")
    for warning in found["warnings"]:
        yield line("warning", warning)
