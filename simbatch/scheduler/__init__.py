"""Who gets what in an iteration: one policy per file, each short enough to read as its rules."""

from simbatch.scheduler.base import Limits, Scheduler
from simbatch.scheduler.continuous import Continuous
from simbatch.scheduler.plan import Cause, Plan
from simbatch.scheduler.vllm_v1 import VllmV1

__all__ = ["Cause", "Continuous", "Limits", "Plan", "Scheduler", "VllmV1"]
