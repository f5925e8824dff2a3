"""Laws that hold whatever the hardware: conservation, batching, memory, cost, the roof.

T1 to T16 are the rows of the reference list of such laws; T3 to T7 and T15, which are about queues,
are in `test_theory_queues`. What can be exact is compared exactly. Where a mean over drawn lengths
is compared with an expectation, four standard errors of that mean are allowed, from its known variance.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import simbatch as sb
from simbatch.conservation import unseen_ps
from simbatch.facts import durations_ps
from simbatch.stats import exact_dot, exact_sum
from simbatch.systems import SYSTEMS
from simbatch.timing import Iteration

STEP = "linear:base_ms=1"
COST = "linear:base_ms=25.6,sequence_us=447,prefill_token_us=170"


def bundled(count: int, seed: int = 0) -> sb.Trace:
    return sb.Trace.load("sharegpt").sample(count, seed=seed)


def run(trace: sb.Trace, system: str, timing: str = COST, **options: Any) -> sb.Result:
    options = {"kv_tokens": 15_728, "max_model_len": 2048, **options}
    result = sb.simulate(trace, system=system, timing=timing, **options)
    result.check()
    return result


def geometric(mean_tokens: int, count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).geometric(1 / mean_tokens, count)


def backlog(outputs: np.ndarray, system: str, seats: int, timing: str = STEP, prompt_tokens: int = 1) -> sb.Result:
    """Everything at once on *seats* seats, memory no matter."""
    trace = sb.Trace.from_lengths(np.full(outputs.size, prompt_tokens), outputs)
    return run(trace, system, timing, kv_tokens=1 << 30, max_model_len=1 << 16, batch_size=seats, max_num_seqs=seats)


def makespan_ps(result: sb.Result) -> int:
    return int(result.facts.requests["finished_ps"].max())


# -- T1 and T2: nothing is lost ----------------------------------------------------------------------


def test_t1_little_for_queue_batch_and_memory() -> None:
    """Area under a number = sum of times: queue and batch in whole picoseconds, KV memory to a float's last digits."""
    trace = bundled(1500).at_rate(1.4, seed=3)
    facts = run(trace, "orca-oracle").facts
    requests, rows, lasts = facts.requests, facts.rows, durations_ps(facts.rows)
    assert requests["preemptions"].sum() == 0
    waited = exact_sum(requests["first_scheduled_ps"] - requests["arrival_ps"])
    seen = exact_dot(rows["waiting"], lasts)
    assert seen > waited / 2
    assert waited == seen + exact_sum(unseen_ps(facts, requests["arrival_ps"]))
    stay = requests["finished_ps"] - requests["first_scheduled_ps"]
    assert exact_sum(stay) == exact_dot(rows["running"], lasts)
    held = float((rows["live_mean"] + rows["reserved_mean"] + rows["internal_mean"]) @ lasts)
    assert held == pytest.approx(exact_dot(requests["prompt_tokens"] + requests["output_tokens"], stay), rel=1e-12)


LEDGER: Counter[str] = Counter()


class Ledger(sb.PagedMemory):
    """Books every block that is taken, by any of the three ways, and every one that is given back."""

    def _book(self, before: int, answer: Any) -> Any:
        LEDGER["allocated"] += before - self.free_blocks
        return answer

    def take(self, *args: Any, **kwargs: Any) -> bool:
        return self._book(self.free_blocks, super().take(*args, **kwargs))

    def grow(self, spare: int = 0) -> bool:
        return self._book(self.free_blocks, super().grow(spare))

    def advance(self, *args: Any) -> None:
        self._book(self.free_blocks, super().advance(*args))

    def release(self, sequence: sb.Sequence) -> int:
        blocks = super().release(sequence)
        LEDGER["freed"] += blocks
        return blocks


@pytest.mark.parametrize("step", [True, False])
@pytest.mark.parametrize("system", SYSTEMS)
def test_t2_conservation(system: str, step: bool) -> None:
    trace = bundled(60, seed=5).at_rate(4, seed=5)
    LEDGER.clear()
    result = run(trace, system, memory=Ledger(3072 // 16), kv_tokens=3072, step=step)
    counts = result.metrics()["requests"]
    assert counts["arrived"] == 60 == counts["finished"] + counts["refused"] + counts["unfinished"]
    assert counts["finished"] == 60
    assert result.requests["output_tokens"].tolist() == trace.output_tokens.tolist()
    assert LEDGER["allocated"] == LEDGER["freed"] > 0
    if system not in ("naive", "static"):
        assert counts["preemptions"] > 0
    if result.decisions is not None:
        assert sum(decision["nout"] for decision in result.decisions) == trace.output_tokens.sum()


# -- T8 and T9: a batch waits for its longest --------------------------------------------------------


def expected_longest(mean_tokens: int, n: int) -> float:
    """E[max of n geometric lengths], the discrete Hₙ · mean."""
    k = np.arange(60 * mean_tokens)
    return float((1 - (1 - (1 - 1 / mean_tokens) ** k) ** n).sum())


@pytest.mark.parametrize(("n", "harmonic"), [(2, 1.5), (4, 2.083), (8, 2.718), (16, 3.381), (32, 4.059)])
def test_t8_static_batches_take_as_long_as_their_longest(n: int, harmonic: float) -> None:
    mean, count = 200, 6400
    outputs = geometric(mean, count, seed=n)
    result = backlog(outputs, "static", n)
    longest = outputs.reshape(-1, n).max(axis=1)
    assert makespan_ps(result) == longest.sum() * 10**9
    closed = expected_longest(mean, n)
    assert closed / mean == pytest.approx(harmonic, rel=2 / mean)
    error = mean * sum(1 / k**2 for k in range(1, n + 1)) ** 0.5 / (count / n) ** 0.5
    assert makespan_ps(result) / 10**9 / (count / n) == pytest.approx(closed, abs=4 * error)
    seats_in_use = result.metrics()["batch"]["running_mean"] / n
    assert seats_in_use == pytest.approx(outputs.sum() / (n * longest.sum()), rel=1e-12)
    assert seats_in_use == pytest.approx(1 / harmonic, rel=4 * (error / closed + 1 / count**0.5) + 2 / mean)


@pytest.mark.parametrize("n", [4, 16])
def test_t9_gain_of_continuous_over_static(n: int) -> None:
    mean, count = 200, 6400
    outputs = geometric(mean, count, seed=n)
    static, continuous = (makespan_ps(backlog(outputs, system, n)) for system in ("static", "orca-max"))
    # The continuous batch is full until the queue is empty; after that it lasts no longer than the longest.
    assert outputs.sum() / n <= continuous / 10**9 <= outputs.sum() / n + outputs.max()
    closed = expected_longest(mean, n) / mean
    error = closed * (n / count) ** 0.5 + closed * outputs.max() * n / outputs.sum()
    assert static / continuous == pytest.approx(closed, abs=4 * error)
    equal = [makespan_ps(backlog(np.full(160, 50), system, n)) for system in ("static", "orca-max")]
    assert equal == [160 // n * 50 * 10**9] * 2


# -- T10 and T11: what memory holds ------------------------------------------------------------------


@pytest.mark.parametrize("memory_tokens", [15_728, 32_187, 65_536])
@pytest.mark.parametrize(
    ("placement", "max_model_len"),
    [("buddy", 2048), ("buddy", 512), ("first-fit", 2048), ("first-fit", 1500), ("best-fit", 777)],
)
def test_t10_reserving_the_maximum(placement: str, max_model_len: int, memory_tokens: int) -> None:
    """Concurrency is ⌊memory ÷ longest⌋, whatever the lengths; under buddy for powers of two."""
    draw = np.random.default_rng(1)
    trace = sb.Trace.from_lengths(draw.integers(1, 300, 400), draw.integers(1, 200, 400))
    options = {"kv_tokens": memory_tokens, "max_model_len": max_model_len, "placement": placement}
    result = run(trace, "orca-max", STEP, **options)
    seats = memory_tokens // max_model_len
    full = result.facts.rows["waiting"] > 0
    assert full.any()
    assert set(result.facts.rows["running"][full]) == {seats}


def test_t10_buddy_rounds_other_lengths_up() -> None:
    rows = run(bundled(50), "orca-max", STEP, kv_tokens=16_384, max_model_len=1500).facts.rows
    assert rows["running"].max() == 16_384 // 2048 < 16_384 // 1500


@pytest.mark.parametrize("block_size", [1, 8, 16, 32])
@pytest.mark.parametrize("system", ["vllm-v0", "vllm", "sarathi"])
def test_t11_waste_of_paged_memory(system: str, block_size: int) -> None:
    """(block - 1) / 2 tokens a sequence on average, exactly where each decode phase is met equally often; no more ever.

    Waste is what is held beyond the tokens in the cache and the one being computed.
    """
    draw = np.random.default_rng(2)
    # The first output comes with the prompt, then whole turns of the block.
    trace = sb.Trace.from_lengths(draw.integers(1, 200, 60), 1 + 32 * draw.integers(1, 20, 60))
    options = {"block_size": block_size, "kv_tokens": 1 << 20, "max_num_seqs": 60, "max_num_batched_tokens": 1 << 15}
    # An engine that plans one iteration ahead has one more token in flight.
    rows = run(trace, system, STEP, async_scheduling=False, **options).facts.rows
    assert not rows["external"].any()
    decoding = rows["prefill_tokens"] == 0
    waste = rows["reserved"] + rows["internal"] - rows["running"]
    assert decoding.sum() > 10
    assert (waste[decoding] >= 0).all()
    assert (waste <= (block_size - 1) * rows["running"])[decoding].all()
    lasts = durations_ps(rows)[decoding].astype(float)
    wasted = (rows["reserved_mean"] + rows["internal_mean"])[decoding] - rows["running"][decoding]
    assert wasted @ lasts == pytest.approx((block_size - 1) / 2 * float(rows["running"][decoding] @ lasts), rel=1e-9)


# -- T12 to T14: rates, latency, cost ----------------------------------------------------------------


def test_t12_output_rate_in_saturation() -> None:
    """batch ÷ step time less the share of prompts, up to the drain of the last batch."""
    batch, prompt, outputs = 16, 300, geometric(150, 4000)
    result = backlog(outputs, "orca-max", batch, COST, prompt)
    step_s, prompts_s = (25.6 + 0.447 * batch) / 1e3, 170e-6 * prompt * outputs.size
    closed_s = outputs.sum() / batch * step_s + prompts_s
    took_s = makespan_ps(result) / 1e12
    assert closed_s - 1e-6 < took_s < closed_s + outputs.max() * step_s
    rate = batch / step_s * (1 - prompts_s / took_s)
    drain = outputs.max() * batch / outputs.sum()
    assert result.metrics()["throughput"]["output_tokens_per_s"] == pytest.approx(rate, rel=drain)


@pytest.mark.parametrize("system", SYSTEMS)
def test_t12_below_saturation_output_rate_is_arrival_rate(system: str) -> None:
    trace = bundled(400, seed=7).at_rate(0.05, seed=7)
    metrics = run(trace, system).metrics()
    assert trace.arrival_ps is not None
    span_s = (trace.arrival_ps[-1] - trace.arrival_ps[0]) / 1e12
    offered = trace.output_tokens.sum() / span_s
    # The clock stops when the last has finished, which is at most the longest stay after it came.
    slack = metrics["latency_s"]["e2e"]["max"] / span_s
    assert slack < 0.03
    assert offered * (1 - slack) <= metrics["throughput"]["output_tokens_per_s"] < offered
    assert metrics["verdict"] == "stable"


@pytest.mark.parametrize("system", ["naive", "orca-oracle", "vllm-v0", "sarathi", "vllm"])
def test_t13_end_to_end_is_ttft_and_gaps(system: str) -> None:
    """Every token's time read off the step log, request by request, in whole nanoseconds; preemptions included.

    An engine that plans one iteration ahead computes at most one token beyond a request's last.
    """
    trace = bundled(80, seed=9).at_rate(3, seed=9)
    result = run(trace, system, kv_tokens=5120, step=True)
    known = dict(zip(result.requests["id"], trace.prompt_tokens.tolist(), strict=True))
    times_ns: dict[str, list[float]] = {name: [] for name in known}
    for step in result.decisions or []:
        for name, count, before in step["sched"]:
            if before + count == known[name]:
                known[name] += 1
                times_ns[name].append(step["t1"])
    assert (result.requests["preemptions"].sum() > 0) == (system in ("vllm-v0", "sarathi", "vllm"))
    for row in result.requests.itertuples():
        times, beyond = times_ns[row.id][: row.output_tokens], times_ns[row.id][row.output_tokens :]
        assert len(times) == row.output_tokens
        assert len(beyond) <= (system == "vllm")
        assert row.first_token_s * 1e9 == pytest.approx(times[0], abs=1)
        gaps_s = np.diff(times).mean() / 1e9 if len(times) > 1 else 0.0
        ttft_s = row.first_token_s - row.arrival_s
        assert row.finished_s - row.arrival_s == pytest.approx(ttft_s + (row.output_tokens - 1) * gaps_s, abs=1e-8)


def test_t14_cost_follows_throughput_only_at_full_load() -> None:
    fast, slow = "linear:base_ms=10,sequence_us=200", "linear:base_ms=20,sequence_us=400"
    cost: dict[tuple[str, str], float] = {}
    for load, trace in (("full", bundled(300)), ("low", bundled(300).at_rate(0.2, seed=1))):
        for speed in (fast, slow):
            metrics = run(trace, "vllm-v0", speed).metrics(price_usd_per_hour=2.99)
            per_s = metrics["throughput"]["output_tokens_per_s"]
            cost[load, speed] = metrics["cost"]["usd_per_million_output_tokens"]
            assert cost[load, speed] == pytest.approx(2.99 / 3600 / per_s * 1e6, rel=1e-12)
    assert cost["full", slow] == pytest.approx(2 * cost["full", fast], rel=1e-9)
    assert cost["low", slow] == pytest.approx(cost["low", fast], rel=0.02)


# -- T16: the roof -----------------------------------------------------------------------------------

PERFECT = {
    "overhead_us": 0.0,
    **{f"{part}_efficiency": 1.0 for part in ("bandwidth", "kv_bandwidth", "compute", "attention", "link")},
}


@pytest.mark.parametrize(("model", "gpu"), [("llama-13b", "h100"), ("llama-3.1-8b", "h200"), ("opt-13b", "a100-40")])
@pytest.mark.parametrize("context_tokens", [64, 1024])
@pytest.mark.parametrize("batch", [1, 8, 64, 295, 591])
def test_t16_no_decode_step_is_below_the_roof(model: str, gpu: str, context_tokens: int, batch: int) -> None:
    here = sb.Deployment(model, gpu, max_model_len=2048)
    work = Iteration()
    work.tokens = work.sequences = batch
    work.context_tokens = batch * context_tokens
    bandwidth, flop_per_s = here.card.bandwidth_bytes_per_s, here.card.bf16_flop_per_s
    kv_s = batch * context_tokens * here.kv_bytes_per_token / bandwidth
    read_s = here.weights_bytes / bandwidth + kv_s
    compute_s = 2 * here.shape.params * batch / flop_per_s
    assert sb.RooflineTiming(here).progression(work)[0] / 1e12 >= max(read_s, compute_s)
    # A card that reaches its peaks: the token table is looked up, not read, and computes nothing.
    # What a token of context takes is rounded to whole picoseconds.
    perfect_s = sb.RooflineTiming(here, **PERFECT).progression(work)[0] / 1e12
    rounding_s = 1e-12 * (work.context_tokens + 2)
    table_s = here.weights.token_table / bandwidth
    layers = 1 - here.shape.embedding_params / here.shape.params
    assert perfect_s >= max(read_s - table_s, compute_s * layers) - rounding_s
    assert perfect_s < read_s + compute_s
