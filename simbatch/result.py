"""The result of a run: its facts, as frames to explore and as metrics to decide by.

Frames have seconds and tokens with units in their column names, and are made when first looked at;
metrics need numpy alone. Nothing here changes the facts, so a result can be asked again with other
limits, another price or a warm-up cut. Definitions are in `simbatch.metrics`, files in `simbatch.saved`.
"""

from __future__ import annotations

import copy
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simbatch.checks import path
from simbatch.conservation import check
from simbatch.facts import CAUSES, KV_SHARES, STATUSES, Facts, Floats, Ints, durations_ps
from simbatch.limits import DEFAULT_PERCENTILE, LatencyLimits
from simbatch.metrics import metrics
from simbatch.units import PS_PER_S

if TYPE_CHECKING:
    import pandas as pd


class Result:
    """What a run gave. Shows itself as its summary."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.warnings: list[str] = list(facts.warnings)
        """Results that are valid but limited, and why; a question asked of `metrics` may add to them."""
        self._answers: dict[tuple[float | str | None, ...], dict[str, Any]] = {}

    @property
    def config(self) -> dict[str, Any]:
        """Everything that repeats the run."""
        return self.facts.config

    @property
    def decisions(self) -> list[dict[str, Any]] | None:
        """One entry per iteration with the fields of the golden logs; None unless taken step by step."""
        return self.facts.decisions

    @cached_property
    def requests(self) -> pd.DataFrame:
        """One row per request; a time is NaN where the thing never happened."""
        import pandas as pd

        columns = self.facts.requests
        return pd.DataFrame(
            {
                "id": list(self.facts.ids),
                "arrival_s": _seconds(columns["arrival_ps"]),
                "prompt_tokens": columns["prompt_tokens"],
                "output_tokens": columns["output_tokens"],
                "first_scheduled_s": _seconds(columns["first_scheduled_ps"]),
                "first_token_s": _seconds(columns["first_token_ps"]),
                "finished_s": _seconds(columns["finished_ps"]),
                "preemptions": columns["preemptions"],
                "cached_tokens": columns["cached_tokens"],
                "recomputed_tokens": columns["recomputed_tokens"],
                "status": np.array(STATUSES, dtype=object)[columns["status"]],
                **_replica(columns),
            }
        )

    @cached_property
    def steps(self) -> pd.DataFrame:
        """One row per stretch of equal iterations.

        Tokens of `context_tokens` are those of the first iteration, KV tokens those at its start.
        Iteration j lasts `first_s` + j · `increment_s`.
        """
        import pandas as pd

        rows = self.facts.rows
        counts = ("running", "waiting", "tokens", "prefill_tokens", "context_tokens", *KV_SHARES)
        return pd.DataFrame(
            {
                "start_s": rows["start_ps"] / PS_PER_S,
                "iterations": rows["iterations"],
                "end_s": (rows["start_ps"] + durations_ps(rows)) / PS_PER_S,
                **{name: rows[name] for name in counts},
                "first_s": rows["first_ps"] / PS_PER_S,
                "increment_s": rows["increment_ps"] / PS_PER_S,
                "held_back": np.array(CAUSES, dtype=object)[rows["cause"]],
                "sequences": rows["sequences"],
                **_replica(rows),
            }
        )

    @cached_property
    def waits(self) -> pd.DataFrame:
        """One row per request that finished: its end-to-end latency and the parts it consists of, in seconds.

        The parts are `simbatch.waits.REASONS`; columns `behind_…` split that of `head_of_line_s` by what held the
        head back. Raises UsageError for a run saved before what this needs was recorded.
        """
        import pandas as pd

        from simbatch.waits import waits

        found = waits(self.facts)
        parts = {f"{name}_s": column / PS_PER_S for name, column in found.ps.items()}
        parts |= {f"behind_{name}_s": column / PS_PER_S for name, column in found.behind_ps.items()}
        ids = [self.facts.ids[i] for i in found.request.tolist()]
        return pd.DataFrame({"id": ids, "e2e_s": found.latency_ps / PS_PER_S, **parts})

    def metrics(
        self,
        *,
        ttft_s: float | None = None,
        tpot_s: float | None = None,
        e2e_s: float | None = None,
        percentile: float = DEFAULT_PERCENTILE,
        warmup_s: float | str = 0.0,
        price_usd_per_hour: float | None = None,
    ) -> dict[str, Any]:
        """The JSON object of the run: plain numbers, None for what does not exist.

        *ttft_s*, *tpot_s*, *e2e_s* are limits for goodput, kept by at least *percentile* per cent of
        requests where `limits_met` is asked. *warmup_s* may be "auto": see `simbatch.warmup`.
        *price_usd_per_hour* is for all GPUs together.
        Raises UsageError for limits, percentiles and warm-ups that cannot be.
        """
        asked = (ttft_s, tpot_s, e2e_s, percentile, warmup_s, price_usd_per_hour)
        if asked not in self._answers:
            limits = LatencyLimits(ttft_s, tpot_s, e2e_s, percentile)
            answer = metrics(self.facts, limits, warmup_s=warmup_s, price_usd_per_hour=price_usd_per_hour)
            self.warnings += [warning for warning in answer["warnings"] if warning not in self.warnings]
            self._answers[asked] = answer
        return copy.deepcopy(self._answers[asked])

    def check(self) -> None:
        """Raises SimbatchError, with both numbers, if the run breaks a law of conservation."""
        check(self.facts)

    def save(self, folder: str | Path, metrics: dict[str, Any] | None = None) -> None:
        """Write everything to *folder*, *metrics* (by default those without limits) beside it."""
        from simbatch.saved import save

        save(self.facts, path("the folder", folder), self.metrics() if metrics is None else metrics)

    @classmethod
    def load(cls, folder: str | Path) -> Result:
        """The result that was saved to *folder*: its metrics are equal to the last digit.

        Raises UsageError where *folder* is not a saved run.
        """
        from simbatch.saved import load

        return cls(load(path("the folder", folder)))

    def __repr__(self) -> str:
        from simbatch.show.summary import summary_text

        return summary_text(self.metrics())

    def _repr_html_(self) -> str:
        return f'<pre style="max-height: 80vh; overflow: auto; line-height: 1.2">{escape(repr(self))}</pre>'


def _replica(columns: dict[str, Any]) -> dict[str, Any]:
    """Which replica, where there are several."""
    return {name: columns[name] for name in ("replica",) if name in columns}


def _seconds(times_ps: Ints) -> Floats:
    """Seconds, NaN where a time is missing."""
    return np.where(times_ps < 0, np.nan, times_ps / PS_PER_S)
