"""Fits to what a client saw: made with known coefficients, found again; what a client cannot tell is left and said."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import simbatch as sb
from simbatch.answers.fit import ClientRun, fit
from simbatch.answers.fit.client import fit_clients, simulated
from simbatch.deployment import Deployment
from simbatch.errors import UsageError
from simbatch.timing.coefficients import Coefficients
from simbatch.timing.formula import FormulaTiming

HERE = Deployment("llama-3.1-8b", gpu="h100")
START = Coefficients(step_us=400, layer_us=33, kv_efficiency=0.92, sequence_us=2, compute_efficiency=0.7)
TRUTH = replace(START, step_us=2600, compute_efficiency=0.5)
FRONT_END_MS = 14.0


def run_of(prompt: int, output: int, concurrency: int, requests: int = 36) -> ClientRun:
    trace = sb.Trace.from_lengths([prompt] * requests, [output] * requests)
    return ClientRun(f"{prompt} in, {concurrency} at once", trace, None, None, concurrency)


def seen(run: ClientRun, truth: Coefficients = TRUTH, front_end_ms: float = FRONT_END_MS) -> ClientRun:
    """The same run with what its client would have measured."""
    found = simulated(run, HERE, truth, front_end_ms, {})
    return replace(run, ttft_s=found["ttft"], tpot_s=found["tpot"])


def runs() -> list[ClientRun]:
    return [seen(run_of(*what)) for what in ((64, 24, 1), (1500, 24, 2), (256, 24, 18))]


def test_what_was_put_in_comes_out_on_loads_that_were_not_fitted() -> None:
    found = fit_clients(runs(), HERE, START, front_end_ms=5.0)
    other = run_of(700, 60, 12)
    there, here = (
        simulated(other, HERE, found.coefficients, found.front_end_ms, {}),
        simulated(other, HERE, TRUTH, FRONT_END_MS, {}),
    )
    start = simulated(other, HERE, START, 5.0, {})
    assert abs(start["tpot"] / here["tpot"] - 1) > 0.2, "the start must be wrong for the test to say anything"
    assert there["tpot"] == pytest.approx(here["tpot"], rel=0.02)
    assert there["ttft"] == pytest.approx(here["ttft"], rel=0.04)
    assert found.coefficients.step_us == pytest.approx(TRUTH.step_us, rel=0.1)
    assert found.front_end_ms == pytest.approx(FRONT_END_MS, abs=2.5)
    assert max(map(abs, found.errors.values())) < 0.02


def test_what_one_load_cannot_tell_keeps_its_start_and_is_said() -> None:
    """Two figures hold two numbers: the others stay, each with its reason."""
    found = fit_clients([seen(run_of(256, 40, 4))], HERE, START)
    assert len(found.free) <= 2
    assert set(found.kept) | set(found.free) == {
        "step_us",
        "kv_efficiency",
        "sequence_us",
        "compute_efficiency",
        "front_end_ms",
    }
    for name in set(found.kept) - {"front_end_ms"}:
        assert getattr(found.coefficients, name) == getattr(START, name)
    assert any("cannot tell it from" in why or "nothing that was measured" in why for why in found.kept.values())


def test_without_first_tokens_the_delay_in_front_cannot_be_told() -> None:
    some = [replace(run, ttft_s=None) for run in runs()]
    found = fit_clients(some, HERE, START, front_end_ms=5.0)
    assert found.front_end_ms == 5.0
    assert "nothing that was measured depends on it" in found.kept["front_end_ms"]


def test_pins_hold() -> None:
    """And the card says what it was fitted to, and how."""
    found = fit(runs(), HERE, pins={"kv_efficiency": 0.81, "compute_efficiency": 0.5}, start="h100-80gb", name="mine")
    values = found.card.values()
    assert (values.kv_efficiency, values.compute_efficiency) == (0.81, 0.5)
    assert found.card.coefficients["kv_efficiency"].origin == "pinned"
    assert "kv_efficiency: 0.81, as asked" in found.card.notes
    assert found.card.runs == 3
    assert found.card.model == "Llama-3.1-8B"
    assert "it was fitted to" in found.card.error.how
    assert found.card.error.step >= 0.03, "a few averages are no proof of less"
    assert found.card.measured["sequences"][1] == 18
    assert any("started from h100-80gb" in note for note in found.card.notes)


def test_a_result_file_of_vllm_bench(tmp_path: Path) -> None:
    """Its lengths and its load are replayed; a profile comes out that gives its figures again."""
    run = run_of(300, 30, 8, requests=40)
    known = simulated(run, HERE, TRUTH, FRONT_END_MS, {})
    path = tmp_path / "bench.json"
    result = {
        "completed": 40,
        "max_concurrency": 8,
        "request_rate": "inf",
        "input_lens": [300] * 40,
        "output_lens": [30] * 40,
        "mean_ttft_ms": known["ttft"] * 1e3,
        "mean_tpot_ms": known["tpot"] * 1e3,
    }
    path.write_text(json.dumps(result))
    found = fit(path, HERE)
    again = simulated(run, HERE, found.card.values(), found.card.front_end_ms or 0.0, {})
    assert again["tpot"] == pytest.approx(known["tpot"], rel=0.02)
    assert again["ttft"] == pytest.approx(known["ttft"], rel=0.05)


def test_fits_that_cannot_be_made() -> None:
    with pytest.raises(UsageError, match="no run has a TTFT or a TPOT"):
        fit_clients([run_of(64, 8, 1)], HERE, START)
    with pytest.raises(UsageError, match="Give a deployment"):
        fit(runs())
    too_long = sb.Trace.from_lengths([200_000], [10])
    with pytest.raises(UsageError, match="nothing was served"):
        fit_clients([ClientRun("too long", too_long, 0.1, 0.01, 1)], HERE, START)
    with pytest.raises(UsageError, match="timing coefficient"):
        fit(runs(), HERE, pins={"kv_eficiency": 0.9})


def test_the_formula_is_what_a_client_fit_simulates() -> None:
    """One request alone: prefill, then a decode an iteration, and the delay in front on its first token only."""
    run = run_of(100, 11, 1, requests=1)
    plain, late = (simulated(run, HERE, TRUTH, front, {}) for front in (0.0, 25.0))
    result = sb.simulate(run.trace, HERE, timing=FormulaTiming(HERE, TRUTH), concurrency=1)
    assert plain["ttft"] == pytest.approx(result.metrics()["latency_s"]["ttft"]["mean"])
    assert late["ttft"] - plain["ttft"] == pytest.approx(0.025)
    assert late["tpot"] == plain["tpot"]
