"""Every line that a card runs, but for its clock: jobs of the sweep and a replay, on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import simbatch as sb
from validation.card import Card
from validation.jobs import Job
from validation.measure import measure
from validation.measurements import Table, read
from validation.replay import replay
from validation.shape import TINY
from validation.sweep import Point


@pytest.fixture(scope="module")
def card() -> Card:
    torch.set_num_threads(1)
    return Card(TINY, dtype="float32", device="cpu", kv_tokens=320, longest_tokens=128, most_tokens=128)


def test_every_kind_of_job_is_timed_and_written(card: Card, tmp_path: Path) -> None:
    points = [Point((9, 30, 4)), Point((), ((20, 0),)), Point((12,), ((7, 16),))]
    jobs = [Job("copy", "copy", 1), *(Job("step", point.key, 1, point=point) for point in points)]
    jobs += [Job("attention", "B2 context 40 64x4x5", 1, rows=2, context_tokens=40, config="64x4x5")]
    jobs += [Job("product", f"{name} T2", 1, product=name, tokens=2) for name in ("qkv", "o", "gate_up", "down")]
    progress = measure(card, Table(tmp_path), jobs)
    assert progress.measured == len(jobs) == 9
    rows = {row.key: row for row in read(tmp_path)}
    assert all(row.duration_s > 0 for row in rows.values())
    assert all(rows[point.key].counts == point.counts and rows[point.key].host_s > 0 for point in points)
    assert rows["B2 context 40 64x4x5"].bytes == 2 * 40 * TINY.kv_bytes_per_token_layer


def test_work_of_a_point_lies_on_pages_of_its_own(card: Card) -> None:
    work = card.work(Point((33, 20, 16), ((20, 30),)))
    pages = [page for row in (*work.decodes, *work.chunks) for page in row.place]
    assert len(pages) == len(set(pages)) == 3 + 2 + 1 + 4
    assert max(pages) < 20
    assert [row.context_tokens for row in work.decodes] == [32, 19, 15]
    shared = card.work(Point((128,) * 5))
    assert len({page for row in shared.decodes for page in row.place}) == 20


@pytest.mark.parametrize("system", ["vllm", "static"])
def test_a_replay_on_the_loop_is_what_the_simulator_decides(card: Card, system: str) -> None:
    trace = sb.Trace.from_columns(prompt_tokens=[20, 30, 25], output_tokens=[3, 2, 4])
    executor = card.executor(contiguous=system == "static", most_rows=4)
    executor.capture()
    found = replay(
        trace,
        system,
        executor,
        vocab=TINY.vocab,
        kv_tokens=320,
        max_model_len=64,
        max_num_seqs=4,
        max_num_batched_tokens=32,
        batch_size=2,
    )
    assert found.first_difference() is None
    assert found.summary()["same_end"]
    assert found.summary()["gpu_s"] > 0
