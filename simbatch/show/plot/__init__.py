"""Pictures of a result: each function takes a result (or several) and an axis, and returns the axis.

One question per figure, units on every axis, limits drawn and named, colours that colour-blind
readers can tell apart. The style is applied to the figure alone and never globally.
"""

from simbatch.show.plot.latency import latency_cdf
from simbatch.show.plot.load import batch_and_queue
from simbatch.show.plot.memory import kv_memory
from simbatch.show.plot.requests import timeline
from simbatch.show.plot.roof import roofline

__all__ = ["batch_and_queue", "kv_memory", "latency_cdf", "roofline", "timeline"]
