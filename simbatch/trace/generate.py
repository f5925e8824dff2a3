"""Traces made up: lengths from distributions or from a recorded trace, shared prefixes, sessions, arrivals.

One seed makes all of it, each part with random numbers of its own, so that another prompt
distribution does not move an arrival.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simbatch.errors import UsageError
from simbatch.trace.arrivals import Arrivals, Renewal
from simbatch.trace.columns import MAX_TOKENS, Ints
from simbatch.trace.draws import generator
from simbatch.trace.identity import Segment, own
from simbatch.trace.lengths import Fixed, Lengths
from simbatch.trace.redraw import redrawable
from simbatch.trace.specs import parse_arrivals, parse_lengths
from simbatch.trace.trace import Trace
from simbatch.units import PS_PER_S

_ONE_TURN = Fixed(1)


@redrawable
def generate(
    requests: int,
    prompt: Lengths | str | None = None,
    output: Lengths | str | None = None,
    *,
    lengths_of: Trace | None = None,
    arrivals: Arrivals | str | None = None,
    rate_per_s: float | None = None,
    prefix_groups: int | None = None,
    prefix: Lengths | str | None = None,
    zipf: float = 0.0,
    turns: Lengths | str = _ONE_TURN,
    think_s: float = 0.0,
    seed: int = 0,
) -> Trace:
    """A trace of *requests* requests.

    Parameters
    ----------
    prompt, output
        Distributions of lengths in tokens, as objects or as text such as ``lognormal:median=200,p99=4000``.
    lengths_of
        Draw whole rows of this trace instead, with replacement: prompt and output stay together.
    arrivals, rate_per_s
        An arrival process (object or text), or a rate of Poisson arrivals. Without either there are no times.
    prefix_groups, prefix, zipf
        So many groups of requests that begin alike: *prefix* tokens (of each group) come before the prompt. Group
        number k is drawn with weight 1/k^zipf; 0 makes all equally likely.
    turns, think_s
        Sessions of so many turns, with an exponential time to think in between, of that mean. Each turn's prompt
        is the whole history and the drawn prompt; arrivals are those of the first turns.

    Raises UsageError for what contradicts itself.
    """
    if requests < 1:
        raise UsageError(f"{requests} requests were asked for, but a trace has at least 1. Ask for more.")
    new, outputs = _lengths(requests, prompt, output, lengths_of, seed)
    groups, shared = _prefixes(requests, prefix_groups, prefix, zipf, seed)
    asked, turns = turns, parse_lengths(turns) if isinstance(turns, str) else turns
    columns: dict[str, Any] = {"output_tokens": outputs}
    if turns == _ONE_TURN:
        columns["prompt_tokens"] = new + shared
        if prefix_groups is not None:
            columns["prefix_group"] = [f"g{group}" for group in groups.tolist()]
            columns["prefix_tokens"] = shared
    else:
        columns |= _sessions(turns, new, outputs, groups if prefix_groups is not None else None, shared, seed)
        random = generator(seed, "think")
        columns["think_ps"] = np.rint(random.exponential(think_s, requests) * PS_PER_S).astype(np.int64)
    longest = int(np.max(columns["prompt_tokens"]))
    if longest > MAX_TOKENS:
        raise UsageError(
            f"a prompt has {longest} tokens, but the most that can be simulated is {MAX_TOKENS}. Ask for less."
        )
    about = {
        "requests": requests,
        "prompt": prompt,
        "output": output,
        "lengths_of": lengths_of and f"{lengths_of.name} (sha256 {lengths_of.sha256[:12]})",
        "prefix_groups": prefix_groups,
        "prefix": prefix,
        "zipf": zipf,
        "turns": None if turns == _ONE_TURN else asked,
        "think_s": think_s,
        "seed": seed,
    }
    rule = ", ".join(f"{name}={value}" for name, value in about.items() if value not in (None, 0, 0.0))
    trace = Trace.from_columns(columns, name="generated", provenance=(f"rule: made up by simbatch: {rule}",))
    if arrivals is None and rate_per_s is not None:
        arrivals = Renewal(rate_per_s)
    if isinstance(arrivals, str):
        arrivals = parse_arrivals(arrivals, rate_per_s)
    return trace if arrivals is None else trace.arriving(arrivals, seed)


def _lengths(
    requests: int, prompt: Lengths | str | None, output: Lengths | str | None, lengths_of: Trace | None, seed: int
) -> tuple[Ints, Ints]:
    random = generator(seed, "lengths")
    if lengths_of is not None:
        if prompt is not None or output is not None:
            raise UsageError("lengths of a trace and distributions of lengths were given. Leave one of the two out.")
        rows = random.integers(0, len(lengths_of), requests)
        return lengths_of.prompt_tokens[rows], lengths_of.output_tokens[rows]
    if prompt is None or output is None:
        raise UsageError("lengths are missing. Give a prompt and an output distribution, or a trace to draw them from.")
    drawn = (parse_lengths(part) if isinstance(part, str) else part for part in (prompt, output))
    prompts, outputs = (part.draw(requests, random) for part in drawn)
    return prompts, outputs


def _prefixes(
    requests: int, groups: int | None, prefix: Lengths | str | None, zipf: float, seed: int
) -> tuple[Ints, Ints]:
    """The group of each request, and the tokens that it shares with it."""
    if groups is None or prefix is None:
        if groups is not None or prefix is not None:
            raise UsageError("shared prefixes need a number of groups and a length. Give both, or neither.")
        return np.zeros(requests, dtype=np.int64), np.zeros(requests, dtype=np.int64)
    if groups < 1 or not 0 <= zipf < 100:
        raise UsageError(
            f"there are {groups} prefix groups with a Zipf exponent of {zipf:g}. Give at least 1 group, and 0 or more."
        )
    random = generator(seed, "prefix")
    prefix = parse_lengths(prefix) if isinstance(prefix, str) else prefix
    sizes = prefix.draw(groups, random)
    weights = np.arange(1, groups + 1, dtype=np.float64) ** -zipf
    chosen = random.choice(groups, requests, p=weights / weights.sum())
    return chosen, sizes[chosen]


def _sessions(
    turns: Lengths, new: Ints, outputs: Ints, groups: Ints | None, shared: Ints, seed: int
) -> dict[str, list[Any]]:
    """Rows of conversations: their prompts with the history, who they belong to, what they quote."""
    random = generator(seed, "turns")
    columns: dict[str, list[Any]] = {name: [] for name in ("prompt_tokens", "session", "turn", "id", "segments")}
    row, session = 0, 0
    while row < len(new):
        count = min(int(turns.draw(1, random)[0]), len(new) - row)
        history: list[Segment] = []
        if groups is not None:
            history.append((f"g:g{groups[row]}", 0, int(shared[row])))
        for turn in range(count):
            id = f"{session}.{turn}"
            history.append(own(id, int(new[row])))
            values = (sum(length for _, _, length in history), str(session), turn, id, tuple(history))
            for name, value in zip(columns, values, strict=True):
                columns[name].append(value)
            history.append((f"o{id}", 0, int(outputs[row])))
            row += 1
        session += 1
    return columns
