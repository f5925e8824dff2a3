"""Parallel samples: a request that asks for n outputs becomes n rows that share their prompt.

Row k of request R is called "R/k". Engines see which rows belong together (`Request.group`), and
prompts are equal token by token, so a prefix cache finds them alike. All samples of a request are
as long as its row says: a trace knows one length.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from simbatch.trace.identity import own

if TYPE_CHECKING:
    from simbatch.trace.trace import Trace


def one_row_per_sample(trace: Trace) -> Trace:
    """*trace* with a row for each sample; itself where nobody asks for more than one."""
    if trace.n is None or int(trace.n.max()) <= 1:
        return trace
    parents = np.repeat(np.arange(len(trace)), trace.n)
    rows = parents.tolist()
    seen: dict[int, int] = {}
    ids, segments = [], []
    for row in rows:
        k = seen[row] = seen.get(row, -1) + 1
        id = str(row) if trace.ids is None else trace.ids[row]
        ids.append(f"{id}/{k}" if trace.n[row] > 1 else id)
        segments.append(trace.segments(row) or (own(id, int(trace.prompt_tokens[row])),))
    columns = {
        name: getattr(trace, name)[parents]
        for name in ("prompt_tokens", "output_tokens", "arrival_ps", "max_tokens", "priority", "turn", "think_ps")
        if getattr(trace, name) is not None
    }
    return replace(
        trace,
        **columns,
        n=None,
        ids=tuple(ids),
        session=None if trace.session is None else tuple(trace.session[row] for row in rows),
        prefix={"segments": tuple(segments)},
        sample_of=np.where(trace.n[parents] > 1, parents, -1),
    )
