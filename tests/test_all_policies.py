"""Every scheduler on every memory: running ahead equals stepping to the last bit, and nothing leaks.

Sensible pairs are the named systems; here all pairs have to hold, because any part of a system can
be replaced. Worlds are tiny, times coarse and memory tight, so that arrivals tie with each other
and with the ends of iterations, batches run out of room, and holes matter. Stepping recounts batch
and memory after every plan and every iteration.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simbatch as sb
from simbatch.memory import ContiguousMemory
from simbatch.memory.placement import PLACEMENTS
from simbatch.memory.reserve import RESERVES
from simbatch.scheduler import Naive, Orca, Sarathi, Static, VllmV0
from simbatch.systems import SYSTEMS
from simbatch.testing.contracts import World, fault

MAX_MODEL_LEN = 64
"""Of every `World`."""

SCHEDULERS: dict[str, Callable[[], sb.Scheduler]] = {
    "naive": Naive,
    "static": Static,
    "static of 3": lambda: Static(3),
    "orca": Orca,
    "vllm-v0": VllmV0,
    "vllm-v0 swap": lambda: VllmV0("swap"),
    "sarathi": Sarathi,
    "sarathi swap": lambda: Sarathi("swap"),
    "vllm": sb.VllmV1,
    "shortest first": lambda: sb.Continuous(order=lambda sequence: sequence.prompt_tokens + sequence.output_tokens),
}


def contiguous(reserve: str, placement: str) -> Callable[[int, int], sb.Memory]:
    """As large as the blocks of the world and a little more, so that the longest reservation always has a place."""
    more = 48 if reserve in ("max", "limit") else 16
    return lambda blocks, size: ContiguousMemory(blocks * size + more, reserve, placement, MAX_MODEL_LEN)


MEMORIES: dict[str, Callable[[int, int], sb.Memory]] = {
    "paged": sb.PagedMemory,
    **{
        f"{reserve} {placement}": contiguous(reserve, placement)
        for reserve in RESERVES
        for placement in sorted(PLACEMENTS)
    },
}

WORLDS = st.builds(
    lambda requests, block_size, tokens, seqs, budget, chunked, gate, watermark: World(
        requests=tuple(sorted(requests)),
        num_blocks=tokens // block_size,
        block_size=block_size,
        max_num_seqs=seqs,
        max_num_batched_tokens=budget,
        enable_chunked_prefill=chunked,
        scheduler_reserve_full_isl=gate,
        watermark=watermark,
    ),
    st.lists(
        st.tuples(st.sampled_from([0, 0, 0, 2, 3, 6, 9, 10, 20, 50]), st.integers(1, 14), st.integers(1, 14)),
        min_size=1,
        max_size=9,
    ),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([16, 28, 32, 48, 120]),
    st.sampled_from([2, 3, 8]),
    st.sampled_from([8, 16, 64]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0.0, 0.25]),
)


def test_every_built_in_part_is_here() -> None:
    assert {system.scheduler for system in SYSTEMS.values()} <= SCHEDULERS.keys()
    assert len(MEMORIES) == 1 + len(RESERVES) * len(PLACEMENTS) == 13


def test_every_system_is_described() -> None:
    page = (Path(__file__).resolve().parent.parent / "docs" / "systems.md").read_text(encoding="utf-8")
    assert re.findall(r"^## `(.*)`", page, re.MULTILINE) == list(SYSTEMS)


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("scheduler", SCHEDULERS)
@settings(max_examples=15, deadline=None)
@given(world=WORLDS)
def test_equal_in_every_world(scheduler: str, memory: str, world: World) -> None:
    assert fault(world, SCHEDULERS[scheduler], MEMORIES[memory]) is None
