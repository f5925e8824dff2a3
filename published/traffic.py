"""From a scenario's table `traffic` to a trace of requests.

Lengths come from a bundled trace (`trace`), from a file of the shared data (``shared:…``), from distributions
(`prompt`, `output`) as `simbatch trace generate` writes them, or from lists of numbers. Two distributions
are added to those: ``exponential:mean=128,max=1536`` (drawn again above the most) and ``geometric:mean=1000``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import simbatch as sb

ROOT = Path(__file__).resolve().parent.parent
_KEYS = (
    "trace", "prompt", "output", "extra_output", "prompt_tokens", "output_tokens", "requests", "for_s", "rate_per_s",
    "burstiness", "samples", "shared_samples", "prefix", "prefix_groups", "drawn",
)  # fmt: skip
_OURS = ("exponential", "geometric")


class Missing(sb.UsageError):
    """The data that a scenario needs are not on this machine."""


def shared_folder() -> Path:
    """Where reference data lie that are no part of the repository."""
    return Path(os.environ.get("SIMBATCH_SHARED", ROOT.parent / "shared")) / "data"


@dataclass(frozen=True)
class Drawn:
    """Exponential or geometric lengths, at least 1; those above *most* are drawn again."""

    name: str
    mean: float
    most: int = 1 << 30

    def draw(self, count: int, random: np.random.Generator) -> NDArray[np.int64]:
        """See `simbatch.trace.lengths.Lengths`."""
        lengths = self._draw(count, random)
        while (over := lengths > self.most).any():
            lengths[over] = self._draw(int(over.sum()), random)
        return lengths

    def _draw(self, count: int, random: np.random.Generator) -> NDArray[np.int64]:
        if self.name == "geometric":
            return random.geometric(1 / self.mean, count)
        return np.maximum(1, np.rint(random.exponential(self.mean, count))).astype(np.int64)


def parse_length(text: str) -> Any:
    """A distribution that `sb.generate` takes: an object of ours, or the text itself."""
    name, _, rest = text.partition(":")
    if name not in _OURS:
        return text
    settings = dict(part.split("=", 1) for part in rest.split(",")) if rest else {}
    if not {"mean"} <= settings.keys() <= {"mean", "max"}:
        raise sb.UsageError(
            f"{text!r} has other settings than mean and max. Write such as exponential:mean=128,max=1536."
        )
    return Drawn(name, float(settings["mean"]), int(settings.get("max", 1 << 30)))


def make_trace(traffic: Mapping[str, Any], seed: int) -> sb.Trace:
    """The requests of one seed. Raises UsageError, and `Missing` where shared data are not there."""
    for key in traffic:
        if key not in _KEYS:
            raise sb.UsageError(f"{key!r} is no part of traffic. Parts are {', '.join(_KEYS)}.")
    rate = traffic.get("rate_per_s")
    trace = _lengths(traffic, _count(traffic, rate), seed)
    if rate is not None:
        trace = trace.at_rate(rate, traffic.get("burstiness", 1.0), seed=seed)
        if "for_s" in traffic:
            assert trace.arrival_ps is not None
            trace = trace.head(int((trace.arrival_ps < traffic["for_s"] * 10**12).sum()))
    if traffic.get("samples", 1) > 1:
        if traffic.get("shared_samples", True):
            return trace.with_samples(traffic["samples"])
        return _repeated(trace, traffic["samples"])
    return trace


def _count(traffic: Mapping[str, Any], rate: float | None) -> int | None:
    """Requests to draw: as many as were asked for, or surely enough for the time; None: all that there are."""
    if "for_s" not in traffic:
        return int(traffic["requests"]) if "requests" in traffic else None
    if rate is None:
        raise sb.UsageError("traffic has for_s and no rate_per_s. Give both, or requests.")
    mean = traffic["for_s"] * rate
    return int(mean + 6 * sqrt(mean) + 20)


def _lengths(traffic: Mapping[str, Any], count: int | None, seed: int) -> sb.Trace:
    if "prompt_tokens" in traffic:
        return sb.Trace.from_lengths(traffic["prompt_tokens"], traffic["output_tokens"])
    if traffic.get("trace"):  # an empty name takes that of the defaults back
        trace = _loaded(traffic["trace"])
        if count is None or not traffic.get("drawn", True):
            return trace if count is None else trace.head(count)
        return trace.sample(count, seed=seed)
    if count is None:
        raise sb.UsageError("traffic has no number of requests. Give requests, or for_s with rate_per_s.")
    prompt, output = (parse_length(str(traffic[key])) for key in ("prompt", "output"))
    groups, prefix = traffic.get("prefix_groups"), traffic.get("prefix")
    shared = None if prefix is None else str(prefix)
    trace = sb.generate(count, prompt, output, prefix_groups=groups, prefix=shared, seed=seed)
    if "extra_output" in traffic:
        more = sb.generate(count, "1", parse_length(str(traffic["extra_output"])), seed=seed + 1000)
        trace = sb.Trace.from_lengths(trace.prompt_tokens, trace.output_tokens + more.output_tokens)
    return trace


def _loaded(name: str) -> sb.Trace:
    if not name.startswith("shared:"):
        return sb.Trace.load(name)
    path = shared_folder() / name.removeprefix("shared:")
    if not path.exists():
        raise Missing(f"{name} needs the reference data. Set SIMBATCH_SHARED to their folder.")
    return sb.Trace.load(path)


def _repeated(trace: sb.Trace, times: int) -> sb.Trace:
    """The samples of a request as requests of their own, which share nothing."""
    columns = {name: getattr(trace, name) for name in ("arrival_ps", "prompt_tokens", "output_tokens")}
    return sb.Trace.from_columns(
        {key: np.repeat(column, times) for key, column in columns.items() if column is not None}
    )
