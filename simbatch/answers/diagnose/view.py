"""Quantities worked out of signals, each None where the input does not give it.

Rules ask these rather than keys, so that a run, two scrapes, a log and a list of numbers that somebody
typed are judged alike.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from simbatch.answers.diagnose.signals import OBSERVED, Signals, number
from simbatch.units import show_number

CONSTANT = 0.03
"""A sum that moves by less than this share of itself does not move."""
FULL = 0.75
"""KV memory held from which on it is what an engine runs out of. Usage breathes below 1 as requests come and go."""
QUEUE = 0.05
"""A queue is one when more than this share of the running requests waits; fewer are those that just arrived."""


class View:
    """Signals as quantities."""

    def __init__(self, signals: Signals) -> None:
        self.signals = signals

    def number(self, key: str) -> float | None:
        """The signal *key*, else its latest value in the series."""
        if key in self.signals:
            return number(self.signals[key])
        seen = [number(look[key]) for look in self.looks if key in look]
        return seen[-1] if seen else None

    def text(self, key: str) -> str:
        return str(self.signals.get(key, ""))

    @cached_property
    def looks(self) -> list[dict[str, Any]]:
        """What was seen at one time or several, in order."""
        own = {key: self.signals[key] for key in OBSERVED if key in self.signals}
        series = list(self.signals.get("series", []))
        return series if series else [own] if own else []

    def over(self, key: str) -> list[float]:
        """*key* in every look, empty unless all have it as a number."""
        values = [number(look.get(key)) for look in self.looks]
        return [value for value in values if value is not None] if None not in values else []

    # -- load ------------------------------------------------------------------------------------

    @property
    def running(self) -> float | None:
        return self.number("running")

    @property
    def waiting(self) -> float | None:
        return self.number("waiting")

    @property
    def in_flight(self) -> list[float]:
        """Running and waiting together, look by look."""
        running, waiting = self.over("running"), self.over("waiting")
        swapped = self.over("swapped") or [0.0] * len(running)
        return [r + w + s for r, w, s in zip(running, waiting, swapped, strict=False)] if running and waiting else []

    @property
    def nobody_finishes(self) -> bool:
        """Several looks, and as many in flight in each: nothing arrives, nothing ends. Unless some were seen to end."""
        sums = self.in_flight
        if self.number("requests_finished") or self.number("finished_req_s"):
            return False
        return len(sums) > 1 and sums[0] > 0 and max(sums) - min(sums) <= CONSTANT * max(sums)

    @property
    def queues(self) -> bool | None:
        """Do requests wait? In the latest look, or for a share of the time that was given."""
        if (share := self.number("queued_share")) is not None:
            return share > QUEUE
        if self.waiting is None:
            return None
        return self.waiting > QUEUE * max(1.0, self.running or 0.0) and self.waiting > 0

    # -- memory ----------------------------------------------------------------------------------

    @property
    def kv_usage(self) -> float | None:
        return self.number("kv_usage")

    @property
    def is_full(self) -> bool:
        return self.kv_usage is not None and self.kv_usage >= FULL

    @property
    def preemptions(self) -> float | None:
        """Counted ones, in the window of the input or in all."""
        seen = [self.number(key) for key in ("preemptions", "preemptions_total")]
        return next((value for value in seen if value is not None), None)

    @property
    def pushed_back(self) -> float:
        """Requests that went from running back to waiting, as a constant sum with fewer running tells."""
        running = self.over("running")
        return running[0] - running[-1] if self.nobody_finishes and running[0] > running[-1] else 0.0

    # -- pace ------------------------------------------------------------------------------------

    @property
    def span_s(self) -> float | None:
        """From the first look to the last."""
        times = self.over("t")
        if len(times) > 1 and times[-1] > times[0]:
            return times[-1] - times[0]
        return None

    @property
    def step_s(self) -> float | None:
        """An iteration, from how many tokens a second all running requests get: one each in an iteration."""
        looks = [(number(look.get("running")), number(look.get("generation_tok_s"))) for look in self.looks]
        steps = [running / rate for running, rate in looks if running and rate]
        return steps[0] if steps else None

    @property
    def prompts_per_output(self) -> float | None:
        """Prompt tokens computed for each token generated."""
        prompt, generated = self.number("prompt_tok_s"), self.number("generation_tok_s")
        return prompt / generated if prompt is not None and generated else None


def show(value: float) -> str:
    """A count or a figure as people write it: whole numbers whole, else three digits."""
    return f"{value:,.0f}" if float(value).is_integer() else show_number(value)


def percent(share: float) -> str:
    return f"{share:.1%}".replace(".0%", "%").replace("%", " %")
