"""How long an iteration takes: one member of the family per file.

A timing answers with a progression: the first iteration's duration, by how much each following
one is longer while the same sequences decode, and for how many iterations that holds. The engine
sums and inverts progressions in integers, so running ahead and stepping agree to the last bit.
"""

from simbatch.timing.base import FOREVER, Iteration, Timing
from simbatch.timing.linear import LinearTiming
from simbatch.timing.roofline import RooflineTiming

__all__ = ["FOREVER", "Iteration", "LinearTiming", "RooflineTiming", "Timing"]
