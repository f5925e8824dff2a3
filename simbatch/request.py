"""A request, and its life in an engine.

A `Request` is what was asked and never changes. A `Sequence` is what became of it so far: how
much of it is in the KV cache, what it has generated, when things happened. While a sequence
decodes, its counts live in the batch it belongs to (see `simbatch.batch`), so that a thousand
iterations cost it nothing; the numbers here are true whenever it is outside the batch.
"""

from __future__ import annotations

from typing import NamedTuple

from simbatch.compiled import mypyc_attr


class Request(NamedTuple):
    """What was asked. Lengths in tokens, times in picoseconds."""

    index: int  # type: ignore[assignment]  # a tuple's method of that name is not used
    """Row in the trace, from 0: the order of submission and the last tie-break."""
    id: str
    arrival_ps: int
    prompt_tokens: int
    output_tokens: int
    """Tokens that the request will generate. A real engine does not know it: see `max_tokens`."""
    max_tokens: int | None = None
    """Most tokens the client allows; None means as many as fit the model's length."""
    priority: int = 0
    """Smaller is more important."""
    segments: tuple[tuple[str, int, int], ...] | None = None
    """What the prompt consists of, as (stream, start, length); None: like nobody else's."""
    group: int = -1
    """Parallel samples of one request have the same number here, and follow each other; -1: there is one."""


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Sequence:
    """A request's life in one engine. Tokens and picoseconds; -1 stands for "not yet".

    Policies may read everything here; a real scheduler could not know `output_tokens` and what
    follows from it, so a policy that uses them is an oracle.
    """

    __slots__ = (
        "arrival_ps",
        "cached_tokens",
        "computed",
        "final_computed",
        "first_scheduled_ps",
        "first_token_ps",
        "group",
        "held",
        "id",
        "index",
        "known",
        "last_token_ps",
        "max_tokens",
        "origin",
        "output_tokens",
        "padding_tokens",
        "preemptions",
        "priority",
        "prompt_tokens",
        "rank",
        "recomputed_tokens",
        "resuming",
        "segments",
    )

    def __init__(self, request: Request, max_model_len: int) -> None:
        index, id_, arrival_ps, prompt_tokens, output_tokens, limit, priority, segments, group = request
        room = max_model_len - prompt_tokens
        self.index = index
        self.id = id_
        self.arrival_ps = arrival_ps
        self.priority = priority
        self.segments = segments
        self.group = group
        self.prompt_tokens = prompt_tokens
        if limit is None or limit > room:
            limit = room
        self.max_tokens = limit
        """Most outputs, the model's length considered: what the engine knows."""
        if output_tokens > limit:
            output_tokens = limit
        self.output_tokens = output_tokens
        """Outputs when it ends: what the engine does not know."""
        self.computed = 0
        """Tokens whose keys and values are in the cache."""
        self.known = prompt_tokens
        """Prompt plus outputs so far: what must be computed before the next token comes."""
        self.final_computed = prompt_tokens + output_tokens - 1
        """Tokens in the cache when it ends: the last token sampled is never fed back."""
        self.padding_tokens = 0
        """Filler in front of the prompt, in a batch padded to its longest one."""
        self.held = 0
        """What its memory holds for it, in the memory's own unit; kept by the memory."""
        self.origin = 0
        """Batch clock at which nothing of it would have been computed; set while it decodes."""
        self.rank = -1
        """Place in the order of admission; a new one at each admission."""
        self.first_scheduled_ps = -1
        self.first_token_ps = -1
        self.last_token_ps = -1
        self.preemptions = 0
        self.cached_tokens = 0
        self.recomputed_tokens = 0
        self.resuming = False
        """Was it preempted, and has not yielded a token since?"""

    @property
    def outputs(self) -> int:
        """Tokens generated so far (true while it is outside the lazy batch)."""
        return self.known - self.prompt_tokens - self.padding_tokens

    def pad(self, tokens: int) -> None:
        """Put *tokens* of filler in front of its prompt; they are computed and kept like others."""
        self.padding_tokens += tokens
        self.known += tokens
        self.final_computed += tokens

    def __repr__(self) -> str:
        return f"<{self.id}: {self.computed} of {self.known} tokens computed, preempted {self.preemptions} times>"
