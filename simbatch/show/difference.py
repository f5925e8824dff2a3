"""Two runs of the same requests, as text: who won, who lost, and what it is due to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from simbatch.show.reasons import SHORT
from simbatch.show.text import paragraphs, percent, table, time

_SMALL = 0.05
"""Share of the largest part below which a part is not named."""


def difference_text(found: dict[str, Any]) -> str:
    """The JSON object of `simbatch.answers.diff` for people; no line break at the end."""
    blocks = [paragraphs(_opening(found))]
    if found["winners"]["requests"] or found["losers"]["requests"]:
        blocks += [_means(found), _thirds(found)]
    blocks.append(paragraphs(_extremes(found)))
    return "\n\n".join(filter(None, blocks))


def _opening(found: dict[str, Any]) -> Iterator[str]:
    a, b, every = found["a"], found["b"], found["all"]
    if not every["requests"]:
        yield f"No request finished in both {a} and {b}."
    else:
        change = every["change_s"]
        same = not found["winners"]["requests"] and not found["losers"]["requests"]
        means = "exactly as long" if same else f"{_cell(change)} on average"
        yield f"From {a} to {b}, {every['requests']:,} requests that finished in both took {means}."
        for who, verb in (("winners", "faster"), ("losers", "slower")):
            side = found[who]
            if side["requests"]:
                share = percent(side["requests"] / every["requests"])
                yield f"{side['requests']:,} ({share}) are {verb}, by {time(abs(side['change_s']))}: {_due(side)}."
    for name in ("a", "b"):
        if found[f"finished_only_in_{name}"]:
            yield f"{found[f'finished_only_in_{name}']:,} finished in {found[name]} alone and are left out."


def _due(side: dict[str, Any]) -> str:
    """The parts that carry the change, largest first."""
    sign = -1 if side["change_s"] < 0 else 1
    parts = {name: part for name, part in side["parts_s"].items() if part * sign > 0}
    named = sorted(parts, key=lambda name: -abs(parts[name]))
    large = [name for name in named if abs(parts[name]) >= _SMALL * abs(parts[named[0]])][:3]
    return ", ".join(f"{SHORT[name]} {signed(parts[name])}" for name in large)


def _means(found: dict[str, Any]) -> str:
    every = found["all"]
    sides = (every, found["winners"], found["losers"])
    used = [name for name in every["parts_s"] if any(side["parts_s"][name] for side in sides)]
    heads = ["mean change", "requests", "in all", *(SHORT[name] for name in used)]
    rows = [
        [label, f"{side['requests']:,}", _cell(side["change_s"]), *(_cell(side["parts_s"][name]) for name in used)]
        for label, side in zip(("all", "winners", "losers"), sides, strict=True)
    ]
    return table(heads, rows, texts=1)


def _thirds(found: dict[str, Any]) -> str:
    rows = [
        [
            f"{kind} of {third['from_tokens']:,} to {third['to_tokens']:,} tokens",
            f"{third['requests']:,}",
            _cell(third["change_s"]),
            _due(third),
        ]
        for kind, thirds in (("prompts", found["by_prompt"]), ("outputs", found["by_output"]))
        for third in thirds
    ]
    return table(["by length", "requests", "mean change", "mostly"], rows)


def _extremes(found: dict[str, Any]) -> Iterator[str]:
    for key, label in (("most_gained", "gained most"), ("most_lost", "lost most")):
        if found[key]:
            yield f"{label:<12}" + " · ".join(f"{one['id']} {signed(one['change_s'])}" for one in found[key])


def _cell(seconds: float | None) -> str:
    return "-" if seconds is None else signed(seconds) if seconds else "0"


def signed(seconds: float) -> str:
    """A change with its sign."""
    return f"{'+' if seconds > 0 else '-'}{time(abs(seconds))}"
