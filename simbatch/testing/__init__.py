"""Contracts that run: check your own policy, and replay the recorded decisions of a real scheduler."""

from simbatch.testing.contracts import check_memory, check_scheduler
from simbatch.testing.golden import replay_case, replay_golden
from simbatch.testing.timings import check_timing

__all__ = ["check_memory", "check_scheduler", "check_timing", "replay_case", "replay_golden"]
