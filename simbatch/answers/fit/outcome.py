"""What a fit gives: the card, what the data could tell, and predicted against measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simbatch.answers.fit.client import ClientFit
from simbatch.answers.fit.identify import Told
from simbatch.answers.fit.problem import Problem
from simbatch.answers.fit.validate import RunError
from simbatch.deployment import Deployment
from simbatch.timing.card import ProfileCard, card_text
from simbatch.timing.profile import ProfileTiming
from simbatch.timing.work import Floats


@dataclass(frozen=True)
class Fit:
    """A profile, how it was found, and what it was compared with."""

    card: ProfileCard
    told: Told | None
    """What the data could tell; None for fits to a client's figures."""
    problem: Problem | None
    """Every measured iteration."""
    unseen_errors: Floats
    """Predicted ÷ measured - 1 of each observation, by fits that had not seen its run."""
    runs: tuple[RunError, ...]
    client: ClientFit | None
    notes: tuple[str, ...]

    def timing(self, deployment: Deployment) -> ProfileTiming:
        """The profile as a timing for `simulate`."""
        return ProfileTiming(deployment, self.card)

    def card_text(self) -> str:
        """The card as its file."""
        return card_text(self.card)

    def save(self, path: str | Path) -> None:
        """Write the card; `--timing FILE` takes it where its name ends in .toml."""
        Path(path).write_text(self.card_text(), encoding="utf-8")

    def metrics(self) -> dict[str, Any]:
        """The JSON object of the verb."""
        card = self.card
        return {
            "profile": {
                **{name: getattr(card, name) for name in ("name", "kind", "gpu", "model", "engine", "date", "source")},
                "tensor_parallel_size": card.tensor_parallel_size,
                "front_end_ms": card.front_end_ms,
                "coefficients": {name: vars(found) for name, found in card.coefficients.items()},
                "table": {name: list(values) for name, values in card.table.items()},
                "notes": list(card.notes),
            },
            "error": {
                "median": card.error.median,
                "p95": card.error.p95,
                "worst": card.error.worst,
                "worst_at": card.error.worst_at,
                "how": card.error.how,
            },
            "range": {name: list(ends) for name, ends in card.measured.items()},
            "n": {"iterations": card.iterations, "runs": card.runs},
            "runs": [vars(run) for run in self.runs],
        }

    def __repr__(self) -> str:
        from simbatch.show.fit import fit_text

        return fit_text(self)

    def report(self) -> str:
        """Predicted against measured: by run, by input, and where it is worst."""
        from simbatch.show.fit import report_text

        return report_text(self)
