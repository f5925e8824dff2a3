"""What batching and KV-cache memory management are worth on your traffic, before you rent the GPU.

>>> import simbatch as sb
>>> trace = sb.Trace.load("sharegpt").head(200).at_rate(20, seed=0)
>>> result = sb.simulate(trace, sb.Deployment("llama-3.1-8b", gpu="h100"))
>>> result.metrics()["requests"]["finished"]
200

Public names load when they are first used, so that `simbatch --help` need not wait for numpy. This file
itself loads next to nothing: until it has, a Ctrl-C finds nobody who could report it (see `simbatch.cli`).
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

from simbatch.errors import PolicyError, SimbatchError, UsageError
from simbatch.version import __version__ as __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from simbatch import testing
    from simbatch.answers.capacity import Capacity, capacity
    from simbatch.answers.compare import compare
    from simbatch.answers.comparison import Comparison
    from simbatch.answers.cost import Cost, cost
    from simbatch.answers.diagnose.diagnose import diagnose
    from simbatch.answers.diagnose.diagnosis import Diagnosis
    from simbatch.answers.diff import Difference, diff
    from simbatch.answers.explain import Explanation, explain
    from simbatch.answers.fit.fitted import fit
    from simbatch.answers.fit.outcome import Fit
    from simbatch.answers.replications import Replications, replicate
    from simbatch.answers.size import size
    from simbatch.answers.sized import Size
    from simbatch.answers.sweep import sweep
    from simbatch.answers.uncertainty import Uncertainty, uncertainty
    from simbatch.decisions import DecisionLog
    from simbatch.deployment import GPU, Deployment, ModelShape
    from simbatch.memory import Memory, PagedMemory
    from simbatch.request import Request, Sequence
    from simbatch.result import Result
    from simbatch.scheduler import Cause, Continuous, Limits, Plan, Scheduler, VllmV1
    from simbatch.show import plot
    from simbatch.simulate import simulate
    from simbatch.timing import Iteration, LinearTiming, RooflineTiming, Timing
    from simbatch.trace import Trace
    from simbatch.trace.derive import derive
    from simbatch.trace.generate import generate

__all__ = [
    "GPU",
    "Capacity",
    "Cause",
    "Comparison",
    "Continuous",
    "Cost",
    "DecisionLog",
    "Deployment",
    "Diagnosis",
    "Difference",
    "Explanation",
    "Fit",
    "Iteration",
    "Limits",
    "LinearTiming",
    "Memory",
    "ModelShape",
    "PagedMemory",
    "Plan",
    "PolicyError",
    "Replications",
    "Request",
    "Result",
    "RooflineTiming",
    "Scheduler",
    "Sequence",
    "SimbatchError",
    "Size",
    "Timing",
    "Trace",
    "Uncertainty",
    "UsageError",
    "VllmV1",
    "capacity",
    "compare",
    "cost",
    "derive",
    "diagnose",
    "diff",
    "explain",
    "fit",
    "generate",
    "plot",
    "replicate",
    "simulate",
    "size",
    "sweep",
    "testing",
    "uncertainty",
]

_HOMES = {
    "simbatch.answers.capacity": ("Capacity", "capacity"),
    "simbatch.answers.compare": ("compare",),
    "simbatch.answers.comparison": ("Comparison",),
    "simbatch.answers.cost": ("Cost", "cost"),
    "simbatch.answers.diagnose.diagnose": ("diagnose",),
    "simbatch.answers.diagnose.diagnosis": ("Diagnosis",),
    "simbatch.answers.diff": ("Difference", "diff"),
    "simbatch.answers.explain": ("Explanation", "explain"),
    "simbatch.answers.fit.fitted": ("fit",),
    "simbatch.answers.fit.outcome": ("Fit",),
    "simbatch.answers.replications": ("Replications", "replicate"),
    "simbatch.answers.size": ("size",),
    "simbatch.answers.sized": ("Size",),
    "simbatch.answers.sweep": ("sweep",),
    "simbatch.answers.uncertainty": ("Uncertainty", "uncertainty"),
    "simbatch.decisions": ("DecisionLog",),
    "simbatch.deployment": ("GPU", "Deployment", "ModelShape"),
    "simbatch.memory": ("Memory", "PagedMemory"),
    "simbatch.request": ("Request", "Sequence"),
    "simbatch.result": ("Result",),
    "simbatch.scheduler": ("Cause", "Continuous", "Limits", "Plan", "Scheduler", "VllmV1"),
    "simbatch.simulate": ("simulate",),
    "simbatch.timing": ("Iteration", "LinearTiming", "RooflineTiming", "Timing"),
    "simbatch.trace": ("Trace",),
    "simbatch.trace.derive": ("derive",),
    "simbatch.trace.generate": ("generate",),
}
_PACKAGES = {"plot": "simbatch.show.plot", "testing": "simbatch.testing"}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


class _Package(ModuleType):
    """Keeps a public name what it is when a module of the same name is imported (`simbatch.simulate`)."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(_PACKAGES[name])
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
