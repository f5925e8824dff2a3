"""What memory takes in a stretch, weighed by column, against adding it up iteration by iteration."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simbatch as sb
from simbatch.growth import Growth
from simbatch.progression import span
from simbatch.rows import STRETCH

STRETCHES = st.lists(
    st.tuples(
        st.integers(2, 40),  # iterations
        st.sampled_from([1, 7, 10**10, 10**17]),  # the first lasts
        st.integers(0, 10**8),  # and each next one longer by
        st.lists(st.integers(0, 300), max_size=5),  # blocks due, over and over
        st.lists(st.tuples(st.integers(1, 39), st.integers(1, 15)), max_size=3),  # what is wasted, and when
    ),
    min_size=1,
    max_size=6,
)


@given(STRETCHES, st.sampled_from([1, 16]))
def test_equal_to_adding_up(stretches: list[tuple[int, int, int, list[int], list[tuple[int, int]]]], unit: int) -> None:
    growth = Growth()
    expected = {name: [[0, 0] for _ in stretches] for name in ("held", "internal")}
    for number, (iterations, first, increment, due, wasted) in enumerate(stretches):
        growth.stretch = number
        whole = span(iterations, first, increment)

        def weigh(name: str, after: int, tokens: int, number: int = number, whole: int = whole) -> None:
            _, first, increment, _, _ = stretches[number]
            expected[name][number][0] += tokens
            expected[name][number][1] += tokens * (whole - span(after, first, increment))

        if due:
            growth.held(due[: iterations - 1], unit)
            for after in range(1, iterations):
                weigh("held", after, due[(after - 1) % len(due)] * unit)
        for after, tokens in wasted:
            growth.internal(min(after, iterations - 1), tokens)
            weigh("internal", min(after, iterations - 1), tokens)
    columns = [np.array(column, dtype=np.int64) for column in list(zip(*stretches, strict=True))[:3]]
    took = np.array([span(n, first, increment) for n, first, increment, _, _ in stretches])
    found = growth.put_together(columns[0], took, columns[1], columns[2])
    for name, (numbers, tokens, integrals) in found.items():
        sums = [[0, 0] for _ in stretches]
        for number, some, integral in zip(numbers.tolist(), tokens.tolist(), integrals.tolist(), strict=True):
            sums[number][0] += some
            sums[number][1] += integral
        assert sums == expected[name]
    assert all(
        not column.size for told in growth.put_together(*columns[:1], took, *columns[1:]).values() for column in told
    )


def test_a_long_stretch_of_many_turns() -> None:
    """Sums that need more than 64 bits."""
    growth, due, iterations, first, increment = Growth(), [3, 0, 250, 1], 10**6, 10**10, 10**5
    growth.held(due, 16)
    numbers = np.array([iterations]), np.array([span(iterations, first, increment)]), np.array([first])
    _, tokens, integral = growth.put_together(*numbers, np.array([increment]))["held"]
    takings = [due[j % 4] * 16 for j in range(iterations - 1)]
    assert tokens.tolist() == [sum(takings)]
    whole = span(iterations, first, increment)
    assert integral.tolist() == [sum(n * (whole - span(j, first, increment)) for j, n in enumerate(takings, 1))]


def test_rows_are_the_same_however_little_is_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = sb.Trace.load("sharegpt").sample(60, 0).at_rate(5, seed=0)
    options: dict[str, Any] = {"timing": "linear:base_ms=10,context_ns=5", "kv_tokens": 20_000, "max_model_len": 4096}
    usual = sb.simulate(trace, **options).facts
    monkeypatch.setattr("simbatch.growth._MOST", 3)
    monkeypatch.setattr("simbatch.rows._MOST", 5 * len(STRETCH))
    often = sb.simulate(trace, **options).facts
    for name, column in usual.rows.items():
        assert often.rows[name].tolist() == column.tolist(), name
    assert often.peak_held_tokens == usual.peak_held_tokens
