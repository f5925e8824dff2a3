"""What earlier vLLM releases did otherwise with the memory of a GPU: the table behind `Deployment(vllm_version=...)`.

Read off start-up logs of 0.6 to 0.19 (H100, A100, T4, RTX 3090; `docs/capacity-logs.md` sets each
beside what comes out here) and off the line that releases from 0.21 on print about CUDA graphs. The
rules of the scheduler by release are another matter: `simbatch.versions`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from simbatch.errors import UsageError

MOST_WHOLE_TOKENS = 32768
"""V0 turned chunked prefill on by itself for a longest request above this."""
OLDEST, NEWEST = (0, 2), (0, 33)


@dataclass(frozen=True)
class MemoryRules:
    """One release's accounting. GiB and bytes of one GPU."""

    since: tuple[int, int]
    sampler_bytes_per_logit: int | None
    """At the peak of the sampler; None: logits as they come and three 32-bit arrays."""
    layer_hidden_rows: int
    """Rows of the hidden size that live beside those of the feed-forward at the peak of a layer."""
    non_torch_gib: float
    non_torch_of_several_gib: float
    """On each of two GPUs and more, before 0.05 GiB for each of them."""
    takes_graphs_off: bool
    """Does the estimate for CUDA graphs come off the KV cache?"""
    default_utilization: float
    whole_prompts: bool = False
    """V0: without chunked prefill up to 32,768 tokens, so that the profiling run feeds a whole longest prompt."""
    small_defaults: bool = False
    """256 sequences and 2,048 tokens an iteration on every card."""


RULES = (
    MemoryRules((0, 2), 38, 3, 0.13, 0.55, False, 0.9, whole_prompts=True, small_defaults=True),
    MemoryRules((0, 8), 38, 4, 0.13, 0.55, False, 0.9, small_defaults=True),
    MemoryRules((0, 9), 38, 4, 0.13, 0.55, False, 0.9),
    MemoryRules((0, 17), None, 4, 0.13, 2.0, False, 0.9),
    MemoryRules((0, 18), None, 4, 0.25, 2.0, False, 0.9),
    MemoryRules((0, 21), None, 4, 0.25, 2.0, True, 0.92),
)
"""By the release that began it. Several GPUs: 0.15 and 0.19 were logged, so the step at 0.17 lies between them."""

UNLOGGED = {
    **{(0, minor): (0, 6) for minor in range(3, 6)},
    (0, 16): (0, 15),
    (0, 18): (0, 19),
    **{(0, minor): (0, 33) for minor in range(21, 33)},
}
"""Releases without a start-up log among those compared, and the one that they are taken to be like."""


def find_release(text: str) -> tuple[int, int]:
    """The release that *text*, such as 0.19.0 or v0.8.5.post1, belongs to.

    Raises UsageError for what is no version, and for one before 0.2 or after the newest known.

    >>> find_release("v0.8.5.post1")
    (0, 8)
    """
    match = re.fullmatch(r"v?(\d+)\.(\d+)(?:[.+\-].*|(?:rc|post|dev)\d.*)?", text.strip())
    release = (int(match[1]), int(match[2])) if match else None
    if release is None or not OLDEST <= release <= NEWEST:
        raise UsageError(
            f"the vLLM version {text!r} is not one whose memory accounting is known. "
            f"Give one from {_shown(OLDEST)} to {_shown(NEWEST)}, such as 0.19."
        )
    return release


def memory_rules(release: tuple[int, int]) -> MemoryRules:
    """The accounting in force in *release*."""
    return next(rules for rules in reversed(RULES) if rules.since <= release)


def about_release(release: tuple[int, int]) -> list[str]:
    """A warning where the accounting of *release* is that of a neighbour."""
    if release not in UNLOGGED:
        return []
    like = _shown(UNLOGGED[release])
    return [f"no start-up log of vLLM {_shown(release)} was compared: its memory is reckoned as that of {like}"]


def _shown(release: tuple[int, int]) -> str:
    return f"{release[0]}.{release[1]}"
