"""What Python hands over is checked by kind: one UsageError that names the argument, never a TypeError from inside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import simbatch as sb
from simbatch.checks import MOST, flag, real, whole

TRACE = sb.Trace.from_columns(arrival_s=[0, 1], prompt_tokens=[10, 20], output_tokens=[5, 7])
HERE = sb.Deployment()


class Mine(sb.Continuous):
    """A scheduler."""


def run(**options: Any) -> sb.Result:
    return sb.simulate(TRACE, **{"deployment": HERE, **options})


WRONG: list[tuple[Callable[[], object], str]] = [
    (
        lambda: sb.Deployment(tensor_parallel_size=2.0),
        "tensor_parallel_size is 2.0. Give a whole number of at least 1.",
    ),
    (lambda: sb.Deployment(kv_tokens=1.5), "kv_tokens is 1.5. Give a whole number of at least 1."),
    (lambda: sb.Deployment(max_num_seqs=True), "max_num_seqs is True. Give a whole number of at least 1."),
    (lambda: sb.Deployment(num_gpu_blocks=1), "num_gpu_blocks is 1. Give a whole number of at least 2."),
    (
        lambda: sb.Deployment(kv_tokens=MOST + 1),
        "but the most that can be simulated is 9,007,199,254,740,992. Give less.",
    ),
    (lambda: sb.Deployment(5), "model is 5. Give a name, a folder with a config.json or a ModelShape."),
    (lambda: sb.Deployment(gpu=None), "gpu is None. Give a name or a GPU."),
    (lambda: sb.Deployment(dtype=16), "dtype is 16. Give a name."),
    (lambda: sb.Deployment(quantization=8), "quantization is 8. Give a name."),
    (lambda: sb.Deployment(enable_chunked_prefill="no"), "enable_chunked_prefill is 'no'. Give True or False."),
    (lambda: sb.Deployment(gpu_memory_utilization="0.9"), "gpu_memory_utilization is '0.9'. Give a number."),
    (lambda: sb.Deployment(gpu_memory_utilization=float("nan")), "gpu_memory_utilization is nan, but it is a share"),
    (lambda: sb.Deployment(price_usd_per_hour="2"), "price_usd_per_hour is '2'. Give a number of dollars."),
    (lambda: run(watermark="x"), "watermark is 'x'. Give a number."),
    (lambda: run(swap_space="x"), "swap_space is 'x'. Give a number."),
    (lambda: run(max_num_seqs=2.5), "max_num_seqs is 2.5. Give a whole number of at least 1."),
    (lambda: run(enable_prefix_caching="no"), "enable_prefix_caching is 'no'. Give True or False."),
    (lambda: run(scheduling_policy=1), "scheduling_policy is 1. Give a name."),
    (
        lambda: run(long_prefill_token_threshold=-1),
        "long_prefill_token_threshold is -1. Give a whole number of at least 0.",
    ),
    (lambda: run(concurrency="5"), "the concurrency is '5'. Give a whole number."),
    (lambda: run(system=5), "the system is 5. Give a name."),
    (lambda: run(scheduler=Mine), "Mine, the class and not an object such as Mine(), is not a scheduler. Derive"),
    (
        lambda: run(scheduler=0),
        "0 is not a scheduler. Derive its class from simbatch.Scheduler or simbatch.Continuous.",
    ),
    (
        lambda: run(memory=sb.PagedMemory),
        "PagedMemory, the class and not an object such as PagedMemory(), is not a memory.",
    ),
    (lambda: run(timing=5), "5 is not a timing: it has no progression. See simbatch.Timing for what it needs."),
    (lambda: sb.simulate("sharegpt", HERE), "the trace is 'sharegpt', not a Trace. Load one, such as Trace.load("),
    (
        lambda: sb.simulate(TRACE, "h100"),
        "the deployment is 'h100'. Give a Deployment, such as Deployment(gpu='h100').",
    ),
    (lambda: sb.compare("sharegpt", HERE), "the trace is 'sharegpt', not a Trace. Load one, such as Trace.load("),
    (
        lambda: sb.simulate(TRACE, timing="linear:base_ms=1", kv_tokens=10**23, max_model_len=99),
        "kv_tokens is 1000000000000",
    ),
    (
        lambda: sb.simulate(TRACE, timing="linear:base_ms=1", num_gpu_blocks=MOST, max_model_len=99),
        "num_gpu_blocks * block",
    ),
    (lambda: sb.Trace.load(5), "the trace is 5. Give a name or the path of a csv or jsonl file."),
    (lambda: TRACE.at_rate("5"), "the rate is '5'. Give a number."),
    (lambda: TRACE.at_rate(5, burstiness="1"), "the burstiness is '1'. Give a number."),
    (lambda: TRACE.at_rate(5, seed=1.5), "the seed is 1.5. Give a whole number."),
    (lambda: TRACE.head("5"), "the number of requests is '5'. Give a whole number."),
    (lambda: TRACE.sample(2.5), "the number of requests is 2.5. Give a whole number."),
    (lambda: TRACE.time_scaled("2"), "time_scale is '2'. Give a number."),
    (lambda: TRACE.with_samples(0), "the number of samples is 0. Give a whole number of at least 1."),
    (lambda: TRACE.with_samples(1.0), "the number of samples is 1.0. Give a whole number of at least 1."),
    (lambda: run().metrics(ttft_s="1"), "the limit ttft is '1'. Give a number of seconds."),
    (lambda: run().metrics(percentile="x"), "the percentile is 'x'. Give a number."),
    (lambda: run().metrics(warmup_s=(1,)), "the warm-up is (1,). Give a number of seconds."),
    (lambda: run().metrics(price_usd_per_hour="x"), "the price is 'x'. Give a number of dollars."),
    (
        lambda: run().metrics(price_usd_per_hour=-1),
        "the price is -1. Give dollars per hour for all GPUs together, 0 or",
    ),
    (lambda: run().save("/proc/foo"), "/proc/foo cannot be made ("),
    (lambda: run().save(5), "the folder is 5. Give a path"),
    (lambda: sb.Result.load(None), "the folder is None. Give a path"),
    (lambda: TRACE.save(5), "the file is 5. Give a path"),
    (lambda: sb.Trace.load("sharegpt", columns="x"), "columns is 'x'. Give a dict of names"),
    (lambda: sb.Trace.load("sharegpt", columns={"output_tokens": 3}), "columns is {'output_tokens': 3}. Give a dict"),
    (lambda: sb.LinearTiming(base_ms="5"), "linear timing: base_ms is '5'. Give a number."),
    (lambda: sb.LinearTiming(token_us=None), "linear timing: token_us is None. Give a number."),
    (lambda: sb.capacity("llama"), "the deployment is 'llama'. Give a Deployment"),
    (lambda: sb.compare(TRACE, HERE, systems=5), "the systems are 5. Give names"),
    (lambda: sb.sweep(TRACE, HERE, grid=5), "the grid is 5. Give names and values to try"),
    (lambda: sb.sweep(TRACE, HERE, grid={"seed": [1]}, folder=5), "the folder is 5. Give a path"),
    (lambda: sb.sweep(5, HERE, grid={"seed": [1]}), "the trace is 5, not a Trace."),
    (lambda: sb.sweep(TRACE, "h100", grid={"seed": [1]}), "the deployment is 'h100'. Give a Deployment"),
    (lambda: sb.size(5, HERE, ttft_s=1), "the trace is 5, not a Trace."),
    (lambda: sb.size(TRACE, "h100", ttft_s=1), "the deployment is 'h100'. Give a Deployment"),
]


@pytest.mark.parametrize(("wrong", "text"), WRONG, ids=[text[:40] for _, text in WRONG])
def test_the_wrong_kind_is_a_usage_error(wrong: Callable[[], object], text: str) -> None:
    with pytest.raises(sb.UsageError) as caught:
        wrong()
    assert text in str(caught.value)


def test_numbers_of_numpy_are_numbers() -> None:
    here = sb.Deployment(kv_tokens=np.int64(4096), gpu_memory_utilization=np.float32(0.5), max_model_len=np.int32(512))
    assert (here.kv_tokens, here.max_model_len, type(here.kv_tokens)) == (4096, 512, int)
    result = run(max_num_seqs=np.int64(1), watermark=np.float64(0.1), async_scheduling=np.bool_(False))
    assert result.metrics()["batch"]["running_max"] == 1
    assert TRACE.head(np.int64(1)).at_rate(np.float64(5), seed=np.int64(3)) == TRACE.head(1).at_rate(5.0, seed=3)


def test_the_checks_themselves() -> None:
    assert (whole("n", np.int8(3)), real("x", np.float32(0.5)), flag("f", np.bool_(True))) == (3, 0.5, True)
    assert (whole("n", -5, least=None), whole("n", MOST), real("x", 2)) == (-5, MOST, 2.0)
    for wrong in (True, 2.0, "2", None, 0, MOST + 1, 10**5000):
        with pytest.raises(sb.UsageError, match="n is "):
            whole("n", wrong)
    for wrong in (1, 0, None, "True"):
        with pytest.raises(sb.UsageError, match="Give True or False"):
            flag("f", wrong)
