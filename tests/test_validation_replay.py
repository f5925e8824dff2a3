"""One scheduler, two executors: what a (fake) GPU ran is what the simulator decides, step for step."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

import simbatch as sb
from simbatch.deployment import find_gpu
from simbatch.memory import PagedMemory
from simbatch.timing import Iteration
from validation.fake import FakeGPU
from validation.fit import Piecewise
from validation.form import Coefficients
from validation.on_gpu import OnGPU
from validation.profile import FORMAT, Profile, sums_of
from validation.replay import Replay, replay, write
from validation.shape import find_shape
from validation.work import Row, Work

SHAPE = find_shape("llama-2-13b")
H100 = find_gpu("h100")
SYSTEMS = ("vllm", "vllm-v0", "sarathi", "static", "naive", "orca-max", "orca-pow2", "orca-oracle")


def truth(form: str = "formula") -> Profile:
    """The profile that knows the stand-in's own coefficients."""
    table = Piecewise((1, 2048), (0.01, 0.05), 1e-7, 1e-9)
    return Profile(
        {
            "format": FORMAT,
            "kind": "fake",
            "model": SHAPE.name,
            "layers": SHAPE.layers,
            "gpu": H100.name,
            "formula": Coefficients().describe(),
            "piecewise": vars(table),
        },
        form,
    )


def run(system: str, fake: FakeGPU, profile: Profile | None = None, rate: float | None = None) -> Replay:
    trace = sb.Trace.load("sharegpt").head(8 if system in ("naive", "static") else 24)
    if rate is not None:
        trace = trace.at_rate(rate, seed=3)
    return replay(
        trace,
        system,
        fake,
        vocab=SHAPE.vocab,
        kv_tokens=6144,
        max_num_batched_tokens=512 if system in ("vllm", "sarathi") else 2048,
        max_num_seqs=64,
        batch_size=3,
        profile=profile,
    )


@pytest.mark.parametrize("rate", [None, 4.0])
@pytest.mark.parametrize("system", SYSTEMS)
def test_the_simulator_follows_a_noisy_gpu_step_for_step(system: str, rate: float | None) -> None:
    found = run(system, FakeGPU(SHAPE, H100, noise=0.2, kink=0.3), rate=rate)
    assert found.first_difference() is None
    assert found.summary()["same_end"]
    steps = found.measured.decisions or []
    assert [row["T"] for row in found.clock.log] == [step["tok"] for step in steps]
    prefills = sum(counts.prefill_tokens for counts in found.clock.counts)
    assert prefills + sum(counts.rows for counts in found.clock.counts) == sum(step["tok"] for step in steps)
    if system in ("vllm", "vllm-v0", "sarathi") and rate is None:
        assert found.summary()["preemptions"] > 0, "memory is tight, so that preemption is part of it"


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_gpu_without_noise_is_predicted_to_the_picosecond(system: str) -> None:
    """The profile that is the stand-in's own truth gives the same run, composition and time, at any load."""
    found = run(system, FakeGPU(SHAPE, H100, noise=0.0, kink=0.0), truth(), rate=6.0)
    assert found.predicted is not None
    assert found.predicted.decisions == found.measured.decisions
    assert max(map(abs, found.step_errors())) < 1e-12
    assert all(end["error"] == 0 for end in found.ends().values())


def test_the_same_run_ahead_of_time_too() -> None:
    """The predicted run with the simulator's own blocks and the memory with tables are one and the same."""
    found = run("vllm", FakeGPU(SHAPE, H100, noise=0.0, kink=0.0), truth())
    limits = {"kv_tokens": 6144, "max_model_len": 2048, "max_num_seqs": 64, "max_num_batched_tokens": 512}
    trace = sb.Trace.load("sharegpt").head(24)
    memory = PagedMemory(6144 // 16, 16)
    ahead = sb.simulate(
        trace, memory=memory, timing=truth(), enable_prefix_caching=False, async_scheduling=False, **limits
    )
    assert ahead.requests.equals(found.measured.requests)


def test_another_decision_is_found_and_named() -> None:
    found = run("vllm", FakeGPU(SHAPE, H100))
    (found.followed.decisions or [])[5]["sched"] = []
    assert (found.first_difference() or "").startswith("iteration 5, sched: measured run [[")
    assert not found.summary()["same_decisions"]


def test_everything_is_written(tmp_path: Path) -> None:
    found = run("vllm", FakeGPU(SHAPE, H100), truth())
    summary = write(found, tmp_path / "replay-vllm")
    folder = tmp_path / "replay-vllm"
    assert json.loads((folder / "summary.json").read_text()) == summary
    log = (folder / "gpu_steps.csv").read_text().splitlines()
    assert log[0] == "i,T,B,K,chunks,bucket,gpu_ms,host_ms"
    assert len(log) == summary["iterations"] + 1
    assert len((folder / "simulated_steps.csv").read_text().splitlines()) > 100
    for name in ("measured", "followed", "predicted"):
        with gzip.open(folder / f"{name}_decisions.jsonl.gz", "rt") as file:
            assert json.loads(file.readline())["i"] == 0
        assert (folder / f"{name}_requests.csv").exists()
    assert summary["step_error"]["mean"] < 0.01
    assert summary["ends"]["total"]["error"] == pytest.approx(0, abs=0.01)


def test_host_time_is_apart_unless_asked_for() -> None:
    trace = sb.Trace.from_columns(arrival_s=[0, 0], prompt_tokens=[40, 50], output_tokens=[20, 30])
    ends = {}
    for host in (False, True):
        found = replay(trace, "vllm", FakeGPU(SHAPE, H100, noise=0), vocab=97, kv_tokens=4096, host_in_time=host)
        gpu_s = sum(row["gpu_ms"] for row in found.clock.log) / 1e3
        host_s = sum(row["host_ms"] for row in found.clock.log) / 1e3
        ends[host] = found.measured.metrics()["simulation"]["makespan_s"]
        assert ends[host] == pytest.approx(gpu_s + host_s * host, rel=1e-9)
        assert host_s > 0
    assert ends[True] > ends[False]


def test_on_gpu_runs_only_what_it_can_see() -> None:
    clock = OnGPU(FakeGPU(SHAPE, H100), SHAPE.vocab)
    with pytest.raises(sb.UsageError, match="without a plan"):
        clock.progression(Iteration())
    trace = sb.Trace.from_columns(prompt_tokens=[4], output_tokens=[2])
    with pytest.raises(sb.UsageError, match="does not say where it lies"):
        sb.simulate(trace, memory=PagedMemory(8, 16), timing=clock, step=True, kv_tokens=128, max_model_len=64)


def test_counts_of_work_are_those_the_simulator_tells_a_timing() -> None:
    seen = []

    class Both(OnGPU):
        def progression(self, iteration: Iteration) -> tuple[int, int, int]:
            answer = super().progression(iteration)
            told, ran = sums_of(iteration), self.counts[-1]
            seen.append(len(ran.chunks))
            for name in told._fields:
                assert getattr(told, name) == getattr(ran, name), name
            return answer

    from validation.tables import BlockTables

    trace = sb.Trace.load("sharegpt").head(24)
    sb.simulate(
        trace,
        memory=BlockTables(256, 16),
        timing=Both(FakeGPU(SHAPE, H100), SHAPE.vocab),
        step=True,
        kv_tokens=4096,
        max_model_len=2048,
        max_num_seqs=64,
        max_num_batched_tokens=512,
        enable_prefix_caching=False,
        async_scheduling=False,
    )
    assert max(seen) > 1


def test_padding_to_a_bucket_costs_what_the_bucket_costs() -> None:
    fake = FakeGPU(SHAPE, H100, noise=0)
    rows = [Row([1], 99, []) for _ in range(33)]
    counts = Work(rows).counts()
    assert (counts.rows, counts.bucket, counts.context_tokens) == (33, 48, 3300)
    assert fake.seconds(counts) > fake.seconds(Work(rows[:32]).counts())
