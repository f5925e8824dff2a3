"""What earlier vLLM V1 releases did differently: bundles of options for `--vllm-version`.

Read from the sources of both releases and run against each other on recorded requests: under first
come, first served without prefix caching, the options alone make 0.33 decide as 0.11 did. The rest
(priority victims, released blocks, the cap for a lone prompt) is in `VllmV1Of011` and the memories.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simbatch.errors import unknown

NEWEST = "0.33"
VERSIONS: Mapping[str, Mapping[str, Any]] = {
    "0.11": {
        "scheduler_reserve_full_isl": False,
        "watermark": 0.0,
        "async_scheduling": False,
        "gpu_memory_utilization": 0.9,
    },
    NEWEST: {},
}
"""Options in which a release differs from the newest known."""


def find_version(text: str) -> str:
    """The release that *text*, such as 0.11.0 or v0.33, belongs to. Raises UsageError for one not known."""
    number = ".".join(text.removeprefix("v").split(".")[:2])
    if number not in VERSIONS:
        raise unknown("vLLM version", text, VERSIONS, "Only the rules of these are known exactly.")
    return number
