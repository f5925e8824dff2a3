"""Pictures of a result: each function takes a result (or several) and an axis, and returns the axis.

Some take another answer instead: what `sb.size`, `sb.sweep` or `sb.fit` returned.
One question per figure, units on every axis, limits drawn and named, colours that colour-blind
readers can tell apart. The style is applied to the figure alone and never globally.
"""

from simbatch.show.plot.dollars import capacity_per_dollar
from simbatch.show.plot.fitted import predicted_against_measured
from simbatch.show.plot.latency import latency_cdf
from simbatch.show.plot.load import batch_and_queue
from simbatch.show.plot.memory import kv_memory
from simbatch.show.plot.rates import goodput, rate_latency
from simbatch.show.plot.reasons import wait_reasons
from simbatch.show.plot.requests import timeline
from simbatch.show.plot.roof import roofline
from simbatch.show.plot.space import address_space

__all__ = [
    "address_space",
    "batch_and_queue",
    "capacity_per_dollar",
    "goodput",
    "kv_memory",
    "latency_cdf",
    "predicted_against_measured",
    "rate_latency",
    "roofline",
    "timeline",
    "wait_reasons",
]
