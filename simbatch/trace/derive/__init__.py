"""From collections of conversations to lengths: texts go in, a trace without any text comes out.

`derive` reads record by record, counts tokens and forgets the text, so memory does not grow with the
file. Which messages make a request is a rule with a name; the trace says which one it was.
"""

from simbatch.trace.derive.derive import Derivation, derive

__all__ = ["Derivation", "derive"]
