"""A published value, how far ours may lie from it, and what that comes to: *agrees* or *differs*.

Published: a number as it was printed (``38.2``), a range (``1.7 to 2.7``), or a bound (``at most 1.2``).
Tolerance: ``exact``, ``rounding`` (half of the last printed digit), ``15 %``, ``4 points`` (absolute), ``factor 2``.
That of a range widens both ends, that of a bound the bound.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from simbatch import UsageError

_NUMBER = r"-?[\d,]+(?:\.\d+)?(?:e-?\d+)?"
EXACT = 1e-9
"""Relative: what floating point may lose."""


@dataclass(frozen=True)
class Published:
    """What was printed, and the numbers it stands for; equal where it is one number."""

    text: str
    low: float
    high: float

    @property
    def number(self) -> float | None:
        """None for a range or a bound."""
        return self.low if self.low == self.high else None


@dataclass(frozen=True)
class Tolerance:
    text: str
    kind: str
    amount: float = 0.0


def parse_published(text: str) -> Published:
    """Raises UsageError for another form; a number has to be text, so that its digits are kept."""
    if not isinstance(text, str):
        raise UsageError(f"published is {text!r}. Write it in quotes, with the digits that were printed.")
    if found := re.fullmatch(rf"({_NUMBER}) to ({_NUMBER})", text):
        return Published(text, _float(found[1]), _float(found[2]))
    if found := re.fullmatch(rf"at most ({_NUMBER})", text):
        return Published(text, float("-inf"), _float(found[1]))
    if found := re.fullmatch(rf"at least ({_NUMBER})", text):
        return Published(text, _float(found[1]), float("inf"))
    if re.fullmatch(_NUMBER, text):
        return Published(text, _float(text), _float(text))
    raise UsageError(f"published is {text!r}. Write such as '38.2', '1.7 to 2.7', 'at most 1.2' or 'at least 3'.")


def parse_tolerance(text: str) -> Tolerance:
    """Raises UsageError for another form."""
    if text in ("exact", "rounding"):
        return Tolerance(text, text)
    if found := re.fullmatch(rf"({_NUMBER}) (%|points)", text):
        return Tolerance(text, found[2], _float(found[1]))
    if found := re.fullmatch(rf"factor ({_NUMBER})", text):
        return Tolerance(text, "factor", _float(found[1]))
    raise UsageError(f"tolerance is {text!r}. Write 'exact', 'rounding', '15 %', '4 points' or 'factor 2'.")


def agrees(ours: float, published: Published, tolerance: Tolerance) -> bool:
    """Is *ours* as near as was allowed?"""
    low, high = widened(published, tolerance)
    return low <= ours <= high


def widened(published: Published, tolerance: Tolerance) -> tuple[float, float]:
    """The least and the most that agree."""
    low, high = published.low, published.high
    if tolerance.kind == "factor":
        return low / tolerance.amount, high * tolerance.amount
    if tolerance.kind == "rounding":
        slack = _last_digit(published.text) / 2 * (1 + EXACT)
        return low - slack, high + slack
    if tolerance.kind == "points":
        return low - tolerance.amount, high + tolerance.amount
    share = EXACT if tolerance.kind == "exact" else tolerance.amount / 100
    return _moved(low, -share), _moved(high, share)


def _moved(end: float, share: float) -> float:
    return end if end in (float("inf"), float("-inf")) else end + share * abs(end)


def _float(text: str) -> float:
    return float(text.replace(",", ""))


def _last_digit(text: str) -> float:
    """What one unit of the last printed digit is worth."""
    mantissa, _, exponent = re.findall(_NUMBER, text)[-1].partition("e")
    decimals = len(mantissa.partition(".")[2])
    return float(10.0 ** (int(exponent or 0) - decimals))
