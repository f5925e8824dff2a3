"""What scenarios came to when they were last computed: published/results.json, from which the page is made.

Each scenario is kept with a digest of all that its numbers follow from. Prose and tolerances are no part of that, so a
reason can be added without an hour of simulation, and numbers that no longer belong to their file are refused.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import simbatch
from published.compute import Computed
from published.scenario import Scenario
from simbatch import UsageError

PATH = Path(__file__).parent / "results.json"


def digest(scenario: Scenario) -> str:
    """Of the tables and of what is computed from them."""
    values = [[row.id, row.value, row.band] for row in scenario.rows]
    return sha256(json.dumps([scenario.tables, values], sort_keys=True).encode()).hexdigest()[:16]


def profiles(scenario: Scenario) -> dict[str, str]:
    """The bundled timing profiles that the tables name, each with a digest of the times that it gives."""
    folder = Path(simbatch.__file__).parent / "timing" / "profiles"
    found = {}
    for path in sorted(folder.glob("*.toml")):
        if f'"{path.stem}"' in json.dumps(scenario.tables):
            card = tomllib.loads(path.read_text(encoding="utf-8"))
            times = [{name: one["value"] for name, one in card["coefficients"].items()}, card.get("table")]
            found[path.stem] = sha256(json.dumps(times, sort_keys=True).encode()).hexdigest()[:16]
    return found


def refitted(scenario: Scenario, path: Path = PATH) -> bool:
    """Has a profile been fitted anew since the scenario was computed? What follows from it has moved a little then."""
    then: dict[str, str] = _read(path).get(scenario.name, {}).get("profiles", {})
    return then != profiles(scenario)


def keep(scenario: Scenario, computed: list[Computed], path: Path = PATH) -> None:
    """Put these in place of what was known of the scenario."""
    known = _read(path)
    rows = [{"ours": one.ours, "band": one.band} for one in computed]
    known[scenario.name] = {"digest": digest(scenario), "profiles": profiles(scenario), "rows": rows}
    lines = [f"{json.dumps(name)}: {json.dumps(known[name])}" for name in sorted(known)]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def kept(scenario: Scenario, path: Path = PATH) -> list[Computed]:
    """What was computed last. Raises UsageError where that was never, or of another state of the file."""
    if not scenario.rows:
        return []
    found = _read(path).get(scenario.name)
    if found is None or found["digest"] != digest(scenario):
        state = "has not been computed" if found is None else "has changed since it was computed"
        raise UsageError(f"scenario {scenario.name} {state}. Run: python -m published {scenario.name} --write.")
    return [
        Computed(row, one["ours"], one["band"] and (one["band"][0], one["band"][1]))
        for row, one in zip(scenario.rows, found["rows"], strict=True)
    ]


def _read(path: Path) -> dict[str, Mapping[str, Any]]:
    if not path.exists():
        return {}
    found: dict[str, Mapping[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return found
