"""Inter-token latency from rows equals what a list of every gap would give, to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from simbatch.errors import SimbatchError
from simbatch.facts import Facts, facts_from
from simbatch.itl import gaps_of, itl
from simbatch.stats import FIGURES, PERCENTILES, exact_dot
from simbatch.units import PS_PER_S

ROW = st.tuples(
    st.integers(1, 40),  # iterations
    st.one_of(st.integers(1, 12), st.integers(1, 10**13)),  # first
    st.one_of(st.integers(-3, 3), st.integers(-(10**11), 10**11)),  # increment
    st.integers(0, 5),  # gaps per iteration
).filter(lambda row: row[1] + (row[0] - 1) * row[2] >= 1)


def run(rows: list[tuple[int, int, int, int]], extra: list[tuple[int, int]] = ()) -> Facts:  # type: ignore[assignment]
    columns = np.array(rows, dtype=np.int64).reshape(-1, 4)
    names = ("iterations", "first_ps", "increment_ps", "gaps")
    return facts_from(
        {},
        {"start_ps": np.zeros(len(columns)), **{name: columns[:, i] for i, name in enumerate(names)}},
        extra_gaps=[(0, gap, count) for gap, count in extra],
    )


def listed(rows: list[tuple[int, int, int, int]]) -> list[int]:
    """Every gap of the rows, one by one."""
    return [first + j * step for k, first, step, gaps in rows for j in range(k) for _ in range(gaps)]


def assert_like_list(facts: Facts, every: list[int]) -> None:
    gaps = gaps_of(facts)
    assert gaps.count == len(every)
    assert gaps.total_ps == sum(every)
    values = np.array(every, dtype=np.int64)
    asked = [0, 0.1, *PERCENTILES, 99.9, 100]
    assert gaps.percentiles_ps(asked) == np.percentile(values, asked).tolist()
    found = itl(facts)
    assert found["max"] == max(every) / PS_PER_S
    assert found["mean"] == sum(every) / len(every) / PS_PER_S
    assert [found[f"p{p}"] for p in PERCENTILES] == (np.percentile(values, PERCENTILES) / PS_PER_S).tolist()


@given(st.lists(ROW, min_size=1, max_size=12))
@settings(deadline=None)
def test_rows_alone(rows: list[tuple[int, int, int, int]]) -> None:
    every = listed(rows)
    assume(every)
    assert_like_list(run(rows), every)


@given(
    st.lists(ROW, max_size=8),
    st.lists(st.tuples(st.integers(1, 10**13), st.integers(1, 4)), max_size=6),
    st.data(),
)
@settings(deadline=None)
def test_pauses_and_corrections(
    rows: list[tuple[int, int, int, int]], pauses: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Pauses add gaps; a correction takes back gaps that a row counts, down to none of a value."""
    every = listed(rows)
    cancelled = data.draw(st.lists(st.sampled_from(range(len(every))), unique=True, max_size=10)) if every else []
    left = [gap for i, gap in enumerate(every) if i not in set(cancelled)]
    left += [gap for gap, count in pauses for _ in range(count)]
    assume(left)
    corrections = [(every[i], -1) for i in cancelled]
    assert_like_list(run(rows, pauses + corrections), left)


def test_a_gap_that_is_taken_back_leaves_no_trace() -> None:
    """Ten iterations of 5 ps, the last one of which nobody should count, and a pause of 70 ps instead."""
    facts = run([(10, 5, 0, 1)], [(5, -10), (70, 1)])
    assert itl(facts) == dict.fromkeys(FIGURES, 70 / PS_PER_S)


def test_no_gaps() -> None:
    assert itl(run([(4, 5, 1, 0)])) == dict.fromkeys(FIGURES)
    assert itl(run([])) == dict.fromkeys(FIGURES)
    assert itl(run([(2, 5, 1, 1)], [(5, -1), (6, -1)])) == dict.fromkeys(FIGURES)


def test_more_taken_back_than_there_is() -> None:
    with pytest.raises(SimbatchError, match=r"cancels more inter-token gaps than its rows hold: -1 are left"):
        itl(run([(1, 5, 0, 1)], [(5, -2)]))


def test_days_of_iterations() -> None:
    """A hundred million iterations of a thousand sequences: products leave 64 bits, results do not."""
    k, first, gaps = 10**8, 10**10, 1024
    facts = run([(k, first, 1, gaps), (k, first + k, -1, gaps)])
    found = gaps_of(facts)
    assert found.count == 2 * k * gaps
    assert found.total_ps == gaps * (2 * k * first + k * (k - 1) // 2 + k * k - k * (k - 1) // 2)
    # Both rows together hold first, first + 1, first + 1, ..., first + k: symmetric about the middle.
    assert found.percentiles_ps([0, 50, 100]) == [first, first + k / 2, first + k]


@given(st.lists(st.tuples(st.integers(-(2**40), 2**40), st.integers(-(2**63), 2**63 - 1)), max_size=20))
def test_exact_dot(pairs: list[tuple[int, int]]) -> None:
    counts: Any = np.array([count for count, _ in pairs], dtype=np.int64)
    values: Any = np.array([value for _, value in pairs], dtype=np.int64)
    assert exact_dot(counts, values) == sum(count * value for count, value in pairs)
