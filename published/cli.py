"""``python -m published [NAME …] [--write] [--page] [--fast] [--no-bands] [--list]``. The only file here that prints.

Results go to standard output, what is being simulated to standard error. Ctrl-C keeps what was ready: --write
stores each scenario as soon as it is computed, and makes the page when all that were asked for are.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from published.compute import Computed, compute
from published.page import AGREES, DIFFERS, PAGE, allowed, difference, page, shown
from published.results import keep, kept
from published.scenario import Scenario, read_scenarios
from published.traffic import Missing
from simbatch import SimbatchError


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 done, whatever the verdicts; 1 failed or interrupted; 2 wrong usage."""
    parser = argparse.ArgumentParser(
        prog="python -m published",
        description="Set up published results from their configurations, compute them again and compare.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="scenarios; all of them without any")
    parser.add_argument("--write", action="store_true", help="put them into docs/published-results.md")
    parser.add_argument("--page", action="store_true", help="make the page from what is stored, and compute nothing")
    parser.add_argument("--fast", action="store_true", help="only those that take seconds")
    parser.add_argument("--no-bands", action="store_true", help="leave out what is not published being varied")
    parser.add_argument("--list", action="store_true", help="name the scenarios and end")
    given = parser.parse_args(arguments)
    if given.write and given.no_bands:
        parser.error("--write needs the bands. Leave --no-bands out.")
    try:
        if given.page:
            _write_page()
            return 0
        chosen = [scenario for scenario in read_scenarios(given.names) if scenario.fast or not given.fast]
        if given.list:
            for scenario in chosen:
                print(f"{scenario.name:28} {'fast' if scenario.fast else '    '} {scenario.title}")
            return 0
        return _run(chosen, write_page=given.write, bands=not given.no_bands)
    except SimbatchError as error:
        print(f"Error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("\nInterrupted. What was ready is kept.", file=sys.stderr)
        return 1


def _run(chosen: list[Scenario], *, write_page: bool, bands: bool) -> int:
    skipped = False
    for scenario in chosen:
        started = time.perf_counter()
        try:
            computed = compute(scenario, _tell, bands=bands)
        except Missing as error:
            _tell("")
            print(f"{scenario.name}: skipped. {error}", file=sys.stderr)
            skipped = True
            continue
        _tell("")
        _show(scenario, computed)
        print(f"{scenario.name}: {time.perf_counter() - started:.0f} s", file=sys.stderr)
        if write_page:
            keep(scenario, computed)
    if write_page:
        _write_page()
    return int(skipped and write_page)


def _write_page() -> None:
    scenarios = [(scenario, kept(scenario)) for scenario in read_scenarios()]
    PAGE.write_text(page(scenarios), encoding="utf-8")


def _show(scenario: Scenario, computed: list[Computed]) -> None:
    print(f"{scenario.name}: {scenario.title}")
    for one in computed:
        verdict = AGREES if one.agrees else DIFFERS.strip("*").upper()
        band = f"  band {shown(one.band[0])} to {shown(one.band[1])}" if one.band else ""
        ours = shown(one.ours, one.row.published)
        print(
            f"  {one.row.id:4} {verdict:8} {ours:>10} published {one.row.published.text:>12}  "
            f"{difference(one):>8} ({allowed(one)}){band}  {one.row.what}"
        )
    for told in scenario.missing:
        print(f"  {told.id:4} cannot be set up; missing: {told.why}")


def _tell(text: str) -> None:
    """One line that is written over, where somebody watches."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text[:118]}", end="", file=sys.stderr, flush=True)
