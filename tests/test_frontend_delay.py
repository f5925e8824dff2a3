"""A delay in front of the engine: part of what a client sees, and of nothing that the engine does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

import simbatch as sb
from simbatch.errors import UsageError
from simbatch.units import PS_PER_S
from simbatch.waits import waits

Simbatch = Callable[..., Result]
WORLD: dict[str, Any] = {"timing": "linear:base_ms=10,token_us=100", "kv_tokens": 4_000, "max_model_len": 2048}
DELAY_S = 0.0075
DELAY_PS = 7_500_000_000


def both(trace: sb.Trace, **options: Any) -> tuple[sb.Result, sb.Result]:
    """Without and with the delay; each is held to the laws of conservation by the suite's fixture."""
    world = {**WORLD, **options}
    return sb.simulate(trace, **world), sb.simulate(trace, **world, frontend_delay_s=DELAY_S)


@pytest.mark.parametrize("system", ["vllm", "vllm-v0", "orca-max"])
@pytest.mark.parametrize("step", [False, True])
def test_it_is_added_to_every_latency_to_the_picosecond(system: str, step: bool) -> None:
    """Preemptions included: in little memory everything happens later by the delay and is otherwise the same."""
    trace = sb.Trace.load("sharegpt").head(60).at_rate(20, seed=0)
    plain, late = both(trace, system=system, step=step)
    for name in ("first_scheduled_ps", "first_token_ps", "finished_ps"):
        assert (late.facts.requests[name] - plain.facts.requests[name] == DELAY_PS).all(), name
    for name in ("arrival_ps", "preemptions", "output_tokens", "status"):
        assert (late.facts.requests[name] == plain.facts.requests[name]).all(), name
    assert (late.facts.rows["start_ps"] - plain.facts.rows["start_ps"] == DELAY_PS).all()
    before, after = plain.metrics()["latency_s"], late.metrics()["latency_s"]
    for name in ("ttft", "e2e", "queue"):
        assert after[name]["p99"] == pytest.approx(before[name]["p99"] + DELAY_S, abs=1e-9)
    assert after["tpot"] == before["tpot"]
    assert after["itl"] == before["itl"]
    split, own = waits(late.facts), waits(plain.facts)
    assert (split.ps["frontend"] == DELAY_PS).all()
    assert (split.latency_ps == own.latency_ps + DELAY_PS).all()
    assert all((split.ps[name] == own.ps[name]).all() for name in own.ps if name != "frontend")
    assert all((split.ps[name] >= 0).all() for name in split.ps)
    assert sum(split.ps.values()).tolist() == split.latency_ps.tolist()


def test_users_wait_for_it_in_every_turn() -> None:
    """One user, requests of one iteration's length known: each cycle is the delay and the request alone."""
    trace = sb.Trace.from_lengths([100] * 5, [1] * 5)
    plain, late = both(trace, concurrency=1, system="orca-max")
    took = plain.facts.requests["finished_ps"] - plain.facts.requests["arrival_ps"]
    sent = late.facts.requests["arrival_ps"]
    assert (np.diff(sent) == took[:-1] + DELAY_PS).all()
    assert (late.facts.requests["finished_ps"] - sent == took + DELAY_PS).all()
    assert plain.metrics()["throughput"]["requests_per_s"] > late.metrics()["throughput"]["requests_per_s"]


def test_sessions_wait_for_it_in_every_turn() -> None:
    trace = sb.Trace.from_columns(
        arrival_s=[0.0, 0.0, 5.0], prompt_tokens=[50, 80, 20], output_tokens=[2, 2, 2], session=["a", "a", "b"],
        turn=[1, 2, 1], think_s=[0.0, 1.0, 0.0],
    )  # fmt: skip
    plain, late = both(trace, system="orca-max")
    assert late.facts.requests["arrival_ps"][1] - plain.facts.requests["arrival_ps"][1] == DELAY_PS
    assert late.facts.requests["arrival_ps"][2] == plain.facts.requests["arrival_ps"][2] == 5 * PS_PER_S


def test_several_replicas_and_running_ahead() -> None:
    trace = sb.Trace.load("sharegpt").head(60).at_rate(20, seed=0)
    for router in ("round-robin", "least-loaded"):
        plain, late = both(trace, replicas=2, router=router)
        assert (late.facts.requests["finished_ps"] - plain.facts.requests["finished_ps"] == DELAY_PS).all()


def test_a_saved_run_keeps_it(tmp_path: Path) -> None:
    _, late = both(sb.Trace.load("sharegpt").head(20).at_rate(5, seed=0))
    late.save(tmp_path / "run")
    again = sb.Result.load(tmp_path / "run")
    assert again.facts.frontend_delay_ps == DELAY_PS
    assert again.metrics()["latency_s"] == late.metrics()["latency_s"]
    again.check()


def test_the_command_line(simbatch: Simbatch) -> None:
    small = ("sharegpt", "--rate", 5, "--requests", 20, "--timing", "linear:base_ms=5")
    plain, late = (
        json.loads(simbatch("run", *small, *more, "--json").stdout) for more in ((), ("--frontend-delay", "5ms"))
    )
    assert late["config"]["frontend_delay_s"] == 0.005
    assert late["latency_s"]["ttft"]["mean"] == pytest.approx(plain["latency_s"]["ttft"]["mean"] + 0.005, abs=1e-9)
    shown = simbatch("run", *small, "--frontend-delay", "5ms").stdout
    assert "front end   5.00 ms before the engine sees a request, part of TTFT and end to end" in shown
    assert "--frontend-delay 5ms" in " ".join(shown.split()), "the command that repeats it has it"
    assert "front end" not in simbatch("run", *small).stdout
    compared = simbatch("compare", *small, "--systems", "orca-max", "--frontend-delay", "5ms", "--json")
    assert json.loads(compared.stdout)["systems"]["orca-max"]["config"]["frontend_delay_s"] == 0.005
    wrong = simbatch("run", *small, "--frontend-delay", "5")
    assert (wrong.exit_code, wrong.stdout) == (2, "")


@pytest.mark.parametrize("wrong", [-0.1, 4000, float("nan"), "5ms", None, True])
def test_what_is_no_delay(wrong: Any) -> None:
    with pytest.raises(UsageError, match="frontend_delay_s is"):
        sb.simulate(sb.Trace.from_lengths([5], [5]), **WORLD, frontend_delay_s=wrong)
