"""The PagedAttention paper's comparison: OPT-13B on one A100 with 40 GB, ShareGPT lengths, Poisson arrivals.

Published figures and the tolerances on them were fixed before any run, and no rule was bent to meet
one. `docs/the-paper.md` has the tables, computed here, and says what differs and why.
Statistics cover 600 to 3,600 s of an hour of arrivals and are means of five seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import combinations, pairwise
from math import log

import numpy as np
import pytest

import simbatch as sb
from simbatch.facts import FINISHED, KV_SHARES, Facts, durations_ps

HERE = sb.Deployment("opt-13b", gpu="a100-40", kv_tokens=15_728, max_model_len=2048)
TIMING = "linear:base_ms=25.6,sequence_us=447,prefill_token_us=170"
LENGTHS = sb.Trace.load("sharegpt")
SEEDS = range(5)
FROM_S, TO_S = 600, 3600

RUNNING = {"orca-max": 7.00, "orca-pow2": 9.81, "orca-oracle": 13.62, "vllm-v0": 30.42}
"""Mean running requests at 2 requests/s."""
LIVE = {"orca-max": 20.4, "orca-oracle": 38.2, "vllm-v0": 96.3}
"""Live tokens at 2 requests/s, per cent of KV memory."""
RATES = {"static": 0.27, "orca-max": 0.55, "orca-pow2": 0.80, "orca-oracle": 1.12, "vllm-v0": 1.98}
"""Requests/s at which mean normalized latency passes 1 s/token, read off a curve."""
BRACKETS = {
    "static": (0.34, 0.36),
    "orca-max": (0.76, 0.79),
    "orca-pow2": (1.05, 1.09),
    "orca-oracle": (1.43, 1.47),
    "vllm-v0": (2.36, 2.41),
}
"""Rates on either side of the simulator's own passing, found by bisection; it is interpolated between them."""

Table = Callable[[str, str, list[list[str]]], None]


def hour(rate_per_s: float, seed: int) -> sb.Trace:
    """Lengths drawn with replacement, Poisson arrivals of one hour."""
    enough = round(TO_S * rate_per_s + 6 * (TO_S * rate_per_s) ** 0.5 + 20)
    trace = LENGTHS.sample(enough, seed=seed).at_rate(rate_per_s, seed=seed)
    assert trace.arrival_ps is not None
    assert trace.arrival_ps[-1] >= TO_S * 10**12
    return trace.head(int((trace.arrival_ps < TO_S * 10**12).sum()))


def run(system: str, rate_per_s: float, seed: int, placement: str | None = None) -> Facts:
    part = {} if placement is None else {"placement": placement}
    result = sb.simulate(hour(rate_per_s, seed), HERE, system=system, timing=TIMING, **part)
    assert (result.facts.requests["status"] == FINISHED).all()
    return result.facts


def window(facts: Facts) -> dict[str, float]:
    """Running requests and KV shares in per cent, means over the time from FROM_S to TO_S.

    Rows are clipped to it. The number running is constant in a row; a KV share is the row's mean,
    so only the one row that each edge cuts is not exact.
    """
    rows = facts.rows
    start_s = rows["start_ps"] / 1e12
    end_s = start_s + durations_ps(rows) / 1e12
    inside_s = np.clip(np.minimum(end_s, TO_S) - np.maximum(start_s, FROM_S), 0, None)
    assert inside_s.sum() > 0.99 * (TO_S - FROM_S)
    means = {"running": float(rows["running"] @ inside_s / inside_s.sum())}
    for share in KV_SHARES:
        means[share] = float(100 * rows[f"{share}_mean"] @ inside_s / inside_s.sum() / facts.capacity_tokens)
    return means


@cache
def seeds(system: str, rate_per_s: float, placement: str | None = None) -> list[dict[str, float]]:
    return [window(run(system, rate_per_s, seed, placement)) for seed in SEEDS]


def means(system: str, rate_per_s: float, placement: str | None = None) -> dict[str, float]:
    found = seeds(system, rate_per_s, placement)
    return {name: float(np.mean([one[name] for one in found])) for name in found[0]}


@cache
def normalized_s(system: str, rate_per_s: float) -> float:
    """Mean of end-to-end time ÷ output length over the requests of the hour, mean of the seeds."""
    found = []
    for seed in SEEDS:
        requests = run(system, rate_per_s, seed).requests
        took_s = (requests["finished_ps"] - requests["arrival_ps"]) / 1e12
        found.append(float((took_s / requests["output_tokens"]).mean()))
    return float(np.mean(found))


@cache
def passing_rate(system: str) -> float:
    """Requests/s at which normalized latency is 1 s/token, on the line between the logarithms at both ends."""
    low, high = BRACKETS[system]
    below, above = (log(normalized_s(system, rate)) for rate in (low, high))
    assert below < 0 < above, f"{system}: bisect anew, its latency passes 1 s/token outside of {low} to {high}"
    return low + (high - low) * -below / (above - below)


def off(ours: float, published: float) -> str:
    percent = round(100 * (ours / published - 1))
    return f"{percent:+} %" if percent else "equal"


# -- lengths -----------------------------------------------------------------------------------------


def test_lengths(doc_table: Table) -> None:
    """Two numbers of the lengths alone give the live share of `orca-max` once its seats are always taken."""
    prompts, outputs = LENGTHS.prompt_tokens.astype(float), LENGTHS.output_tokens.astype(float)
    moment = float((outputs**2).mean() / outputs.mean())
    # Seen at a random iteration, a sequence is long in proportion to its output, and half done on average.
    live = float((prompts * outputs).mean() / outputs.mean()) + moment / 2
    closed = 100 * 7 * live / 15_728
    doc_table(
        "the-paper.md",
        "paper-lengths",
        [
            ["mean prompt, tokens", "161.31", f"{prompts.mean():.2f}"],
            ["mean output, tokens", "337.99", f"{outputs.mean():.2f}"],
            ["E[output²] ÷ E[output], tokens", "598", f"{moment:.0f}"],
            ["live tokens of a running sequence", "458", f"{live:.0f}"],
            ["live share of 7 of them, %", "20.4", f"{closed:.1f}"],
        ],
    )
    assert round(100 * 7 * 458 / 15_728, 1) == LIVE["orca-max"]
    assert means("orca-max", 2)["live"] == pytest.approx(closed, abs=0.5)


# -- at 2 and 3 requests/s ---------------------------------------------------------------------------


def test_mean_running_requests(doc_table: Table) -> None:
    found = {system: means(system, 2)["running"] for system in RUNNING}
    doc_table(
        "the-paper.md",
        "paper-running",
        [
            [f"`{system}`", f"{paper:.2f}", f"{found[system]:.2f}", off(found[system], paper)]
            for system, paper in RUNNING.items()
        ],
    )
    assert {round(one["running"], 9) for one in seeds("orca-max", 2)} == {15_728 // 2048}
    for system, paper in RUNNING.items():
        assert found[system] == pytest.approx(paper, rel=0.15), system


@pytest.mark.slow
def test_shares_of_memory(doc_table: Table) -> None:
    asked = [(system, 2) for system in RUNNING] + [("vllm-v0", 3), ("vllm", 3)]
    found = {(system, rate): means(system, rate) for system, rate in asked}
    rows = []
    for (system, rate), shares in found.items():
        paper = f"{LIVE[system]:.1f}" if rate == 2 and system in LIVE else ""
        rows.append([f"`{system}`", str(rate), paper, *(f"{shares[share]:.1f}" for share in KV_SHARES)])
    doc_table("the-paper.md", "paper-memory", rows)
    for system in ("orca-max", "orca-oracle"):
        assert found[system, 2]["live"] == pytest.approx(LIVE[system], abs=4), system
    for system in ("vllm-v0", "vllm"):
        assert found[system, 3]["live"] >= 92, system
    assert found["orca-max", 2]["external"] == pytest.approx(100 * (1 - 7 * 2048 / 15_728), abs=1e-6)


def test_first_fit_beside_buddy(doc_table: Table) -> None:
    """What the paper prints for its contiguous managers comes out of buddy placement, and not of first fit."""
    outputs, needed = LENGTHS.output_tokens, LENGTHS.prompt_tokens + LENGTHS.output_tokens
    rounded = 1 << np.ceil(np.log2(needed)).astype(int)
    # A request is there in proportion to its output.
    assert [round(float(outputs @ piece / outputs.sum())) for piece in (needed, rounded)] == [651, 915]
    rows = []
    for system in ("orca-pow2", "orca-oracle"):
        for placement in ("buddy", "first-fit"):
            shares = means(system, 2, None if placement == "buddy" else placement)
            figures = [f"{shares[name]:.1f}" for name in ("running", "live", "internal", "external")]
            rows.append([f"`{system}`", placement, *figures])
        paper = f"{LIVE[system]:.1f}" if system in LIVE else ""
        rows.append([f"`{system}`", "*paper*", f"{RUNNING[system]:.1f}", paper, "", ""])
    doc_table("the-paper.md", "paper-placement", rows)
    oracle, pow2 = (means(system, 2, "first-fit") for system in ("orca-oracle", "orca-pow2"))
    assert oracle["live"] > LIVE["orca-oracle"] + 4
    assert oracle["running"] > 1.15 * RUNNING["orca-oracle"]
    assert pow2["running"] > 1.15 * RUNNING["orca-pow2"]


# -- the rate that each holds ------------------------------------------------------------------------


@pytest.mark.slow
def test_rate_at_which_latency_passes_one_second_a_token(doc_table: Table) -> None:
    ours = {system: passing_rate(system) for system in RATES}
    rows = []
    for system, paper in RATES.items():
        relative = ours[system] / ours["vllm-v0"], paper / RATES["vllm-v0"]
        rows.append(
            [
                f"`{system}`",
                *(f"{paper:.2f}", f"{ours[system]:.2f}", off(ours[system], paper)),
                *(f"{relative[1]:.3f}", f"{relative[0]:.3f}", off(*relative)),
            ]
        )
    doc_table("the-paper.md", "paper-rates", rows)
    assert all(one < other for one, other in pairwise(ours.values()))
    for one, other in combinations(RATES, 2):
        assert ours[one] / ours[other] == pytest.approx(RATES[one] / RATES[other], rel=0.25), (one, other)


# -- static against continuous -----------------------------------------------------------------------


def test_static_against_continuous(doc_table: Table) -> None:
    """1,000 requests at once, 512 prompt tokens, exponential outputs of mean 128, those above 1,536 drawn again.

    With as many seats the gain of continuous batching is E[longest of a batch] ÷ E[length], four
    sequences giving H₄ = 2.083, diluted by the prompts, which both compute alike; the published 8 ÷ 4 within 10 %.
    """
    drawn = np.ceil(np.random.default_rng(0).exponential(128, 2000)).astype(int)
    outputs = drawn[drawn <= 1536][:1000]
    trace = sb.Trace.from_lengths(np.full(1000, 512), outputs)
    asked = {
        "`static`, batches of 4": ("324", {"system": "static", "batch_size": 4}),
        "`orca-max`, 4 seats": ("648", {"system": "orca-max", "max_num_seqs": 4}),
        "`orca-max`": ("", {"system": "orca-max"}),
        "`orca-oracle`": ("", {"system": "orca-oracle"}),
        "`vllm-v0`": ("1,863", {"system": "vllm-v0"}),
    }
    rows, tokens_per_s = [], {}
    for name, (paper, options) in asked.items():
        found = sb.simulate(trace, HERE, timing=TIMING, **options).metrics()
        tokens_per_s[name] = found["throughput"]["total_tokens_per_s"]
        rows.append([name, paper, f"{tokens_per_s[name]:,.0f}", f"{found['batch']['running_mean']:.1f}"])
    doc_table("the-paper.md", "paper-static", rows)
    static, continuous, *_ = tokens_per_s.values()
    gain = continuous / static
    step_s, prompts_s = 25.6e-3 + 4 * 447e-6, 4 * 512 * 170e-6
    longest = outputs.reshape(-1, 4).max(axis=1).mean()
    closed = (prompts_s + longest * step_s) / (prompts_s + outputs.mean() * step_s)
    assert gain == pytest.approx(closed, rel=outputs.max() * 4 / outputs.sum())
    mean = 1 + 1 / 2 + 1 / 3 + 1 / 4
    expected = (prompts_s + mean * 128 * step_s) / (prompts_s + 128 * step_s)
    assert gain == pytest.approx(expected, rel=4 * (1.19 / mean + 0.5) / 250**0.5)
    assert gain == pytest.approx(2.0, rel=0.10)
