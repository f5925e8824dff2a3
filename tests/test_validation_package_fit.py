"""The project's own measurements through the package's own fit: rows as they are, a cut model as a small one."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

import simbatch as sb
from simbatch.deployment import find_gpu
from validation.fake import FakeGPU
from validation.jobs import jobs
from validation.measure import measure
from validation.measurements import FILE, Table, read
from validation.package_fit import columns, model_as_run, package_fit
from validation.shape import find_shape

H100 = find_gpu("h100")


def test_a_cut_model_weighs_what_was_run() -> None:
    for name in ("llama-2-13b", "llama-3-8b"):
        whole = find_shape(name)
        assert model_as_run(whole).name == whole.name
        cut = whole.with_layers(10)
        model = model_as_run(cut)
        here = sb.Deployment(model, gpu="h100", kv_tokens=20_000)
        assert here.weights_bytes == pytest.approx(cut.memory_bytes, rel=0.002)
        assert here.kv_bytes_per_token == cut.kv_bytes_per_token


def test_columns_are_those_of_the_table(tmp_path: Path) -> None:
    """What is written to the csv under simbatch's names, and what is handed over, are the same."""
    shape = find_shape("llama-2-13b")
    measure(FakeGPU(shape, H100), Table(tmp_path), jobs(shape, H100, 45_000, []))
    given = columns(read(tmp_path))
    with (tmp_path / FILE).open() as file:
        steps = [row for row in csv.DictReader(file) if row["stage"] == "step" and row["held_back"] == "0"]
    for name, values in given.items():
        assert values == [float(row[name]) for row in steps], name


def test_the_package_finds_what_the_stand_in_is_made_of(tmp_path: Path) -> None:
    pytest.importorskip("simbatch.answers.fit")
    shape = find_shape("llama-2-13b")
    fake = FakeGPU(shape, H100, noise=0.003, kink=0)
    measure(fake, Table(tmp_path), jobs(shape, H100, 45_000, []))
    machine = {"fake": True, "gpu": H100.name, "device": "fake", "kv_tokens": 45_000}
    found = package_fit(read(tmp_path), shape, machine, fake.truth.weight_efficiency)
    value = found.card.values()
    assert value.kv_efficiency == pytest.approx(fake.truth.kv_efficiency, rel=0.05)
    assert value.compute_efficiency == pytest.approx(fake.truth.flop_efficiency, rel=0.10)
    assert found.card.error.median < 0.02
    assert found.card.kind == "estimated"
