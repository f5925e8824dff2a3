"""docs/published-results.md: a section for each scenario, and in front of them what they come to.

A section is replaced alone when its scenario is computed again; the summary is read off the sections, so it
says what stands there and nothing else.
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
AGREES, DIFFERS, UNSET, INPUT = "agrees", "**differs**", "cannot be set up", "input"
VERDICTS = (AGREES, DIFFERS, UNSET, INPUT)
_HEADING = "| row | what | published | cert. | ours | difference | allowed | band | verdict |"
_SECTION = re.compile(r"^<!-- scenario: (\S+) -->\n(.*?)(?=^<!-- |\Z)", re.MULTILINE | re.DOTALL)
_INTRO = """\
# Published results, computed again

What others measured, set up from their configurations and simulated here: nothing is fitted to a row, and every
assumption is in a file of [`published/scenarios`](../published/scenarios) that can be read in a minute. This page is
written by `python -m published --write`; the quick scenarios are computed again and compared with it by the tests
(`pytest -m published`).

**How to read a row.** *Published* is the number as printed. *Cert.* is how sure it is: R read in the source, F off a
plotted curve, D derived from those by arithmetic, S somebody else's summary, M from memory. *Allowed* is the tolerance,
which was committed with the scenario before it was first run and has not been changed since; where a similar run was
known already, the scenario says so. *Band* is how far ours moves when what the source does not publish is varied: above
all the step cost. *Input* means that there is nothing to compute: the row is a setting or a limit, used where it
says. A row that *differs* has its reason under the table, as far as one was found.

An agreement within a wide band says little, and one that rests on numbers of the same source says less: the step-cost
line of the PagedAttention paper is a fit to the paper's own curve, so rows that use it compare rules and memory, not
speed.
"""


def shown(value: float, published: Published | None = None) -> str:
    """*value* with three digits, or as many as were published."""
    digits = max(3, len(re.findall(r"\d", published.text.split(" to ")[0].lstrip("0."))) if published else 3)
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
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


def section(scenario: Scenario, computed: list[Computed]) -> str:
    """The scenario's part of the page."""
    lines = [
        f"<!-- scenario: {scenario.name} -->",
        f"### {scenario.title}",
        "",
        f"*{scenario.source}.* File: [`{scenario.name}`](../published/scenarios/{scenario.name}.toml).",
        scenario.setting,
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
            shown(one.ours, row.published), difference(one), allowed(one), band, AGREES if one.agrees else DIFFERS,
        ]  # fmt: skip
        lines.append(_line(cells))
    for untold, verdict in ((scenario.inputs, INPUT), (scenario.missing, UNSET)):
        for told in untold:
            why = f"input: {told.why}" if verdict == INPUT else f"{verdict}: missing {told.why}"
            lines.append(_line([told.id, told.what, told.published, told.cert, "", "", "", "", why]))
    reasons = [f"- **{row.id}**, {row.what}: {row.why}" for row in scenario.rows if row.why]
    reasons += [f"- {text}" for text in scenario.why]
    if reasons:
        lines += ["", "**What was found out.**", "", *reasons]
    return "\n".join(lines) + "\n\n"


def write(sections: dict[str, str], order: list[str], path: Path = PAGE) -> None:
    """The page with these *sections* in place of the old ones; those of scenarios that are gone are left out."""
    kept = sections_of(path.read_text(encoding="utf-8")) if path.exists() else {}
    kept |= sections
    whole = "".join(kept[name] for name in order if name in kept)
    path.write_text(f"{_INTRO}\n{summary(whole)}\n{whole}".rstrip("\n") + "\n", encoding="utf-8")


def sections_of(text: str) -> dict[str, str]:
    """Every section of a page by its scenario."""
    return {found[1]: f"<!-- scenario: {found[1]} -->\n{found[2]}" for found in _SECTION.finditer(text)}


def rows_of(text: str) -> list[list[str]]:
    """The cells of every row of a page's or a section's tables."""
    found = []
    for line in text.split("\n"):
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if line.startswith("| ") and len(cells) == _HEADING.count("|") - 1 and cells[0] not in ("row", "---"):
            found.append(cells)
    return found


def summary(text: str) -> str:
    """What all rows come to: verdicts counted, and each row of the reference list with its own."""
    by_id: dict[str, Counter[str]] = {}
    for cells in rows_of(text):
        verdict = next(name for name in VERDICTS if cells[-1].startswith(name))
        by_id.setdefault(cells[0], Counter())[verdict] += 1
    total = sum(by_id.values(), Counter())
    lines = ["## What they come to", "", "| | " + " | ".join(VERDICTS) + " |", "| --- | --- | --- | --- | --- |"]
    lines.append(f"| values | {' | '.join(str(total[name]) for name in VERDICTS)} |")
    lines += ["", "Each row of the reference list:", "", "| row | values | verdict |", "| --- | --- | --- |"]
    for id in sorted(by_id, key=_order):
        counts = by_id[id]
        told = ", ".join(f"{name} {counts[name]}" if len(counts) > 1 else name for name in VERDICTS if counts[name])
        lines.append(f"| {id} | {sum(counts.values())} | {told} |")
    return "\n".join(lines) + "\n\n## Scenario by scenario\n"


def _order(id: str) -> tuple[int, int]:
    return "PLAOSH$TC".index(id[0]), int(id[1:])


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |".replace("|  |", "| |").replace("|  |", "| |")
