"""Two runs of the same requests: who was faster in which, and why.

What changed for a request is the change of each part of its latency, and those add up exactly. Time behind others
is counted under what held the head of the queue back, so that the cause is named and not the place.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from simbatch.errors import UsageError
from simbatch.facts import Ints
from simbatch.result import Result
from simbatch.units import PS_PER_S
from simbatch.waits import Waits, waits

if TYPE_CHECKING:
    import pandas as pd

_EXTREME = 3
"""Requests named on each side."""


@dataclass(frozen=True)
class Difference:
    """What changed from one run to the other. Shows itself; `frame` has a row for each request."""

    names: tuple[str, str]
    ids: list[str]
    """Requests that finished in both, in the order of the first run."""
    prompt_tokens: Ints
    output_tokens: Ints
    before_ps: Ints
    """Latency in the first run."""
    change_ps: Ints
    """Latency in the second, less that in the first."""
    parts_ps: dict[str, Ints]
    """What `change_ps` consists of, by cause."""
    only: tuple[int, int]
    """Requests that finished in one of them alone."""

    def frame(self) -> pd.DataFrame:
        """One row per request; negative changes are gains."""
        import pandas as pd

        return pd.DataFrame(
            {
                "id": self.ids,
                "prompt_tokens": self.prompt_tokens,
                "output_tokens": self.output_tokens,
                "before_s": self.before_ps / PS_PER_S,
                "change_s": self.change_ps / PS_PER_S,
                **{f"{name}_s": part / PS_PER_S for name, part in self.parts_ps.items()},
            }
        )

    def metrics(self) -> dict[str, Any]:
        """The JSON object: plain numbers, None for means over nobody.

        `all`, `winners` and `losers` have a count, the mean change and its parts in seconds; `by_prompt` and
        `by_output` the same for the shortest, the middle and the longest third.
        """
        change = self.change_ps
        order = np.argsort(change, kind="stable")
        return {
            "a": self.names[0],
            "b": self.names[1],
            "all": self._of(np.ones(change.size, dtype=bool)),
            "winners": self._of(change < 0),
            "losers": self._of(change > 0),
            "by_prompt": self._thirds(self.prompt_tokens),
            "by_output": self._thirds(self.output_tokens),
            "most_gained": [self._one(i) for i in order[:_EXTREME].tolist() if change[i] < 0],
            "most_lost": [self._one(i) for i in order[::-1][:_EXTREME].tolist() if change[i] > 0],
            "finished_only_in_a": self.only[0],
            "finished_only_in_b": self.only[1],
        }

    def _of(self, some: Any) -> dict[str, Any]:
        count = int(some.sum())
        if not count:
            return {"requests": 0, "change_s": None, "parts_s": dict.fromkeys(self.parts_ps)}
        parts = {name: float(part[some].mean()) / PS_PER_S for name, part in self.parts_ps.items()}
        return {"requests": count, "change_s": float(self.change_ps[some].mean()) / PS_PER_S, "parts_s": parts}

    def _thirds(self, tokens: Ints) -> list[dict[str, Any]]:
        """Equal counts as far as equal lengths allow."""
        if not tokens.size:
            return []
        low, high = np.quantile(tokens, [1 / 3, 2 / 3])
        groups = (tokens <= low, (tokens > low) & (tokens <= high), tokens > high)
        return [
            {"from_tokens": int(tokens[some].min()), "to_tokens": int(tokens[some].max()), **self._of(some)}
            for some in groups
            if some.any()
        ]

    def _one(self, i: int) -> dict[str, Any]:
        parts = {name: int(part[i]) / PS_PER_S for name, part in self.parts_ps.items()}
        return {"id": self.ids[i], "change_s": int(self.change_ps[i]) / PS_PER_S, "parts_s": parts}

    def __repr__(self) -> str:
        from simbatch.show.difference import difference_text

        return difference_text(self.metrics())

    def _repr_html_(self) -> str:
        return f'<pre style="max-height: 80vh; overflow: auto; line-height: 1.2">{escape(repr(self))}</pre>'


def diff(a: Result, b: Result, *, names: tuple[str, str] | None = None) -> Difference:
    """Who won and who lost from *a* to *b*, two runs of the same requests, and why.

    *names* are those to show, by default the systems where they differ. Raises UsageError for runs of other requests,
    and for one saved before waits were recorded.
    """
    for result in (a, b):
        if not isinstance(result, Result):
            raise UsageError(f"diff takes two results, not a {type(result).__name__}. Give what simulate returned.")
    found = waits(a.facts), waits(b.facts)
    places = [_places(result, own) for result, own in zip((a, b), found, strict=True)]
    both = [id_ for id_ in places[0] if id_ in places[1]]
    rows = [np.array([own[id_] for id_ in both], dtype=np.int64) for own in places]
    own, other = (
        {name: result.facts.requests[name][waited.request[row]] for name in ("prompt_tokens", "output_tokens")}
        for result, waited, row in zip((a, b), found, rows, strict=True)
    )
    for name, lengths in own.items():
        wrong = np.flatnonzero(lengths != other[name])
        if wrong.size:
            i = int(wrong[0])
            raise UsageError(
                f"the runs are of other requests: {both[i]} has {lengths[i]} {name} in one and {other[name][i]} in the "
                "other. Give two runs of one trace."
            )
    if not both and all(places):
        raise UsageError("the runs are of other requests: no id is in both. Give two runs of one trace.")
    parts = [waited.by_cause_ps() for waited in found]
    return Difference(
        names=_names(a, b) if names is None else names,
        ids=both,
        **own,
        before_ps=found[0].latency_ps[rows[0]],
        change_ps=found[1].latency_ps[rows[1]] - found[0].latency_ps[rows[0]],
        parts_ps={name: parts[1][name][rows[1]] - part[rows[0]] for name, part in parts[0].items()},
        only=(len(places[0]) - len(both), len(places[1]) - len(both)),
    )


def _places(result: Result, found: Waits) -> dict[str, int]:
    """The place of each finished request in *found*, by id."""
    return {result.facts.ids[i]: place for place, i in enumerate(found.request.tolist())}


def _names(a: Result, b: Result) -> tuple[str, str]:
    one, other = str(a.config.get("system")), str(b.config.get("system"))
    return (one, other) if one != other else ("a", "b")
