"""What a diagnosis is: findings, each with its evidence, and the three questions with what the input says."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from html import escape
from typing import Any

from simbatch.metrics import plain


@dataclass(frozen=True)
class Finding:
    """One thing that is so. Plain words throughout."""

    id: str
    verdict: str
    evidence: tuple[str, ...]
    """Quantities of the input and what was worked out of them."""
    change: tuple[str, ...]
    """What to change, the best first; empty where nothing is to be changed."""
    effect: str | None = None
    """What the simulator says that the change would bring; None where the deployment is not known."""


@dataclass(frozen=True)
class Answer:
    """One of the three questions. *value* is None where the input does not say."""

    question: str
    answer: str
    value: Any = None


@dataclass(frozen=True)
class Diagnosis:
    """Findings in the order of their weight. Shows itself as text."""

    engine: str | None
    signals: dict[str, Any]
    findings: tuple[Finding, ...]
    questions: tuple[Answer, ...]
    ignored: tuple[str, ...] = ()
    """Keys of the input that nothing here knows."""
    notes: tuple[str, ...] = field(default=())

    @property
    def verdict(self) -> str:
        """The first finding in words."""
        return self.findings[0].verdict

    def metrics(self) -> dict[str, Any]:
        """The JSON object."""
        found: dict[str, Any] = plain(
            {
                "engine": self.engine,
                "signals": self.signals,
                "verdict": self.verdict,
                "findings": [asdict(finding) for finding in self.findings],
                "questions": [asdict(answer) for answer in self.questions],
                "ignored": self.ignored,
                "notes": self.notes,
            }
        )
        return found

    def __repr__(self) -> str:
        from simbatch.show.diagnosis import diagnosis_text

        return diagnosis_text(self)

    def _repr_html_(self) -> str:
        return f'<pre style="max-height: 80vh; overflow: auto; line-height: 1.2">{escape(repr(self))}</pre>'
