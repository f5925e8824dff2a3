"""Inter-token latency: every gap of every sequence, described exactly without listing one of them.

Each row stands for an arithmetic progression of gaps (first, increment, iterations), each as often
as sequences emitted in it. The value at a rank is found by halving the range of values and counting
how many gaps lie at or below the middle: a division per row. Rows that lie wholly on one side of
the range that is left are counted once and dropped, so later rounds look at few rows.
Gaps that rows do not give (preempted sequences, pauses) come as single values, with negative
counts where a row counts gaps that were not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simbatch.errors import SimbatchError
from simbatch.facts import Facts, Ints, offsets_ps
from simbatch.stats import FIGURES, PERCENTILES, exact_dot, percentiles_from
from simbatch.units import PS_PER_S


@dataclass(frozen=True)
class Gaps:
    """A multiset of inter-token gaps as ascending arithmetic progressions, in picoseconds."""

    first_ps: Ints
    step_ps: Ints
    """At least 1; of no meaning where there is one term."""
    terms: Ints
    weight: Ints
    """How often each term counts; negative for a correction."""

    @property
    def count(self) -> int:
        """Gaps in all."""
        return int(self.weight @ self.terms)

    @property
    def total_ps(self) -> int:
        """All gaps together."""
        return exact_dot(self.weight, offsets_ps(self.first_ps, self.step_ps, self.terms))

    @property
    def last_ps(self) -> Ints:
        """The largest term of each progression."""
        return self.first_ps + (self.terms - 1) * self.step_ps

    def percentiles_ps(self, percentiles: Sequence[float]) -> list[float]:
        """Percentiles by linear interpolation over all gaps, bit for bit as if they were listed."""
        return percentiles_from(self.select, self.count, percentiles)

    def select(self, ranks: Sequence[int]) -> dict[int, int]:
        """The gaps at *ranks* (from 0, ascending order of gaps)."""
        found: dict[int, int] = {}
        low, high = int(self.first_ps.min()), int(self.last_ps.max())
        # Each entry: ranks whose value lies in low..high, the progressions that reach into that
        # range, and how many gaps lie below it without them.
        pending = [(list(ranks), low, high, self, 0)]
        while pending:
            wanted, low, high, gaps, below = pending.pop()
            if low == high:
                found.update(dict.fromkeys(wanted, low))
                continue
            middle = (low + high) // 2
            reached = below + int(gaps.weight @ gaps._terms_up_to(middle))
            left = [rank for rank in wanted if rank < reached]
            right = [rank for rank in wanted if rank >= reached]
            if left:
                part, done = gaps._within(low, middle)
                pending.append((left, low, middle, part, below + done))
            if right:
                part, done = gaps._within(middle + 1, high)
                pending.append((right, middle + 1, high, part, below + done))
        return found

    def _terms_up_to(self, value_ps: int) -> Ints:
        """How many terms of each progression are at most *value_ps*."""
        terms: Ints = value_ps - self.first_ps
        terms //= self.step_ps  # in place: there may be millions
        terms += 1
        return np.clip(terms, 0, self.terms, out=terms)

    def _within(self, low: int, high: int) -> tuple[Gaps, int]:
        """The progressions with terms in *low*..*high*, and the gaps of those that end below it.

        All of them where that would leave out less than half: of millions, every copy counts.
        """
        last = self.last_ps
        under = last < low
        keep = ~under & (self.first_ps <= high)
        if 2 * np.count_nonzero(keep) > keep.size:
            return self, 0
        part = Gaps(self.first_ps[keep], self.step_ps[keep], self.terms[keep], self.weight[keep])
        return part, int(self.weight[under] @ self.terms[under])


def gaps_of(facts: Facts) -> Gaps:
    """Every inter-token gap of a run."""
    rows, extra = facts.rows, facts.extra_gaps
    emits = rows["gaps"] != 0
    first, step = rows["first_ps"][emits], rows["increment_ps"][emits]
    terms, weight = rows["iterations"][emits], rows["gaps"][emits]
    first = np.where(step < 0, first + (terms - 1) * step, first)
    # Equal terms are one term that counts more often.
    single = (step == 0) | (terms == 1)
    weight, terms = np.where(single, weight * terms, weight), np.where(single, 1, terms)
    step = np.where(single, 1, np.abs(step))
    if not extra["gap_ps"].size:
        return Gaps(first, step, terms, weight)  # a copy less of what may be millions
    ones = np.ones_like(extra["gap_ps"])
    return Gaps(
        np.concatenate([first, extra["gap_ps"]]),
        np.concatenate([step, ones]),
        np.concatenate([terms, ones]),
        np.concatenate([weight, extra["count"]]),
    )


def itl(facts: Facts) -> dict[str, float | None]:
    """Inter-token latency in seconds: every gap between two tokens of a sequence, pooled over all sequences.

    Raises SimbatchError where corrections cancel more gaps than there are.
    """
    gaps = gaps_of(facts)
    count = gaps.count
    if count < 0:
        raise SimbatchError(
            f"the record cancels more inter-token gaps than its rows hold: {count} are left. "
            "Run Result.check() to see which law the run breaks."
        )
    if count == 0:
        return dict.fromkeys(FIGURES)
    *percentiles, longest = gaps.percentiles_ps([*PERCENTILES, 100])
    figures = [gaps.total_ps / count, *percentiles, longest]
    return {name: figure / PS_PER_S for name, figure in zip(FIGURES, figures, strict=True)}
