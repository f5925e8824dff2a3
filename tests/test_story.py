"""The worked story of docs/story.md, told by the simulator: every number of its tables."""

from __future__ import annotations

from pathlib import Path

import pytest

import simbatch as sb

DOC = Path(__file__).resolve().parent.parent / "docs" / "story.md"
PEOPLE = ("ann", "bob", "cat")


def tables() -> list[list[list[str]]]:
    """The rows of each table in the document, headings left out."""
    found: list[list[list[str]]] = [[]]
    for line in DOC.read_text(encoding="utf-8").splitlines():
        if line.startswith("|"):
            found[-1].append([cell.strip() for cell in line.strip("|").split("|")])
        elif found[-1]:
            found.append([])
    return [table[2:] for table in found if table]


def run(step: bool) -> sb.Result:
    requests = tables()[0]
    trace = sb.Trace.from_columns(
        id=[who for who, *_ in requests],
        arrival_s=[float(at.removesuffix(" ms")) / 1000 for _, at, _, _ in requests],
        prompt_tokens=[int(prompt.split()[0]) for _, _, prompt, _ in requests],
        output_tokens=[int(output.split()[0]) for _, _, _, output in requests],
    )
    return sb.simulate(
        trace,
        kv_tokens=16,
        block_size=4,
        max_model_len=64,
        async_scheduling=False,
        enable_prefix_caching=False,
        timing="linear:base_ms=10,token_us=1000",
        step=step,
    )


def test_every_iteration_is_as_the_story_tells() -> None:
    told = []
    for step in run(step=True).decisions or []:
        tokens = {who: f"{count} ({before})" for who, count, before in step["sched"]}
        told.append(
            [
                str(step["t0"] // 1_000_000),
                str(step["t1"] // 1_000_000),
                *(tokens.get(who, "") for who in PEOPLE),
                " ".join(step["pre"]),
                " ".join(step["fin"]),
                str(step["wait"]),
                str(step["kv"]),
            ]
        )
    assert told == tables()[1]


@pytest.mark.parametrize("step", [True, False])
def test_memory_is_split_as_the_story_tells(step: bool) -> None:
    rows = run(step).steps
    told = [
        [f"{row.start_s * 1000:.0f}", *(str(getattr(row, name)) for name in columns)]
        for columns in [("iterations", "live", "reserved", "internal", "external", "free")]
        for row in rows.itertuples()
    ]
    assert told == tables()[2]


@pytest.mark.parametrize("step", [True, False])
def test_bobs_lot(step: bool) -> None:
    result = run(step)
    bob = result.requests.set_index("id").loc["bob"]
    assert bob.finished_s - bob.arrival_s == pytest.approx(0.111, abs=1e-12)
    assert (bob.preemptions, bob.recomputed_tokens) == (1, 6)
    itl = result.metrics()["latency_s"]["itl"]
    assert itl["max"] == pytest.approx(0.053, abs=1e-12)
    # ann 11 16 11 11 11, bob 53 12 12 11, cat 12 12
    assert itl["mean"] == pytest.approx((11 * 4 + 16 + 53 + 24 + 11 + 24) / 11 / 1000, abs=1e-12)
    result.check()
