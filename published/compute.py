"""Every row of a scenario computed: ours, how far it moves with what is not published, and the verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from published.runs import World
from published.scenario import Row, Scenario
from published.verdict import agrees
from simbatch import UsageError


@dataclass(frozen=True)
class Computed:
    """A row with what it came to."""

    row: Row
    ours: float
    band: tuple[float, float] | None = None
    """Least and most under the variants and ours; None where there are none, or the row has no use for them."""

    @property
    def agrees(self) -> bool:
        return agrees(self.ours, self.row.published, self.row.tolerance)


def compute(
    scenario: Scenario, tell: Callable[[str], None] = lambda text: None, *, bands: bool = True
) -> list[Computed]:
    """All rows; *bands* simulates the variants too. Raises UsageError with the scenario's name."""
    try:
        world = World(scenario.tables, lambda text: tell(f"{scenario.name}: {text}"))
        ours = [world.value(row.value) for row in scenario.rows]
        others: list[list[float]] = [[] for _ in ours]
        for name in scenario.variants if bands else ():
            varied = World(scenario.variant(name), lambda text, name=name: tell(f"{scenario.name}, {name}: {text}"))  # type: ignore[misc]
            for found, row in zip(others, scenario.rows, strict=True):
                if row.band:
                    found.append(varied.value(row.value))
    except UsageError as error:
        raise type(error)(f"scenario {scenario.name}: {error}") from error
    return [
        Computed(row, value, (min(value, *found), max(value, *found)) if found else None)
        for row, value, found in zip(scenario.rows, ours, others, strict=True)
    ]
