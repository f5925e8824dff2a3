"""Formats of trace files that are told by what they hold: one file per family, one list of all.

A format says what its columns are called, in which unit its times are and what else its rows mean.
Nothing is told from a file's name. What is in no list is read with `--columns`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from simbatch.trace.formats.base import OURS, Format
from simbatch.trace.formats.hashed import AIPERF_INPUT, BAILIAN, MOONCAKE, RAGPULSE
from simbatch.trace.formats.records import AIPERF_RECORDS
from simbatch.trace.formats.tables import AZURE, BURSTGPT, LLMSERVINGSIM, SPLITWISE, VIDUR

__all__ = ["FORMATS", "OURS", "Format", "recognise"]

FORMATS = (
    OURS,
    AZURE,
    BURSTGPT,
    VIDUR,
    LLMSERVINGSIM,
    SPLITWISE,
    RAGPULSE,
    BAILIAN,
    AIPERF_INPUT,
    MOONCAKE,
    AIPERF_RECORDS,
)
"""The first that fits is the one: those that ask for more stand before those that ask for less."""


def recognise(names: Collection[str], first: Mapping[str, Any]) -> Format | None:
    """The format of a file with columns or keys *names*, whose first object (jsonl only) is *first*."""
    return next((found for found in FORMATS if found.fits(names, first)), None)
