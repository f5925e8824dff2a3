"""Real conversations replayed turn by turn: what the prefix cache finds is the repeated history, to the block."""

from __future__ import annotations

import csv
import gzip
from collections import OrderedDict
from itertools import groupby
from pathlib import Path

import pytest

import simbatch as sb

BLOCK = 16
LONGEST = 8192
Turn = tuple[str, int, int, int]
"""(session, turn, prompt with all of its history, output)"""


def conversations(shared: Path, sessions: int) -> list[list[Turn]]:
    """The first conversations of several turns that fit the model's length."""
    found: list[list[Turn]] = []
    with gzip.open(shared / "data" / "traces" / "sharegpt" / "sharegpt_sessions.csv.gz", "rt") as lines:
        for session, rows in groupby(csv.DictReader(lines), key=lambda row: row["session"]):
            turns, history = [], 0
            for number, row in enumerate(rows):
                prompt = history + int(row["new_prompt_tokens"])
                turns.append((session, number, prompt, int(row["output_tokens"])))
                history = prompt + int(row["output_tokens"])
            if len(turns) > 1 and history < LONGEST:
                found.append(turns)
            if len(found) == sessions:
                break
    return found


def segments(turns: list[Turn], number: int) -> tuple[tuple[str, int, int], ...]:
    """The prompt of a turn: what was asked and answered before, and what is asked now."""
    runs: list[tuple[str, int, int]] = []
    asked = answered = 0
    for session, k, prompt, output in turns[: number + 1]:
        new = prompt - asked - answered
        runs.append((f"u{session}", asked, new))
        asked += new
        if k < number:
            runs.append((f"o{session}.{k}", 0, output))
            answered += output
    return tuple(runs)


def trace_of(order: list[tuple[list[Turn], int]], gap_s: float) -> sb.Trace:
    """Turns in the given order, one every *gap_s* seconds."""
    turns = [talk[number] for talk, number in order]
    return sb.Trace.from_columns(
        id=[f"{session}.{number}" for session, number, _, _ in turns],
        arrival_s=[k * gap_s for k in range(len(turns))],
        prompt_tokens=[prompt for _, _, prompt, _ in turns],
        output_tokens=[output for _, _, _, output in turns],
        segments=[segments(talk, number) for talk, number in order],
    )


def turn_by_turn(talks: list[list[Turn]]) -> list[tuple[list[Turn], int]]:
    """First turns of everybody, then second turns: a conversation's history lies idle while the others talk."""
    longest = max(map(len, talks))
    return [(talk, number) for number in range(longest) for talk in talks if number < len(talk)]


def cached(trace: sb.Trace, kv_tokens: int, **options: bool) -> list[int]:
    result = sb.simulate(
        trace, kv_tokens=kv_tokens, max_model_len=LONGEST, timing="linear:base_ms=1,token_us=1", **options
    )
    result.check()
    found: list[int] = result.requests["cached_tokens"].tolist()
    return found


def lru(order: list[tuple[list[Turn], int]], kv_tokens: int) -> list[int]:
    """The same by hand, for one request at a time: blocks are numbered, and name a conversation and a place in it.

    The least recently released goes first. Where the middle of a chain has gone, its rest cannot be
    reached and is filled again: both copies stay, and the older one is found.
    """
    idle: OrderedDict[int, tuple[str, int]] = OrderedDict()
    copies: dict[tuple[str, int], list[int]] = {}
    capacity, made, hits = kv_tokens // BLOCK, 0, []
    for talk, number in order:
        session, _, prompt, output = talk[number]
        held: list[int] = []
        while len(held) < (prompt - 1) // BLOCK and (session, len(held)) in copies:
            held.append(copies[session, len(held)][0])
        for block in held:
            del idle[block]
        hits.append(len(held) * BLOCK)
        full = (prompt + output - 1) // BLOCK
        for place in range(len(held), -(-(prompt + output - 1) // BLOCK)):
            if len(idle) + len(held) == capacity:
                gone, name = idle.popitem(last=False)
                copies[name].remove(gone)
                if not copies[name]:
                    del copies[name]
            made += 1
            held.append(made)
            if place < full:
                copies.setdefault((session, place), []).append(made)
        for place in reversed(range(full)):
            idle[held[place]] = (session, place)
    return hits


@pytest.mark.parametrize("async_scheduling", [False, True])
def test_with_ample_memory_the_repeated_history_is_found(shared: Path, async_scheduling: bool) -> None:
    talks = conversations(shared, 120)
    order = turn_by_turn(talks)
    found = cached(trace_of(order, gap_s=30), 4_000_000, async_scheduling=async_scheduling)
    expected = []
    for talk, number in order:
        # The last answer token of a turn was never fed back, so its cache is one token short.
        history = talk[number - 1][2] + talk[number - 1][3] - 1 if number else 0
        expected.append(min(history // BLOCK, (talk[number][2] - 1) // BLOCK) * BLOCK)
    assert found == expected
    repeated = sum(talk[number - 1][2] + talk[number - 1][3] for talk, number in order if number)
    assert sum(found) / repeated == pytest.approx(1, abs=BLOCK * len(order) / repeated)


def test_with_tight_memory_it_falls_as_least_recently_used_must(shared: Path) -> None:
    order = turn_by_turn(conversations(shared, 60))
    trace = trace_of(order, gap_s=30)
    totals = []
    for kv_tokens in (16_384, 32_768, 65_536, 131_072, 1_000_000):
        # Synchronous: a batch for nothing, after a stop that nobody foresaw, may take a block more.
        found = cached(trace, kv_tokens, async_scheduling=False)
        assert found == lru(order, kv_tokens), f"with {kv_tokens} tokens"
        totals.append(sum(found))
    assert totals == sorted(totals)
    assert totals[0] < totals[-1] / 2


def test_turns_in_closed_loop_find_the_same(shared: Path) -> None:
    talks = conversations(shared, 40)
    turns = [(talk, number) for talk in talks for number in range(len(talk))]
    trace = sb.Trace.from_columns(
        id=[f"{talk[number][0]}.{number}" for talk, number in turns],
        prompt_tokens=[talk[number][2] for talk, number in turns],
        output_tokens=[talk[number][3] for talk, number in turns],
        session=[talk[number][0] for talk, number in turns],
        turn=[number for _, number in turns],
        segments=[segments(talk, number) for talk, number in turns],
    )
    found = dict(zip(trace.ids or (), cached(trace, 4_000_000), strict=True))
    alone = dict(zip(trace.ids or (), cached(trace_of(turns, gap_s=30), 4_000_000), strict=True))
    assert found == alone
