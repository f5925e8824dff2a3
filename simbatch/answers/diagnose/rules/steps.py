"""Rules about the pace of iterations: is it the GPU that sets it?"""

from __future__ import annotations

from simbatch.answers.diagnose.diagnosis import Finding
from simbatch.answers.diagnose.view import View, percent, show
from simbatch.units import show_s

IDLE = 0.5
"""GPU utilisation below which something else sets the pace while a batch runs."""
A_BATCH = 8
"""Running sequences from which on a GPU has something to do."""


def host_bound(view: View, found: list[Finding]) -> Finding | None:
    """A batch runs, and the GPU is idle most of the time: scheduler, sampler or detokeniser set the pace."""
    if any(finding.id == "over-sharded" for finding in found):
        return None
    busy, running = view.number("gpu_utilisation"), view.running
    if busy is None or busy >= IDLE or running is None or running < A_BATCH:
        return None
    evidence = [f"GPU utilisation {percent(busy)} while {show(running)} sequences run"]
    if (step_s := view.step_s) is not None:
        first = view.looks[0]
        rate, batch = float(first["generation_tok_s"]), float(first["running"])
        evidence.append(
            f"{show(rate)} tokens/s / {show(batch)} running = {rate / batch:.1f} tokens/s for each: an iteration takes "
            f"about {show_s(step_s)}, of which the GPU needs {percent(busy)}"
        )
    return Finding(
        "host-bound",
        "Host-bound: the CPU (scheduler, sampler, detokeniser, API server) sets the pace of iterations, not the GPU.",
        tuple(evidence),
        (
            "give the engine a core of its own, apart from the API server and other engines",
            "use asynchronous scheduling, and a release whose scheduler and detokeniser run beside the GPU",
            "take a model or a GPU to match: a small model on a fast GPU is limited by the host at any setting",
        ),
    )
