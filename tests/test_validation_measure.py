"""The sweep: order of worth, deadline, kill and resume, and that nothing is mixed up in a folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from simbatch.deployment import find_gpu
from simbatch.errors import UsageError
from validation.fake import FakeGPU
from validation.jobs import MOST_STEP_TOKENS, Job, jobs
from validation.measure import Timed, measure
from validation.measurements import COLUMNS, FILE, Table, keep_machine, read, row_of
from validation.shape import TINY, find_shape, sized
from validation.sweep import all_points, first_points, held_back, ragged

ROOT = Path(__file__).resolve().parent.parent
SHAPE = find_shape("llama-2-13b")
H100 = find_gpu("h100")


class Clock:
    """A card whose jobs take *slowness* times their estimate on a clock of its own."""

    def __init__(self, slowness: float = 1.0) -> None:
        self.now_s = 100.0
        self.slowness = slowness
        self.fake = FakeGPU(SHAPE, H100)

    def __call__(self) -> float:
        return self.now_s

    def time(self, job: Job) -> Timed:
        self.now_s += self.slowness * job.estimate_s
        return self.fake.time(job)


def the_jobs() -> list[Job]:
    return jobs(SHAPE, H100, 65_000, ["64x4x5", "64x4x2"])


def test_the_first_points_are_21_and_come_first() -> None:
    assert len({point.key for point in first_points()}) == len(first_points()) == 21
    order = the_jobs()
    assert order[0].stage == "copy"
    assert [job.point for job in order[1:22]] == first_points()
    assert [job.stage for job in order[22:]][:3] == ["attention"] * 3
    assert len({(job.stage, job.key) for job in order}) == len(order)


def test_the_grid_is_what_the_memory_holds() -> None:
    whole = all_points(MOST_STEP_TOKENS)
    decodes = [p for p in whole if p.counts.kind == "decode" and not p.ragged]
    assert len(decodes) == sum(b * c <= MOST_STEP_TOKENS for b in (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256)
                               for c in (128, 512, 1024, 2048, 4096, 8192))  # fmt: skip
    kinds = [point.counts.kind for point in whole]
    assert kinds.count("prefill") == 7 + 3
    assert kinds.count("mixed") == 9
    assert sum(point.ragged for point in whole) == 6
    # A cache that is small beside L2 must not be read twice in an iteration; a large one may.
    points = {tokens: [job.point for job in jobs(SHAPE, H100, tokens, []) if job.point] for tokens in (20_000, 45_000)}
    assert max(point.kv_tokens for point in points[20_000]) <= 20_000
    assert {point.key for point in points[45_000]} >= {point.key for point in whole}
    small = all_points(20_000)
    assert max(point.kv_tokens for point in small) <= 20_000
    assert {p.key for p in small} < {p.key for p in whole}


def test_a_ragged_point_has_the_tokens_of_an_even_one() -> None:
    point = ragged(32, 512)
    assert sum(point.lens) == 32 * 512
    assert max(point.lens) > 10 * min(point.lens)


def test_held_back_points_are_in_no_grid() -> None:
    points = all_points(65_000)
    unseen = held_back(points)
    assert len(unseen) == 20
    assert not {p.key for p in unseen} & {p.key for p in points}
    assert {p.counts.kind for p in unseen} == {"decode", "mixed", "prefill"}


@pytest.mark.parametrize("slowness", [0.3, 1.0, 7.0])
@pytest.mark.parametrize("minutes", [0.05, 0.3, 0.8])
def test_the_deadline_is_kept_and_the_time_is_used(minutes: float, slowness: float, tmp_path: Path) -> None:
    clock = Clock(slowness)
    progress = measure(clock, Table(tmp_path), the_jobs(), minutes=minutes, clock=clock)
    longest = slowness * max(job.estimate_s for job in the_jobs())
    # One job may be misjudged: the first, of which nothing is known.
    assert progress.took_s <= 60 * minutes + (slowness - 1) * the_jobs()[0].estimate_s * (slowness > 1)
    assert progress.left == 0 or progress.took_s > 60 * minutes - 2 * longest
    assert progress.measured + progress.left == len(the_jobs())
    assert [row.key for row in read(tmp_path)] == [job.key for job in the_jobs()][: progress.measured]


def test_a_stopped_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    clock = Clock()
    first = measure(clock, Table(tmp_path), the_jobs(), minutes=0.2, clock=clock)
    assert 0 < first.measured < len(the_jobs())
    second = measure(clock, Table(tmp_path), the_jobs(), clock=clock)
    assert (second.skipped, second.left) == (first.measured, 0)
    assert [row.key for row in read(tmp_path)] == [job.key for job in the_jobs()]


SLOW = """
import sys, time
from pathlib import Path
from simbatch.deployment import find_gpu
from validation.fake import FakeGPU
from validation.jobs import jobs
from validation.measure import measure
from validation.measurements import Table
from validation.shape import find_shape
class Slow(FakeGPU):
    def time(self, job):
        time.sleep(0.02)
        return super().time(job)
shape, card = find_shape("llama-2-13b"), find_gpu("h100")
measure(Slow(shape, card), Table(Path(sys.argv[1])), jobs(shape, card, 65_000, ["64x4x5", "64x4x2"]))
"""


def test_a_killed_run_resumes(tmp_path: Path) -> None:
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    child = subprocess.Popen([sys.executable, "-c", SLOW, str(tmp_path)], env=env)
    path = tmp_path / FILE
    until = time.monotonic() + 60
    while time.monotonic() < until and not (path.exists() and path.read_bytes().count(b"\n") > 10):
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    with path.open("a") as file:
        file.write("step,B1 K10")  # what a kill in the middle of a write leaves
    kept = len(Table(tmp_path).rows)
    assert 10 <= kept < len(the_jobs())
    progress = measure(FakeGPU(SHAPE, H100), Table(tmp_path), the_jobs())
    assert progress.skipped == kept
    assert [row.key for row in read(tmp_path)] == [job.key for job in the_jobs()]


def test_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    point = first_points()[5]
    table = Table(tmp_path)
    table.add(row_of("step", point.key, point.counts, [0.3, 0.1, 0.2], host_s="0.5", held_back=0))
    (row,) = read(tmp_path)
    assert row == table.rows[0]
    assert (row.counts, row.duration_s, row.host_s, row.raw_s) == (point.counts, 0.2, 0.5, (0.3, 0.1, 0.2))
    line = dict(zip(COLUMNS, (tmp_path / FILE).read_text().splitlines()[1].split(","), strict=True))
    # B64 at 512 with a chunk of 512: the names and the sums that a timing of simbatch is told.
    assert (line["tokens"], line["sequences"], line["prefill_tokens"]) == ("576", "65", "512")
    assert (line["context_tokens"], line["prefill_context_tokens"]) == (str(64 * 512 + 512), "512")
    assert line["prefill_pairs"] == str(512 * 513 // 2)


def test_a_folder_is_of_one_machine_and_one_model(tmp_path: Path) -> None:
    machine = {"device": "a card", "model": "m", "layers": 40, "dtype": "float16", "page_tokens": 16, "fake": False}
    keep_machine(tmp_path, machine)
    keep_machine(tmp_path, machine | {"temperature": 50})
    with pytest.raises(UsageError, match="layers 40, and this run has 20"):
        keep_machine(tmp_path, machine | {"layers": 20})
    assert json.loads((tmp_path / "machine.json").read_text()) == machine


def test_files_that_are_no_measurements_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Run python -m validation measure"):
        read(tmp_path)
    (tmp_path / FILE).write_text("a,b\n1,2\n")
    with pytest.raises(UsageError, match="other columns"):
        Table(tmp_path)
    (tmp_path / FILE).write_text(",".join(COLUMNS) + "\nstep,x" + "," * (len(COLUMNS) - 2) + "\n")
    with pytest.raises(UsageError, match="line 2 is no measurement"):
        read(tmp_path)


def test_a_model_is_cut_to_what_a_card_holds() -> None:
    whole, tokens = sized(SHAPE, 80 * 10**9, None, 16)
    assert whole == SHAPE
    assert 30_000 < tokens < 60_000
    assert tokens % 16 == 0
    cut, tokens = sized(SHAPE, 24 * 10**9, None, 16)
    assert 2 <= cut.layers < 40
    assert tokens == 32_768
    assert cut.memory_bytes + tokens * cut.kv_bytes_per_token < 24 * 10**9
    assert sized(find_shape("llama-2-70b"), 80 * 10**9, None, 16)[0].layers < 80
    with pytest.raises(UsageError, match="does not fit 4 GB"):
        sized(SHAPE, 4 * 10**9, None, 16)
    with pytest.raises(UsageError, match="no dense LLaMA"):
        find_shape("mixtral-8x7b")
    with pytest.raises(UsageError, match="Give 1 to that many"):
        find_shape("llama-2-7b", 33)
    assert find_shape("tiny") == TINY


def test_shapes_weigh_what_is_published() -> None:
    """Megabytes a layer, gigabytes in all, KV bytes of a token, for the four shapes that are replayed."""
    published = {"llama-2-7b": (405, 13.5, 524_288), "llama-2-13b": (634, 26.0, 819_200),
                 "llama-3-8b": (436, 16.1, 131_072), "llama-2-70b": (1711, 138, 327_680)}  # fmt: skip
    for name, (layer_mb, total_gb, kv_bytes) in published.items():
        shape = find_shape(name)
        assert shape.layer_params * 2 / 1e6 == pytest.approx(layer_mb, rel=0.002)
        assert shape.memory_bytes / 1e9 == pytest.approx(total_gb, rel=0.005)
        assert shape.kv_bytes_per_token == kv_bytes
