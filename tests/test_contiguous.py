"""Contiguous memory: what is reserved, and what is wasted and how."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simbatch.batch import Batch
from simbatch.errors import PolicyError, UsageError
from simbatch.growth import Growth
from simbatch.memory import ContiguousMemory, Memory
from simbatch.memory.placement import PLACEMENTS
from simbatch.request import Request, Sequence

MAX = 2048


def sequence(prompt: int, output: int, limit: int | None = None, index: int = 0, max_len: int = MAX) -> Sequence:
    return Sequence(Request(index, f"r{index}", 0, prompt, output, limit), max_len)


def seat(memory: ContiguousMemory, batch: Batch, *sequences: Sequence) -> None:
    for one in sequences:
        assert memory.take(one, one.known)
        batch.admit(one)


# -- reservations ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "reserved"),
    [("max", 2048), ("pow2", 100 + 64), ("oracle", 100 + 33), ("limit", 100 + 500), (lambda s: 700, 700)],
)
def test_what_a_rule_reserves(rule: Any, reserved: int) -> None:
    memory, batch, one = ContiguousMemory(4096, rule, "first-fit"), Batch(), sequence(100, 33, 500)
    seat(memory, batch, one)
    assert one.held == memory.held_tokens == reserved
    assert memory.internal_tokens == reserved - (100 + 33 - 1)  # the last token is never fed back
    memory.check(batch)


def test_pow2_is_at_most_the_models_length_and_exact_for_powers() -> None:
    memory = ContiguousMemory(4096, "pow2")
    assert memory.reservation(sequence(1000, 1025)) == 2048
    assert memory.reservation(sequence(1000, 512)) == 1512
    assert memory.reservation(sequence(1000, 1)) == 1001


def test_without_a_limit_the_engine_knows_the_models_length() -> None:
    assert ContiguousMemory(4096, "limit").reservation(sequence(100, 5)) == 2048


@pytest.mark.parametrize(
    ("rule", "reserved"), [("max", 2048), ("pow2", 124), ("oracle", 93), ("limit", 210), (lambda s: 300, 310)]
)
def test_padding_is_on_top_but_for_max(rule: Any, reserved: int) -> None:
    memory, batch, one = ContiguousMemory(4096, rule, "best-fit"), Batch(), sequence(50, 33, 150)
    one.pad(10)
    seat(memory, batch, one)
    assert one.held == reserved
    assert memory.internal_tokens == reserved - (50 + 32)
    memory.check(batch)


def test_a_padded_sequence_that_outgrows_the_maximum_holds_what_it_needs() -> None:
    memory, one = ContiguousMemory(8192, "max"), sequence(48, 2000)
    one.pad(952)
    assert memory.take(one, one.known)
    assert (one.held, memory.rounding_tokens) == (3000, 4096 - 3000)


def test_a_rule_that_reserves_too_little_is_named() -> None:
    def hopeful(one: Sequence) -> int:
        return one.prompt_tokens + 10

    memory = ContiguousMemory(4096, hopeful)
    assert memory.fits(sequence(5, 11))
    with pytest.raises(PolicyError, match=r"hopeful answers 15 tokens for r0, which will hold 16"):
        memory.fits(sequence(5, 12))
    with pytest.raises(PolicyError, match=r"answers 15\.5 for r0"):
        ContiguousMemory(4096, lambda one: 15.5).fits(sequence(5, 3))  # type: ignore[arg-type, return-value]


def test_wrong_use_says_what_would_work() -> None:
    with pytest.raises(UsageError, match=r"unknown reservation rule 'orcale'\. Did you mean oracle"):
        ContiguousMemory(100, "orcale")
    with pytest.raises(UsageError, match="max_model_len is 0"):
        ContiguousMemory(100, "oracle", max_model_len=0)
    with pytest.raises(UsageError, match="max_model_len 2049: the largest is 2048 tokens"):
        ContiguousMemory(3000, "max", max_model_len=2049)
    assert ContiguousMemory(3000, "max", "first-fit", max_model_len=2049).fits(sequence(1, 1))


@pytest.mark.parametrize(("placement", "longest"), [("buddy", 2048), ("first-fit", 3000), ("best-fit", 3000)])
def test_fits_is_what_an_empty_memory_takes(placement: str, longest: int) -> None:
    memory = ContiguousMemory(3000, "oracle", placement, max_model_len=4096)
    assert memory.take(sequence(1, 1, index=1), 1)  # whoever is inside now does not matter
    assert memory.fits(sequence(1000, longest - 1000, max_len=4096))
    assert not memory.fits(sequence(1000, longest - 999, max_len=4096))


# -- what is wasted ------------------------------------------------------------------------------


def test_reserving_the_maximum_on_13b() -> None:
    """P1 to P3, P9 and P12: seven sequences, and 8.85 % of the memory of no use to the eighth."""
    capacity = 12 * 2**30 // (2 * 5120 * 40 * 2)
    assert capacity == 15_728
    memory, batch = ContiguousMemory(capacity), Batch()
    everybody = [sequence(161, 338, index=i) for i in range(8)]
    seat(memory, batch, *everybody[:7])
    head = everybody[7]
    assert not memory.room(head, head.known)
    assert not memory.take(head, head.known)
    assert memory.external_tokens(head) == capacity - 7 * 2048 == 1392
    assert (
        memory.external_tokens(head) / capacity
        == pytest.approx(1 - 7 * 2048 / 15_728)
        == pytest.approx(0.0885, abs=5e-5)
    )
    assert memory.external_tokens(None) == 0
    assert memory.held_tokens == 7 * 2048
    assert memory.internal_tokens == 7 * (2048 - 498)
    memory.check(batch)


@given(st.integers(1, 4000), st.integers(2, 300), st.sampled_from(sorted(PLACEMENTS)), st.randoms())
def test_reserving_the_maximum_gives_capacity_over_maximum(capacity: int, most: int, placement: str, rng: Any) -> None:
    """T10, whatever the lengths and whoever has come and gone."""
    if placement == "buddy":
        most = 1 << most.bit_length()
    if most > capacity:
        return
    memory = ContiguousMemory(capacity, "max", placement, max_model_len=most)
    inside: list[Sequence] = []
    for index in range(3 * (capacity // most) + 1):
        one = sequence(rng.randint(1, most - 1), most, index=index, max_len=most)
        if not memory.take(one, one.known):
            assert len(inside) == capacity // most
            memory.release(inside.pop(rng.randrange(len(inside))))
            assert memory.take(one, one.known)
        inside.append(one)


@pytest.mark.parametrize("placement", ["first-fit", "best-fit"])
def test_holes_hold_back_a_head_that_the_free_memory_could_take(placement: str) -> None:
    memory, batch = ContiguousMemory(1000, "oracle", placement), Batch()
    everybody = [sequence(60, 40, index=i) for i in range(10)]
    seat(memory, batch, *everybody)
    for one in everybody[1::2]:
        batch.leave(one)
        memory.release(one)
    small, large = sequence(50, 40), sequence(70, 40)
    assert (memory.free_tokens, memory.largest_free_piece_tokens) == (500, 100)
    assert not memory.room(large, 1)
    assert memory.room(small, 1)
    assert memory.external_tokens(small) == memory.external_tokens(None) == 0
    assert memory.external_tokens(large) == 500
    assert [(start, size, who is None) for start, size, who in memory.pieces()][:3] == [
        (0, 100, False),
        (100, 100, True),
        (200, 100, False),
    ]
    batch.leave(everybody[2])
    memory.release(everybody[2])
    assert memory.external_tokens(large) == 300  # the three holes of 100 that are left beside one of 300
    assert memory.room(large, 1)
    seat(memory, batch, sequence(150, 100))  # of the 300
    assert memory.external_tokens(large) == 350
    memory.check(batch)


def test_buddy_rounding_is_external() -> None:
    memory, batch = ContiguousMemory(1024, "oracle"), Batch()
    seat(memory, batch, sequence(100, 29, index=0), sequence(200, 56, index=1))
    assert (memory.held_tokens, memory.rounding_tokens, memory.free_tokens) == (129 + 256, 127, 512)
    assert memory.external_tokens(None) == 127
    assert memory.external_tokens(sequence(500, 13)) == 127 + 512
    memory.check(batch)


def test_a_member_that_has_ended_is_waste_until_it_leaves() -> None:
    memory, batch, one = ContiguousMemory(1024, "oracle"), Batch(), sequence(30, 1)
    seat(memory, batch, one)
    one.computed = 30
    batch.join(one, 5)
    assert batch.finished() == [one]
    memory.end(one)
    assert memory.internal_tokens == memory.held_tokens == 31
    memory.check(batch)
    batch.leave(one)
    memory.release(one)
    assert (memory.internal_tokens, memory.held_tokens, memory.free_tokens) == (0, 0, 1024)
    memory.check(batch)


def test_room_promises_what_take_keeps() -> None:
    memory = ContiguousMemory(1024, "oracle", "first-fit")
    one = sequence(100, 100)
    assert memory.room(one, 100, spare=824)
    assert not memory.room(one, 100, spare=825)
    assert not memory.take(one, 100, spare=825)
    assert memory.free_tokens == 1024
    assert not memory.room(one, 201)  # more than it will ever hold
    assert not memory.take(one, 201)
    assert memory.take(one, 100, spare=824)
    assert memory.room(one, 200, spare=10_000)
    assert memory.take(one, 200, spare=10_000)
    assert not memory.room(one, 201)
    assert memory.held == 200


def test_decoding_costs_the_memory_nothing() -> None:
    memory = ContiguousMemory(1024, "oracle")
    assert memory.take(sequence(100, 100), 100)
    assert memory.headroom(10**9) == 10**9
    assert memory.grow()
    memory.advance(3, Growth())
    assert memory.clock == 3


def test_describes_itself() -> None:
    memory: Memory = ContiguousMemory(4096, "pow2", "best-fit")
    assert memory.describe() == {
        "name": "contiguous",
        "capacity_tokens": 4096,
        "reserve": "pow2",
        "placement": "best-fit",
        "max_model_len": 2048,
    }
