"""What limits a result without making it wrong: said once per run, and saved with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from simbatch.facts import FINISHED, Ints

if TYPE_CHECKING:
    from simbatch.record import Recorder
    from simbatch.setup import Setup
    from simbatch.trace import Trace


def caveats(trace: Trace, recorders: Iterable[Recorder], status: Ints, setup: Setup, closed: bool) -> list[str]:
    """The warnings of a run of *trace*; *status* says what became of each request.

    *recorders* are those of its replicas; *closed*: was it a closed loop, which asks for no times?
    """
    warnings = [*trace.warnings, *(setup.deployment.warnings if setup.deployment is not None else ())]
    if trace.arrival_ps is None and not closed:
        what = "everything arrives" if trace.session is None else "every session begins"
        warnings.append(f"the trace has no arrival times: {what} at time 0")
    if setup.ignored:
        warnings.append(f"{', '.join(setup.ignored)}: no effect on this system")
    refusals = sum((Counter(recorder.refusals) for recorder in recorders), Counter[str]())
    for reason, count in refusals.items():
        warnings.append(f"{count} of {len(trace)} requests refused: {reason}")
    return [*warnings, *_cut_outputs(trace, status, setup.limits.max_model_len)]


def _cut_outputs(trace: Trace, status: Ints, max_model_len: int) -> list[str]:
    """How many outputs that finished are shorter than the trace says, by what ended them."""
    outputs, room = trace.output_tokens, max_model_len - trace.prompt_tokens
    allowed = outputs if trace.max_tokens is None else np.where(trace.max_tokens < 0, outputs, trace.max_tokens)
    cut = {
        f"max_model_len, {max_model_len:,} tokens": np.minimum(outputs, allowed) > room,
        "max_tokens": (outputs > allowed) & (allowed <= room),
    }
    counts = {what: int((rows & (status == FINISHED)).sum()) for what, rows in cut.items()}
    return [
        f"{count:,} {'output ends' if count == 1 else 'outputs end'} at {what}, before the length in the trace"
        for what, count in counts.items()
        if count
    ]
