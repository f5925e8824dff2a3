"""A diagnosis as text: the verdict, then evidence, change and effect, then the three questions."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

from simbatch.show.text import WIDTH, line, paragraphs

if TYPE_CHECKING:
    from simbatch.answers.diagnose.diagnosis import Diagnosis, Finding


def diagnosis_text(diagnosis: Diagnosis) -> str:
    """All findings for people; no line break at the end."""
    parts = [list(_finding(finding)) for finding in diagnosis.findings]
    return paragraphs(*parts, _questions(diagnosis), _about(diagnosis))


def _finding(finding: Finding) -> Iterator[str]:
    yield from textwrap.wrap(finding.verdict, WIDTH)
    for label, lines in (("evidence", finding.evidence), ("change", finding.change)):
        for number, said in enumerate(lines):
            yield line(label if number == 0 else "", said)
    if finding.effect is not None:
        yield line("effect", finding.effect)


def _questions(diagnosis: Diagnosis) -> Iterator[str]:
    for number, answer in enumerate(diagnosis.questions, start=1):
        yield line(f"question {number}", answer.question)
        yield line("", answer.answer)


def _about(diagnosis: Diagnosis) -> Iterator[str]:
    signals = diagnosis.signals
    said = [str(signals[key]) for key in ("engine", "model", "window") if signals.get(key)]
    if said:
        yield line("input", *said)
    if diagnosis.ignored:
        yield line("ignored", "signals that nothing here knows: " + ", ".join(diagnosis.ignored))
    for note in diagnosis.notes:
        yield line("note", note)
