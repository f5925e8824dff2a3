"""A saved run of the simulator as a log of iterations: to see what a log of that kind could tell.

Nothing was measured, and the card says so. Rows are stretches of equal iterations, as the run was recorded.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from simbatch.answers.fit.rows import FAKE, Iterations, iterations_of
from simbatch.deployment import Deployment
from simbatch.errors import UsageError
from simbatch.facts import durations_ps
from simbatch.units import PS_PER_S

RUN = "facts.json"
"""By which the folder of a saved run is known."""


def run_log(path: Path, deployment: Deployment | None) -> Iterations:
    """The iterations of the run saved in *path*. Raises UsageError where it does not say what it ran on."""
    import pandas as pd

    from simbatch.saved import load

    facts = load(path)
    known = facts.config.get("deployment")
    if deployment is None and known:
        deployment = Deployment(**{key: value for key, value in known["given"].items() if value is not None})
    if deployment is None:
        raise UsageError(f"{path}: a run without a deployment. Give --model and --gpu.")
    rows = facts.rows
    later = (rows["iterations"] - 1) / 2  # of a stretch that decodes, the mean context lies so far behind the first
    frame = pd.DataFrame(
        {name: rows[name] for name in ("tokens", "sequences", "prefill_tokens", "waiting", "iterations")}
    )
    frame["context_tokens"] = rows["context_tokens"] + np.where(
        rows["prefill_tokens"] > 0, 0, later * rows["sequences"]
    )
    frame["duration_s"] = durations_ps(rows) / PS_PER_S
    made = iterations_of(frame, deployment, path.name)
    return replace(made, notes=[*made.notes, f"{FAKE}: iterations of a simulated run, nothing was measured"])
