"""`simbatch run`: what it writes where, its exit code, and that every flag arrives."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

import simbatch as sb
from simbatch.cli import main
from simbatch.cli.asked import engine_options, make_deployment
from simbatch.options import DEPLOYMENT_OPTIONS, Options

Simbatch = Callable[..., Result]
SMALL = ("--requests", "60", "--timing", "linear:base_ms=5,token_us=20,context_ns=20")
TOP = ["config", "verdict", "bound_by", "requests", "latency_s", "throughput", "goodput", "batch", "kv", "cost"]
FIGURES = ["mean", "p50", "p90", "p95", "p99", "max"]


def test_run_shows_a_verdict_latencies_memory_and_how_to_repeat_it(simbatch: Simbatch) -> None:
    done = simbatch("run", "sharegpt", "--rate", 20, *SMALL)
    assert (done.exit_code, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "STABLE: the queue does not keep growing while requests arrive."
    assert "60 requests: 60 finished." in lines
    for start in ("TTFT ", "TPOT ", "ITL ", "throughput ", "KV memory ", "trace       sharegpt · head(60) · at_rate("):
        assert any(line.startswith(start) for line in lines), start
    again = "repeat      simbatch run sharegpt --rate 20 --requests 60 --timing"
    assert lines[-2:] == [again, "            linear:base_ms=5,token_us=20,context_ns=20"] or lines[-1].startswith(
        again
    )
    assert max(map(len, lines)) <= 100


def test_json_is_one_object_with_the_keys_of_the_interface(simbatch: Simbatch) -> None:
    done = simbatch("run", "sharegpt", "--rate", 20, *SMALL, "--json", "--ttft", "1s", "--price", 2.5)
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert list(found)[: len(TOP)] == TOP
    assert set(found["bound_by"]) == {"kv", "max_num_seqs", "token_budget", "nothing"}
    assert list(found["latency_s"]) == ["ttft", "tpot", "itl", "e2e", "queue", "normalized"]
    assert all(list(figures) == FIGURES for figures in found["latency_s"].values())
    assert {"requests_per_s", "share"} <= found["goodput"].keys()
    assert found["cost"]["usd_per_hour"] == 2.5
    assert found["simulation"].keys() >= {"makespan_s", "iterations", "events", "wall_s"}
    assert found["config"]["trace"]["name"] == "sharegpt"
    assert found["config"]["timing"]["kind"] == "estimated"
    assert done.stderr == "".join(f"Warning: {warning}\n" for warning in found["warnings"])


def test_without_limits_and_price_goodput_and_cost_are_null(simbatch: Simbatch) -> None:
    found = json.loads(simbatch("run", "sharegpt", "--rate", 20, *SMALL, "--json").stdout)
    assert found["goodput"] is None
    assert found["cost"] is None


def test_the_command_line_computes_what_python_computes(simbatch: Simbatch) -> None:
    flags = ("--rate", 8, "--burstiness", 0.5, "--seed", 3, "--max-num-seqs", 4, "--max-model-len", "1k", "--sample")
    found = json.loads(simbatch("run", "sharegpt", *SMALL, *flags, "--tpot", "30ms", "--json").stdout)
    trace = sb.Trace.load("sharegpt").sample(60, seed=3).at_rate(8, burstiness=0.5, seed=3)
    here = sb.Deployment(max_num_seqs=4, max_model_len=1000)
    expected = sb.simulate(trace, here, timing="linear:base_ms=5,token_us=20,context_ns=20", seed=3)
    assert without_wall(found) == without_wall(expected.metrics(tpot_s=0.03))


def without_wall(metrics: dict[str, Any]) -> dict[str, Any]:
    """Metrics without the time they took, and without how they were asked for."""
    kept = {key: value for key, value in metrics.items() if key != "config"}
    return {**kept, "simulation": {**kept["simulation"], "wall_s": None}}


def test_one_iteration_at_a_time_gives_the_same(simbatch: Simbatch) -> None:
    fast, slow = (
        json.loads(simbatch("run", "sharegpt", "--rate", 20, *SMALL, "--json", *s).stdout) for s in ((), ("--step",))
    )
    assert slow["latency_s"] == fast["latency_s"]
    assert slow["config"]["step"] is True
    assert slow["simulation"]["events"] > fast["simulation"]["events"]


def test_the_trace_of_a_file_with_its_own_column_names(simbatch: Simbatch) -> None:
    Path("mine.csv").write_text("ts,in,out\n0,10,5\n500,20,5\n300,10,5\n-,1,1\n")
    columns = ("--columns", "arrival_s=ts,prompt_tokens=in,output_tokens=out")
    how = ("--drop-bad", "--sort", "--time-scale", "0.001", "--json", "--timing", "linear:base_ms=5")
    done = simbatch("run", "mine.csv", *columns, *how)
    assert done.exit_code == 0, done.stderr
    trace = json.loads(done.stdout)["config"]["trace"]
    assert (trace["rows"], trace["dropped"], trace["span_s"]) == (3, 1, 0.5)
    assert "Warning: mine.csv: 1 bad row was left out." in done.stderr


def test_everything_at_once_is_said(simbatch: Simbatch) -> None:
    done = simbatch("run", "sharegpt", *SMALL)
    assert done.stdout.startswith("OFFLINE: everything arrives at once")
    assert done.stderr == "Warning: the trace has no arrival times: everything arrives at time 0\n"


def test_quiet_writes_nothing_on_standard_error(simbatch: Simbatch) -> None:
    loud = simbatch("run", "sharegpt", *SMALL)
    quiet = simbatch("run", "sharegpt", *SMALL, "-q")
    assert quiet.stderr == ""
    assert quiet.stdout.splitlines()[:9] == loud.stdout.splitlines()[:9]


def test_flags_may_be_written_with_underscores_as_in_vllm(simbatch: Simbatch) -> None:
    done = simbatch("run", "sharegpt", *SMALL, "--max_num_seqs", 7, "-tp", 2, "--no-enable_chunked_prefill", "--json")
    config = json.loads(done.stdout)["config"]
    assert config["limits"]["max_num_seqs"] == 7
    assert config["limits"]["enable_chunked_prefill"] is False
    assert config["deployment"]["tensor_parallel_size"] == 2
    assert config["command"].endswith("--max-num-seqs 7 --tensor-parallel-size 2 --no-enable-chunked-prefill")


def test_every_engine_flag_reaches_the_engine(simbatch: Simbatch) -> None:
    flags: dict[str, Any] = {
        "--model": "qwen3-8b",
        "--gpu": "a100-80",
        "--dtype": "float16",
        "--quantization": "fp8",
        "--kv-cache-dtype": "fp8",
        "--gpu-memory-utilization": 0.5,
        "--num-gpu-blocks-override": 101,
        "--max-num-seqs": 9,
        "--max-num-batched-tokens": 512,
        "--max-num-active-seqs": 5,
        "--max-model-len": 1024,
        "--block-size": 32,
        "--watermark": 0.25,
        "--vllm-version": "0.11",
        "--scheduling-policy": "priority",
        "--long-prefill-token-threshold": 300,
        "--prefill-schedule-interval": 2,
    }
    words = [str(word) for pair in flags.items() for word in pair]
    words += ["--no-scheduler-reserve-full-isl", "--async-scheduling", "--no-enable-prefix-caching"]
    done = simbatch("run", "sharegpt", *SMALL, *words, "--long-prefill-token-threshold-adaptive", "--json")
    config = json.loads(done.stdout)["config"]
    own = {"model": "Qwen3-8B", "gpu": "A100-SXM-80GB", "num_gpu_blocks": 101, "kv_tokens": 3200, "quantization": "fp8"}
    assert own.items() <= config["deployment"].items()
    assert config["deployment"]["kv_cache_dtype"] == "fp8"
    assert config["deployment"]["dtype"] == "float16"
    assert config["deployment"]["gpu_memory_utilization"] == 0.5
    assert config["memory"]["block_size"] == 32
    assert config["limits"] == {
        "max_model_len": 1024,
        "max_num_seqs": 9,
        "max_num_batched_tokens": 512,
        "max_num_active_seqs": 5,
        "enable_chunked_prefill": True,
        "scheduler_reserve_full_isl": False,
        "watermark": 0.25,
        "scheduling_policy": "priority",
        "long_prefill_token_threshold": 300,
        "long_prefill_token_threshold_adaptive": True,
        "prefill_schedule_interval": 2,
    }
    assert config["vllm_version"] == "0.11"
    assert config["memory"]["name"] == "paged"
    assert {"async_scheduling": True, "enable_prefix_caching": False}.items() <= config["options"].items()


def test_vllm_of_today_plans_ahead_and_caches_prefixes(simbatch: Simbatch) -> None:
    today, plain = (
        json.loads(simbatch("run", "sharegpt", *SMALL, "--rate", 20, "--json", *flags).stdout)
        for flags in ((), ("--no-async-scheduling", "--no-enable-prefix-caching"))
    )
    assert today["config"]["vllm_version"] == plain["config"]["vllm_version"] == "0.33"
    assert (today["config"]["memory"]["name"], plain["config"]["memory"]["name"]) == (
        "paged, prefix caching",
        "paged",
    )
    # A request that arrives while a batch runs waits for one batch more.
    assert today["latency_s"]["ttft"]["mean"] > plain["latency_s"]["ttft"]["mean"] + 0.004
    assert today["throughput"] == pytest.approx(plain["throughput"], rel=0.02)


def test_parallel_samples_are_requests_of_their_own(simbatch: Simbatch) -> None:
    done = simbatch("run", "sharegpt", *SMALL, "--rate", 20, "--n", 3, "--json", "-o", "x")
    found = json.loads(done.stdout)
    assert found["requests"]["arrived"] == found["requests"]["finished"] == 180
    assert "with_samples(3)" in found["config"]["trace"]["transforms"]
    assert sb.Result.load("x").requests["id"].tolist()[:4] == ["0/0", "0/1", "0/2", "1/0"]
    # The second and the third find the prompt of the first, but for its last block.
    assert found["requests"]["cached_tokens"] > 0
    once = json.loads(simbatch("run", "sharegpt", *SMALL, "--rate", 20, "--n", 1, "--json").stdout)
    assert once["requests"]["arrived"] == 60


def test_what_has_no_effect_on_a_system_is_said(simbatch: Simbatch) -> None:
    done = simbatch(
        "run", "sharegpt", *SMALL, "--rate", 20, "--system", "naive", "--vllm-version", "0.11", "--swap-space", 1
    )
    assert done.exit_code == 0
    assert done.stderr == "Warning: vllm_version, swap_space: no effect on this system\n"


def test_every_option_of_the_library_has_a_flag() -> None:
    flags = {param.name for param in main.commands["run"].params}
    assert {field.name for field in fields(Options)} | DEPLOYMENT_OPTIONS <= flags


def test_what_was_not_given_is_left_to_the_library() -> None:
    nothing = {param.name: None for param in main.commands["run"].params}
    assert make_deployment(nothing) == sb.Deployment()
    assert engine_options(nothing) == {}


def test_a_policy_from_a_file_in_the_current_folder(simbatch: Simbatch) -> None:
    Path("shortest_first_story.py").write_text(
        "import simbatch as sb\n"
        "class ShortestFirst(sb.Continuous):\n"
        "    def __init__(self):\n"
        "        super().__init__(order=lambda sequence: sequence.prompt_tokens)\n"
    )
    flags = ("--scheduler", "shortest_first_story:ShortestFirst", "--max-num-seqs", 2, "--json")
    mine = json.loads(simbatch("run", "sharegpt", *SMALL, *flags).stdout)
    plain = json.loads(simbatch("run", "sharegpt", *SMALL, "--max-num-seqs", 2, "--json").stdout)
    assert mine["config"]["scheduler"]["name"] == "ShortestFirst"
    assert mine["latency_s"]["ttft"]["mean"] != plain["latency_s"]["ttft"]["mean"]


@pytest.mark.parametrize(("limit", "code"), [("10s", 0), ("1ns", 3)])
def test_require_makes_limits_the_exit_code(simbatch: Simbatch, limit: str, code: int) -> None:
    flags = ("--rate", 2, "--ttft", limit, "--percentile", 50)
    assert simbatch("run", "sharegpt", *SMALL, *flags, "--require").exit_code == code
    free = simbatch("run", "sharegpt", *SMALL, *flags)
    assert free.exit_code == 0
    assert f"Limits {'NOT MET' if code else 'MET'}:" in free.stdout


def test_limits_that_are_missed_are_missed_in_json_too(simbatch: Simbatch) -> None:
    done = simbatch("run", "sharegpt", *SMALL, "--e2e", "1ms", "--require", "--json")
    assert done.exit_code == 3
    assert json.loads(done.stdout)["goodput"]["share"] == 0
