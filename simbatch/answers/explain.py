"""What happened to one request: where its latency went, and what would have shortened it."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from simbatch.errors import UsageError, unknown
from simbatch.facts import FINISHED, STATUSES, Facts, as_the_engine_saw
from simbatch.metrics import e2e_ps
from simbatch.result import Result
from simbatch.units import PS_PER_S
from simbatch.waits import HELD_BACK, waits

_MOST_NAMES = 20
"""Ids that an error message lists."""


class Explanation:
    """One request of a run in words. Shows itself; `metrics` are the numbers in it."""

    def __init__(self, metrics: dict[str, Any]) -> None:
        self._metrics = metrics

    def metrics(self) -> dict[str, Any]:
        """The JSON object: plain numbers, None for what did not happen.

        `parts_s` are `simbatch.waits.REASONS` and add up to `e2e_s`; `behind_s` splits `head_of_line` by what held
        the head back; `cause` is what most of the wait is put down to, None where it did not wait.
        """
        return dict(self._metrics)

    def __repr__(self) -> str:
        from simbatch.show.explanation import explanation_text

        return explanation_text(self._metrics)

    def _repr_html_(self) -> str:
        return f'<pre style="max-height: 80vh; overflow: auto; line-height: 1.2">{escape(repr(self))}</pre>'


def explain(result: Result, id: str | int) -> Explanation:
    """Say in words why request *id* of *result* took as long as it did.

    Raises UsageError for a request that the run does not have, and for a run saved before waits were recorded.
    """
    if not isinstance(result, Result):
        raise UsageError(f"explain takes a result, not a {type(result).__name__}. Give what simulate or load returned.")
    facts, name = result.facts, str(id)
    try:
        place = list(facts.ids).index(name)
    except ValueError:
        raise _unknown(facts, name) from None
    found: dict[str, Any] = {
        "id": name,
        "status": STATUSES[int(facts.requests["status"][place])],
        "arrival_s": int(facts.requests["arrival_ps"][place]) / PS_PER_S,
        **{
            column: int(facts.requests[column][place])
            for column in ("prompt_tokens", "output_tokens", "preemptions", "cached_tokens", "recomputed_tokens")
        },
        **_at_arrival(facts, place),
    }
    if facts.requests["status"][place] == FINISHED:
        found |= _latency(facts, place)
    return Explanation(found)


def _unknown(facts: Facts, name: str) -> UsageError:
    if len(facts.ids) > _MOST_NAMES:
        first, last = facts.ids[0], facts.ids[-1]
        return UsageError(
            f"the run has no request {name!r} among its {len(facts.ids):,}, from {first!r} to {last!r}. "
            "Ids are in the column id of requests.csv.gz and Result.requests."
        )
    return unknown("request", name, facts.ids)


def _at_arrival(facts: Facts, place: int) -> dict[str, Any]:
    """Who ran and who waited when it came, by the row that it came in; 0 when the engine was idle."""
    rows = facts.rows
    if facts.replicas > 1:
        here = rows["replica"] == facts.requests["replica"][place]
        rows = {name: column[here] for name, column in rows.items()}
    arrived = as_the_engine_saw(facts).requests["arrival_ps"][place]
    row = int(np.searchsorted(rows["start_ps"], arrived, side="right")) - 1
    if row < 0 or rows["start_ps"][row] == arrived:  # what it came in was planned with it
        row -= 1
    busy = row >= 0 and rows["start_ps"][row] + _lasts(rows, row) >= arrived
    return {
        "running_at_arrival": int(rows["running"][row]) if busy else 0,
        "waiting_at_arrival": int(rows["waiting"][row]) if busy else 0,
    }


def _lasts(rows: dict[str, Any], row: int) -> int:
    k = int(rows["iterations"][row])
    return k * int(rows["first_ps"][row]) + int(rows["increment_ps"][row]) * (k * (k - 1) // 2)


def _latency(facts: Facts, place: int) -> dict[str, Any]:
    found = waits(facts)
    row = int(np.flatnonzero(found.request == place)[0])
    requests = facts.requests
    first, finished = int(requests["first_token_ps"][place]), int(requests["finished_ps"][place])
    latency, outputs = int(found.latency_ps[row]), int(requests["output_tokens"][place])
    causes = {name: int(part[row]) for name, part in found.by_cause_ps().items() if name != "running"}
    worst = max(causes, key=lambda name: causes[name])
    return {
        "e2e_s": latency / PS_PER_S,
        "ttft_s": (first - int(requests["arrival_ps"][place])) / PS_PER_S,
        "tpot_s": (finished - first) / (outputs - 1) / PS_PER_S if outputs > 1 else None,
        "faster_share": float((e2e_ps(facts) < latency).mean()),
        "parts_s": {name: int(part[row]) / PS_PER_S for name, part in found.ps.items()},
        "behind_s": {name: int(found.behind_ps[name][row]) / PS_PER_S for name in HELD_BACK},
        "cause": worst if causes[worst] else None,
        "cause_s": causes[worst] / PS_PER_S,
    }
