"""A line: base + token·T + sequence·N + prefill_token·P + context·C."""

from __future__ import annotations

from typing import Any

from simbatch.checks import real
from simbatch.errors import UsageError
from simbatch.timing.base import FOREVER, Iteration
from simbatch.units import PS_PER_MS, PS_PER_NS, PS_PER_US


class LinearTiming:
    """Iteration time as a line in what the engine knows; see `Iteration` for T, N, P and C.

    Coefficients are rounded to whole picoseconds once, here. Raises UsageError for a negative
    coefficient, and when an iteration would take no time at all.

    >>> LinearTiming(base_ms=5, token_us=20, context_ns=20).base_ps
    5000000000
    """

    COEFFICIENTS = ("base_ms", "token_us", "sequence_us", "prefill_token_us", "context_ns")

    def __init__(
        self,
        base_ms: float = 0.0,
        token_us: float = 0.0,
        sequence_us: float = 0.0,
        prefill_token_us: float = 0.0,
        context_ns: float = 0.0,
    ) -> None:
        given = dict(
            zip(self.COEFFICIENTS, (base_ms, token_us, sequence_us, prefill_token_us, context_ns), strict=True)
        )
        for name, value in given.items():
            if not 0 <= real(f"linear timing: {name}", value) < 1e9:
                raise UsageError(
                    f"linear timing: {name} is {value}, which is no time that work can take. "
                    "Give a number that is not negative."
                )
        self.given = given
        self.base_ps = round(base_ms * PS_PER_MS)
        self.token_ps = round(token_us * PS_PER_US)
        self.sequence_ps = round(sequence_us * PS_PER_US)
        self.prefill_token_ps = round(prefill_token_us * PS_PER_US)
        self.context_ps = round(context_ns * PS_PER_NS)
        if self.base_ps + self.token_ps + self.sequence_ps < 1:
            raise UsageError("linear timing: an iteration would take no time. Give base_ms, token_us or sequence_us.")

    @classmethod
    def parse(cls, text: str) -> LinearTiming:
        """From the command line's form, ``base_ms=5,token_us=20,context_ns=20``.

        Raises UsageError for an unknown or repeated coefficient and for what is not a number.
        """
        given: dict[str, float] = {}
        for part in text.split(","):
            name, equals, number = (piece.strip() for piece in part.partition("="))
            if name not in cls.COEFFICIENTS or not equals:
                raise UsageError(
                    f"linear timing: {part.strip()!r} is not a coefficient. "
                    f"Write NAME=NUMBER, separated by commas; names are {', '.join(cls.COEFFICIENTS)}."
                )
            if name in given:
                raise UsageError(f"linear timing: {name} is given twice. Leave one of them out.")
            try:
                given[name] = float(number)
            except ValueError:
                raise UsageError(f"linear timing: {name} is {number!r}, not a number. Write it as {name}=5.") from None
        return cls(**given)

    def progression(self, iteration: Iteration) -> tuple[int, int, int]:
        first = (
            self.base_ps
            + self.token_ps * iteration.tokens
            + self.sequence_ps * iteration.sequences
            + self.prefill_token_ps * iteration.prefill_tokens
            + self.context_ps * iteration.context_tokens
        )
        return first, self.context_ps * iteration.sequences, FOREVER

    def describe(self) -> dict[str, Any]:
        return {"kind": "estimated", "name": "linear", **self.given}
