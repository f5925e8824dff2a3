"""Block tables in step with the simulator's own paged memory: same decisions, and every block in one table at most."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simbatch as sb
from simbatch.memory import PagedMemory
from simbatch.timing import LinearTiming
from validation.tables import BlockTables

SYSTEMS = ("vllm", "vllm-v0", "sarathi")


class Checked(BlockTables):
    """Recounts its tables whenever somebody takes, grows or leaves."""

    def _agree(self) -> None:
        super()._agree()
        handed = [block for table in self.tables.values() for block in table]
        assert sorted(handed + self._free_ids) == list(range(self.num_blocks))


def run(system: str, memory: Any, step: bool, lengths: list[tuple[int, int, int]], blocks: int) -> sb.Result:
    trace = sb.Trace.from_columns(
        arrival_s=sorted(at for at, _, _ in lengths),
        prompt_tokens=[p for _, p, _ in lengths],
        output_tokens=[o for _, _, o in lengths],
    )
    return sb.simulate(
        trace,
        system=system,
        memory=memory,
        timing=LinearTiming(base_ms=400, token_us=100_000),
        step=step,
        kv_tokens=blocks * 4,
        block_size=4,
        max_model_len=24,
        max_num_seqs=5,
        max_num_batched_tokens=24 if system != "sarathi" else 7,
        enable_prefix_caching=False,
        async_scheduling=False,
    )


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(SYSTEMS),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 6), st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=8),
    st.integers(7, 12),
)
def test_tables_change_no_decision_and_lose_no_block(
    system: str, step: bool, lengths: list[tuple[int, int, int]], blocks: int
) -> None:
    plain = run(system, PagedMemory(blocks, 4), step, lengths, blocks)
    tabled = run(system, Checked(blocks, 4), step, lengths, blocks)
    assert plain.metrics() | {"simulation": 0} == tabled.metrics() | {"simulation": 0}
    assert plain.requests.equals(tabled.requests)


def test_a_table_grows_block_by_block_and_gives_all_back() -> None:
    memory = BlockTables(5, 4)
    from simbatch.request import Request, Sequence

    one, two = (Sequence(Request(i, str(i), 0, 5, 9), 100) for i in range(2))
    assert memory.take(one, 5)
    assert memory.place(one) == [0, 1]
    assert memory.take(two, 4)
    assert memory.place(two) == [2]
    assert not memory.take(two, 17)
    assert memory.place(two) == [2]
    memory.release(one)
    assert memory.place(one) == []
    assert memory.take(two, 12)
    assert memory.place(two) == [2, 0, 1]


@pytest.mark.parametrize("step", [True, False])
def test_memory_is_tight_in_these_worlds(step: bool) -> None:
    """Otherwise the property above would say little: here preemption happens."""
    result = run("vllm", Checked(7, 4), step, [(0, 9, 12), (0, 9, 12), (0, 9, 12)], 7)
    assert result.metrics()["requests"]["preemptions"] > 0
