"""docs/published-results.md: what all rows come to, then a section for each scenario. Pure text, nothing is run.

The prose in front of it is in `page-head.md`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from pathlib import Path

from published.compute import Computed
from published.scenario import Scenario
from published.verdict import Published

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "published-results.md"
AGREES, DIFFERS, TRIED, UNSET, INPUT = "agrees", "**differs**", "tried afterwards", "cannot be set up", "input"
VERDICTS = (AGREES, DIFFERS, TRIED, UNSET, INPUT)
KINDS = (
    "of which sizes, lengths and arithmetic",
    "of which laws, simulated",
    "of which others' measurements, simulated",
)
_HEADING = "| row | what | published | cert. | ours | difference | allowed | band | verdict |"
_HEAD = Path(__file__).parent / "page-head.md"
"""What stands in front of the numbers: how to read them, and what they say."""


def shown(value: float, published: Published | None = None) -> str:
    """*value* with three digits, or as many as were published."""
    digits = max(3, len(re.findall(r"\d", published.text.split(" to ")[0].lstrip("0."))) if published else 3)
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if abs(value) >= 1000 or (published and "." not in published.text and abs(value - round(value)) < 1e-9):
        return f"{value:,.0f}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(decimals, 6)}f}"


def difference(computed: Computed) -> str:
    """How far ours is from what was published, in the terms of the tolerance."""
    ours, published, tolerance = computed.ours, computed.row.published, computed.row.tolerance
    if (number := published.number) is None:
        low, high = published.low, published.high
        if low <= ours <= high:
            return "inside"
        end = low if ours < low else high
        return f"{100 * (ours / end - 1):+.0f} %" if end else f"{ours - end:+.3g}"
    if tolerance.kind == "points" or number == 0:
        return f"{ours - number:+.2g}" if ours != number else "equal"
    if computed.agrees and tolerance.kind in ("exact", "rounding"):
        return "equal"
    return f"{100 * (ours / number - 1):+.{0 if abs(ours / number - 1) >= 0.02 else 1}f} %"


def allowed(computed: Computed) -> str:
    tolerance = computed.row.tolerance
    return (
        tolerance.text
        if tolerance.kind in ("exact", "rounding", "factor")
        else f"± {tolerance.text.replace(' points', '')}"
    )


def verdict_of(computed: Computed) -> str:
    """Rows that were set up to try a reason say so first."""
    found = AGREES if computed.agrees else DIFFERS
    if computed.row.after:
        return f"{TRIED}: {found.strip('*')}"
    return f"{INPUT} of the step cost: {found.strip('*')}" if computed.row.circular else found


def section(scenario: Scenario, computed: list[Computed]) -> str:
    """The scenario's part of the page."""
    lines = [
        f"### {scenario.title}",
        "",
        f"Source: {scenario.source}. File: [`{scenario.name}`](../published/scenarios/{scenario.name}.toml).",
        "",
        f"**Setting.** {scenario.setting}",
        "",
        f"**Step cost.** {scenario.step_cost}",
    ]
    if scenario.assumed:
        lines += ["", "**Assumed.**", "", *(f"- {text}" for text in scenario.assumed)]
    lines += ["", _HEADING, "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for one in computed:
        row, band = one.row, ""
        if one.band:
            band = f"{shown(one.band[0], row.published)} to {shown(one.band[1], row.published)}"
        cells = [
            row.id, row.what, row.published.text, row.cert,
            shown(one.ours, row.published), difference(one), allowed(one), band, verdict_of(one),
        ]  # fmt: skip
        lines.append(_line(cells))
    for untold, verdict in ((scenario.inputs, INPUT), (scenario.missing, UNSET)):
        for told in untold:
            why = f"input: {told.why}" if verdict == INPUT else f"{verdict}; missing: {told.why}"
            lines.append(_line([told.id, told.what, told.published, told.cert, "", "", "", "", why]))
    reasons = [f"- **{row.id}**, {row.what}: {row.why}" for row in scenario.rows if row.why]
    reasons += [f"- {text}" for text in scenario.why]
    if reasons:
        lines += ["", "**What was found out.**", "", *reasons]
    return "\n".join(lines) + "\n"


def page(scenarios: list[tuple[Scenario, list[Computed]]]) -> str:
    """The whole page, in the order of the reference list."""
    scenarios = sorted(scenarios, key=lambda one: (_order((one[0].ids() or [""])[0]), one[0].name))
    parts = [_HEAD.read_text(encoding="utf-8"), summary(scenarios), "## Scenario by scenario\n"]
    return "\n".join([*parts, *(section(scenario, computed) for scenario, computed in scenarios)])


def verdicts(scenarios: list[tuple[Scenario, list[Computed]]]) -> dict[str, Counter[str]]:
    """For each row of the reference list, how many of its values got which verdict."""
    found: dict[str, Counter[str]] = {}
    for scenario, computed in scenarios:
        told = [(one.row.id, _counted(one)) for one in computed]
        told += [(one.id, INPUT) for one in scenario.inputs] + [(one.id, UNSET) for one in scenario.missing]
        for id, verdict in told:
            found.setdefault(id, Counter())[verdict] += 1
    return {id: found[id] for id in sorted(found, key=_order)}


def kinds(scenarios: list[tuple[Scenario, list[Computed]]]) -> dict[str, Counter[str]]:
    """Verdicts on computed values by what they are: a sceptic weighs a sum and a measurement differently."""
    found = {name: Counter[str]() for name in KINDS}
    for scenario, computed in scenarios:
        for one in computed:
            names = set(re.findall(r"\b([a-z]\w*)\b", " ".join(map(str, (one.row.value, *_values(scenario))))))
            runs = names & (scenario.tables["runs"].keys() | scenario.tables["steps"].keys())
            law = scenario.name.startswith(("laws", "distserve"))
            found[KINDS[0] if not runs else KINDS[1] if law else KINDS[2]][_counted(one)] += 1
    return found


def _values(scenario: Scenario) -> list[str]:
    return [str(value) for value in scenario.tables["values"].values()]


def _counted(computed: Computed) -> str:
    """The verdict that a row counts for."""
    if computed.row.after or computed.row.circular:
        return TRIED if computed.row.after else INPUT
    return verdict_of(computed)


def summary(scenarios: list[tuple[Scenario, list[Computed]]]) -> str:
    """Verdicts counted, and each row of the reference list with its own."""
    by_id = verdicts(scenarios)
    total = sum(by_id.values(), Counter())
    lines = [
        "## What they come to",
        "",
        "Rows may have several values; each has a verdict.",
        "",
        "| | " + " | ".join(VERDICTS) + " |",
        f"| --- |{' --- |' * len(VERDICTS)}",
    ]
    lines.append(f"| values | {' | '.join(str(total[name]) for name in VERDICTS)} |")
    for name, counts in kinds(scenarios).items():
        lines.append(
            f"| {name} | {' | '.join(str(counts[one] or '') for one in VERDICTS)} |".replace("|  |", "| |").replace(
                "|  |", "| |"
            )
        )
    where: dict[str, list[str]] = {}
    for scenario, _ in scenarios:
        for id in dict.fromkeys(scenario.ids()):
            where.setdefault(id, []).append(f"`{scenario.name}`")
    lines += [
        "",
        "Each row of the reference list:",
        "",
        "| row | values | verdict | where |",
        "| --- | --- | --- | --- |",
    ]
    for id, counts in by_id.items():
        told = ", ".join(f"{name} {counts[name]}" if len(counts) > 1 else name for name in VERDICTS if counts[name])
        lines.append(f"| {id} | {sum(counts.values())} | {told} | {', '.join(where[id])} |")
    return "\n".join(lines) + "\n"


def _order(id: str) -> tuple[int, int, str]:
    """As the reference list has them; ids of other lists come last."""
    found = re.fullmatch(r"([PLAOSHTC$])(\d+)", id)
    return ("PLAOSHTC$".index(found[1]), int(found[2]), id) if found else (9, 0, id)


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |".replace("|  |", "| |").replace("|  |", "| |")
