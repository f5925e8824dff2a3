"""Contracts that run: check your own policy, and replay the recorded decisions of a real scheduler."""

from simbatch.testing.contracts import check_scheduler
from simbatch.testing.golden import replay_case, replay_golden

__all__ = ["check_scheduler", "replay_case", "replay_golden"]
