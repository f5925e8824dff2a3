"""The fit finds what the stand-in was made of, and says what it could not find."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simbatch.deployment import find_gpu
from simbatch.errors import UsageError
from validation.fake import FakeGPU
from validation.fit import Fit, fit, weight_efficiency
from validation.form import Coefficients, features, smooth_maximum
from validation.jobs import Job, jobs
from validation.measure import Timed, measure
from validation.measurements import Row, Table, read
from validation.profile import Profile, card_of, write_card
from validation.report import floor_s, report
from validation.shape import find_shape
from validation.work import Counts, decode_counts

H100 = find_gpu("h100")
H200 = find_gpu("h200")


def measured(folder: Path, fake: FakeGPU, kv_tokens: int = 65_000) -> list[Row]:
    measure(fake, Table(folder), jobs(fake.shape, fake.card, kv_tokens, ["64x4x5"]))
    return read(folder)


def fitted(folder: Path, fake: FakeGPU) -> Fit:
    return fit(measured(folder, fake), fake.shape, fake.card)


@pytest.mark.parametrize("model", ["llama-2-13b", "llama-3-8b"])
def test_without_noise_and_kink_every_coefficient_comes_back(model: str, tmp_path: Path) -> None:
    shape = find_shape(model)
    fake = FakeGPU(shape, H100, noise=0, kink=0)
    found = fitted(tmp_path, fake)
    got, truth = found.coefficients, fake.truth
    assert got.overhead_us == pytest.approx(truth.overhead_us + shape.layers * truth.layer_us, rel=0.01)
    for name in ("weight_efficiency", "flop_efficiency", "kv_efficiency", "row_ns", "pair_efficiency", "smooth_power"):
        assert getattr(got, name) == pytest.approx(getattr(truth, name), rel=0.01), name
    assert found.fitted["formula"].worst < 1e-4
    assert found.held_back["formula"].worst < 1e-4


def test_with_noise_they_come_back_within_it(tmp_path: Path) -> None:
    """1 % noise on each of ten runs: medians of 60 points place coefficients within a few per cent, over five seeds."""
    truth = Coefficients()
    shape = find_shape("llama-2-13b")
    tolerance = {"flop_efficiency": 0.03, "kv_efficiency": 0.04, "pair_efficiency": 0.15, "weight_efficiency": 0.03}
    for seed in range(5):
        found = fitted(tmp_path / str(seed), FakeGPU(shape, H100, noise=0.01, kink=0, seed=seed))
        got = found.coefficients
        for name, most in tolerance.items():
            assert getattr(got, name) == pytest.approx(getattr(truth, name), rel=most), (name, seed)
        assert got.overhead_us == pytest.approx(1200, abs=250)
        assert found.held_back["formula"].mean < 0.02
        assert found.held_back["piecewise"].mean < 0.02


def test_a_kink_is_met_by_the_table_and_named_by_the_errors(tmp_path: Path) -> None:
    fake = FakeGPU(find_shape("llama-2-13b"), H100, noise=0.002, kink=0.15)
    found = fitted(tmp_path, fake)
    assert found.fitted["piecewise"].mean < found.fitted["formula"].mean
    assert found.held_back["piecewise"].mean < 0.04
    assert "P" in found.fitted["formula"].worst_at, "prompts are what the kink is about"


def test_the_formula_moves_to_a_card_with_another_bandwidth(tmp_path: Path) -> None:
    """Fitted on one card, asked about another of 1.43 times the bandwidth: nothing of it was measured there."""
    shape = find_shape("llama-2-13b")
    found = fitted(tmp_path, FakeGPU(shape, H100, noise=0.002, kink=0))
    there = FakeGPU(shape, H200, noise=0, kink=0)
    loads = [decode_counts(b, c) for b in (1, 16, 128) for c in (128, 1024)] + [Counts(512, 0, 0, 0, ((512, 0),))]
    moved = features(loads, shape, H200).seconds(found.coefficients)
    truth = np.array([there.seconds(load) for load in loads])
    assert np.abs(moved / truth - 1).max() < 0.02


def test_what_cannot_be_told_apart_is_pinned_and_said_so(tmp_path: Path) -> None:
    rows = measured(tmp_path, FakeGPU(find_shape("llama-2-13b"), H100))
    shape = find_shape("llama-2-13b")
    found = fit(rows, shape, H100)
    assert found.pinned["weight_efficiency"] == "12 products measured alone"
    assert "one depth" in found.pinned["layer_us"]
    steps = [row for row in rows if row.stage == "step"]
    assert weight_efficiency(steps, H100) == (0.85, "pinned: too few products were measured")
    decodes = [row for row in steps if row.counts.kind == "decode"]
    assert "no prefills" in fit(decodes, shape, H100).pinned["pair_efficiency"]
    with pytest.raises(UsageError, match="needs at least 12"):
        fit(rows[:9], shape, H100)


def test_two_depths_tell_what_a_layer_costs_and_speak_for_the_whole_model(tmp_path: Path) -> None:
    """70B by depth: 8 and 16 of 80 layers are measured, and all 80 are predicted, which no card here could hold."""
    whole = find_shape("llama-2-70b")
    shallow, deep = (FakeGPU(whole.with_layers(n), H100, noise=0.002, kink=0, seed=n) for n in (8, 16))
    rows = {fake.shape.layers: measured(tmp_path / str(fake.shape.layers), fake) for fake in (shallow, deep)}
    found = fit(rows[16], deep.shape, H100, also=[(rows[8], shallow.shape)])
    assert "layer_us" not in found.pinned
    assert found.coefficients.layer_us == pytest.approx(25, abs=5)
    full = FakeGPU(whole, H100, noise=0, kink=0)
    loads = [decode_counts(b, c) for b in (1, 16, 128) for c in (128, 1024)] + [Counts(512, 0, 0, 0, ((512, 0),))]
    predicted = features(loads, whole, H100).seconds(found.coefficients)
    truth = np.array([full.seconds(load) for load in loads])
    assert np.abs(predicted / truth - 1).max() < 0.02
    alone = features(loads, whole, H100).seconds(fit(rows[16], deep.shape, H100).coefficients)
    assert np.abs(alone / truth - 1).max() > 0.02, "one depth, multiplied, is wrong"


def test_held_back_rows_are_not_in_the_fit(tmp_path: Path) -> None:
    rows = measured(tmp_path, FakeGPU(find_shape("llama-2-13b"), H100))
    shape = find_shape("llama-2-13b")
    spoilt = [replace(row, duration_s=row.duration_s * 5) if row.held_back else row for row in rows]
    assert fit(rows, shape, H100).coefficients == fit(spoilt, shape, H100).coefficients
    assert fit(spoilt, shape, H100).held_back["formula"].median == pytest.approx(0.8, abs=0.02)


def test_host_time_is_no_part_of_the_fit(tmp_path: Path) -> None:
    rows = measured(tmp_path, FakeGPU(find_shape("llama-2-13b"), H100))
    shape = find_shape("llama-2-13b")
    slow = [replace(row, host_s=row.host_s + 1) for row in rows]
    assert fit(rows, shape, H100).coefficients == fit(slow, shape, H100).coefficients
    assert fit(slow, shape, H100).host_s == pytest.approx(1, abs=0.01)


def test_a_card_is_written_read_and_used(tmp_path: Path) -> None:
    fake = FakeGPU(find_shape("llama-2-13b"), H100)
    found = fitted(tmp_path, fake)
    machine = {"fake": True, "gpu": H100.name, "device": "fake", "model": "Llama-2-13B", "layers": 40}
    card = card_of(found, fake.shape, machine)
    assert card["kind"] == "fake"
    assert card["units"].keys() == card["formula"].keys()
    assert card["error"]["held_back"]["piecewise"]["n"] == 20
    assert card["range"]["rows"] == [0, 256]
    write_card(card, tmp_path / "profile.json")
    for form in ("piecewise", "formula"):
        profile = Profile.load(tmp_path / "profile.json", form)
        for load in (decode_counts(1, 300), decode_counts(100, 500), Counts(900, 0, 0, 0, ((900, 0),))):
            assert profile.seconds(load) == pytest.approx(fake.seconds(load), rel=0.03)
    (tmp_path / "profile.json").write_text("{}")
    with pytest.raises(UsageError, match="no profile of format"):
        Profile.load(tmp_path / "profile.json")


def test_the_piecewise_table_goes_on_beyond_its_last_knot(tmp_path: Path) -> None:
    fake = FakeGPU(find_shape("llama-2-13b"), H100, noise=0, kink=0)
    table = fitted(tmp_path, fake).piecewise
    times = table.seconds([Counts(t, 0, 0, 0, ((t, 0),)) for t in (4096, 6000, 8192)])
    assert times[0] < times[1] < times[2]
    assert len(table.knots_tokens) <= 15


def test_the_smooth_maximum_lies_between_the_larger_and_the_sum() -> None:
    a, b = np.array([1.0, 5.0, 3.0]), np.array([2.0, 0.0, 3.0])
    for power in (1.0, 1.7, 50.0):
        smooth = smooth_maximum(a, b, power)
        assert (smooth >= np.maximum(a, b)).all()
        assert (smooth <= a + b + 1e-12).all()
    assert smooth_maximum(a, b, 1.0) == pytest.approx(a + b)


def test_the_report_names_what_misses_its_target(tmp_path: Path) -> None:
    """A card whose attention is slow and whose large iterations are unlike its small ones."""

    class Poor(FakeGPU):
        def time(self, job: Job) -> Timed:
            timed = super().time(job)
            factor = 1.5 if job.stage == "attention" else 1.0
            if job.held_back:
                factor = 1.3
            return replace(timed, times_s=[t * factor for t in timed.times_s])

    shape = find_shape("llama-2-13b")
    rows = measured(tmp_path, Poor(shape, H200), 131_000)
    machine = {"fake": True, "gpu": H200.name, "device": "fake", "model": shape.name, "layers": 40, "dtype": "float16"}
    (tmp_path / "machine.json").write_text(json.dumps(machine))
    write_card(card_of(fit(rows, shape, H200), shape, machine), tmp_path / "profile.json")
    text, missed = report(tmp_path)
    assert text.startswith("FAKE")
    assert any("of the copy, wanted 85%" in what for what in missed)
    assert any("over its floor" in what for what in missed)
    assert any("smallest attention: 26" in what for what in missed)
    assert any("held-back iterations" in what for what in missed)


def test_the_floor_is_the_published_line() -> None:
    assert floor_s(32, 335_544_320, 3.35e12) == pytest.approx(17e-6 + 32 * 0.034e-6 + 335_544_320 / 3.1825e12)
    assert math.isclose(floor_s(1, 0, 1e12), 17.034e-6)
