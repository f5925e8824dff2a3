"""Request traces: reading, writing, changing the times of, and handing out what was asked.

`Trace` is all that most readers need. Files come in through `files` (in our own columns), bundled
ones by name through `bundled`; arrival processes live in `arrivals`.
"""

from simbatch.trace.bundled import bundled_traces
from simbatch.trace.load import list_traces
from simbatch.trace.trace import Trace

__all__ = ["Trace", "bundled_traces", "list_traces"]
