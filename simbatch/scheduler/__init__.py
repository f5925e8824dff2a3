"""Who gets what in an iteration: one policy per file, each short enough to read as its rules."""

from simbatch.scheduler.base import Limits, Scheduler
from simbatch.scheduler.continuous import Continuous
from simbatch.scheduler.naive import Naive
from simbatch.scheduler.orca import Orca
from simbatch.scheduler.plan import Cause, Plan
from simbatch.scheduler.sarathi import Sarathi
from simbatch.scheduler.static import Static
from simbatch.scheduler.vllm_v0 import VllmV0
from simbatch.scheduler.vllm_v0_groups import VllmV0Groups
from simbatch.scheduler.vllm_v1 import VllmV1, VllmV1Of011

__all__ = [
    "Cause",
    "Continuous",
    "Limits",
    "Naive",
    "Orca",
    "Plan",
    "Sarathi",
    "Scheduler",
    "Static",
    "VllmV0",
    "VllmV0Groups",
    "VllmV1",
    "VllmV1Of011",
]
