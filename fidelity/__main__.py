"""The one command: every shared run simulated, every target beside what came out.

    python -m fidelity                 all sets of runs, as text
    python -m fidelity published rtx   some of them
    python -m fidelity --write         the same, into the tables of docs/fidelity-timing.md
    python -m fidelity --list          what there is
    python -m fidelity cards           fit the bundled profile cards anew

Run it in the root of the repository; SIMBATCH_SHARED names the folder with the data (`../shared` without it).
"""

from __future__ import annotations

import argparse
import sys
import time

from fidelity import data, document
from fidelity.data import Section


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m fidelity", description="Replay measured runs; show every target.")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="sets of runs (see --list), or cards; all sets without"
    )
    parser.add_argument("--write", action="store_true", help="write the tables of docs/fidelity-timing.md")
    parser.add_argument("--list", action="store_true", help="name the sets and stop")
    asked = parser.parse_args(arguments)
    from fidelity.targets import SETS

    if asked.list:
        print("\n".join(f"{name:<12} {(run.__doc__ or '').splitlines()[0]}" for name, run in SETS.items()))
        return 0
    unknown = [name for name in asked.names if name not in (*SETS, "cards")]
    if unknown:
        return _say(f"no set of runs is called {unknown[0]}. Known: {', '.join(SETS)}; and cards.")
    if not data.measured().is_dir():
        return _say(
            f"{data.measured()}: no measurements there. Set SIMBATCH_SHARED to the folder that has data/measured."
        )
    if "cards" in asked.names:
        if len(asked.names) > 1 or asked.write:
            return _say("cards is asked for alone. Leave the other names and --write out.")
        from fidelity import cards

        print("\n".join(cards.write()))
        return 0
    missed = 0
    for name in asked.names or SETS:
        started = time.monotonic()
        print(f"{name} …", end=" ", file=sys.stderr, flush=True)
        outcome = SETS[name]()
        print(f"{time.monotonic() - started:.0f} s", file=sys.stderr)
        missed += sum(not target.met for target in outcome.targets)
        sections = [targets_section([target.row() for target in outcome.targets]), *outcome.sections]
        print("\n\n".join("\n".join(document.text_of(section)) for section in sections if section.rows), end="\n\n")
        if asked.write:
            document.write([document.with_others(sections[0]), *sections[1:]])
    print(f"{missed} of these targets are missed." if missed else "Every target of these is met.", file=sys.stderr)
    return 0


def targets_section(rows: list[list[str]]) -> Section:
    from fidelity.targets import HEADS

    return Section(document.TARGETS, HEADS, rows)


def _say(message: str) -> int:
    print(f"Error: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(130)
