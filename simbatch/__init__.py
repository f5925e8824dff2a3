"""What batching and KV-cache memory management are worth on your traffic, before you rent the GPU.

>>> import simbatch as sb
>>> trace = sb.Trace.load("sharegpt").head(200).at_rate(20, seed=0)
>>> result = sb.simulate(trace, sb.Deployment("llama-3.1-8b", gpu="h100"))
>>> result.metrics()["requests"]["finished"]
200
"""

from simbatch import testing
from simbatch.decisions import DecisionLog
from simbatch.deployment import GPU, Deployment, ModelShape
from simbatch.errors import PolicyError, SimbatchError, UsageError
from simbatch.memory import Memory, PagedMemory
from simbatch.request import Request, Sequence
from simbatch.result import Result
from simbatch.scheduler import Cause, Continuous, Limits, Plan, Scheduler, VllmV1
from simbatch.simulate import simulate
from simbatch.timing import Iteration, LinearTiming, RooflineTiming, Timing
from simbatch.trace import Trace

__all__ = [
    "GPU",
    "Cause",
    "Continuous",
    "DecisionLog",
    "Deployment",
    "Iteration",
    "Limits",
    "LinearTiming",
    "Memory",
    "ModelShape",
    "PagedMemory",
    "Plan",
    "PolicyError",
    "Request",
    "Result",
    "RooflineTiming",
    "Scheduler",
    "Sequence",
    "SimbatchError",
    "Timing",
    "Trace",
    "UsageError",
    "VllmV1",
    "simulate",
    "testing",
]
