"""What speed rests on, counted: events, rows and memory per request, the same on any machine.

Bounds were set before counting: at light load a request costs an arrival, the boundaries that it and
its finish make, and the rows between them; a saturated engine needs nobody's help.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import simbatch as sb

TIMING = "linear:base_ms=6.4,token_us=15,context_ns=0.05"
PLAIN = {"async_scheduling": False, "enable_prefix_caching": False}


def simulated(rate_per_s: float | None, requests: int = 2000, **options: Any) -> tuple[float, float, sb.Result]:
    """(events, rows) per request of a run of mixed lengths, and the run."""
    draw = np.random.default_rng(0)
    prompts = np.clip(np.round(np.exp(draw.normal(4.85, 1.02, requests))), 4, 2048).astype(int)
    outputs = np.clip(np.round(np.exp(draw.normal(4.95, 0.95, requests))), 2, 1024).astype(int)
    trace = sb.Trace.from_lengths(prompts, outputs)
    if rate_per_s is not None:
        trace = trace.at_rate(rate_per_s, seed=0)
    result = sb.simulate(trace, sb.Deployment("llama-3.1-8b", gpu="h100"), timing=TIMING, **options)
    return result.facts.events / requests, len(result.facts.rows["start_ps"]) / requests, result


@pytest.mark.parametrize(
    ("options", "most_rows"),
    [(PLAIN, 3), ({"system": "orca-oracle"}, 3), ({"system": "vllm-v0"}, 3), ({}, 4)],
    ids=["plain", "contiguous", "v0", "default"],
)
def test_light_load(options: dict[str, Any], most_rows: float) -> None:
    events, rows, result = simulated(10, **options)
    assert events <= 4
    assert rows <= most_rows
    assert result.facts.iterations > 3 * len(result.facts.rows["start_ps"])


@pytest.mark.parametrize("options", [PLAIN, {}], ids=["plain", "default"])
def test_a_saturated_engine_needs_no_events(options: dict[str, Any]) -> None:
    events, rows, result = simulated(None, max_num_seqs=256, **options)
    assert result.facts.events <= 10  # all requests arrive in one event of their source
    assert events < 0.01
    assert rows <= 1


@pytest.mark.parametrize("mean_output", [1000, 10_000])
def test_cost_follows_requests_and_not_tokens(mean_output: int) -> None:
    trace = sb.Trace.from_columns(
        arrival_ps=np.arange(50) * 1000 * 10**12,  # nobody meets anybody
        prompt_tokens=np.full(50, 200),
        output_tokens=np.full(50, mean_output) + np.arange(50),
    )
    result = sb.simulate(trace, timing=TIMING, kv_tokens=100_000, max_model_len=20_000, **PLAIN)
    assert result.facts.iterations >= 50 * mean_output
    assert result.facts.events <= 4 * 50 + 10
    assert len(result.facts.rows["start_ps"]) == 2 * 50  # a prompt, then its decodes


def test_recording_is_bounded() -> None:
    """Twice the requests leave about twice the rows, however many tokens there are, and nothing per token."""
    _, rows, result = simulated(10, **PLAIN)
    _, more_rows, more = simulated(10, requests=4000, **PLAIN)
    assert more_rows == pytest.approx(rows, rel=0.05)
    kept = sum(column.nbytes for column in more.facts.rows.values())
    assert kept <= 200 * len(more.facts.rows["start_ps"])
    assert not more.facts.extra_gaps["gap_ps"].size  # only preemption leaves gaps beside the rows
    assert not result.facts.extra_gaps["gap_ps"].size


def test_what_is_recorded_is_plain_integers() -> None:
    _, _, result = simulated(10, requests=200)
    for columns in (result.facts.requests, result.facts.rows, result.facts.extra_gaps, result.facts.stays or {}):
        for name, column in columns.items():
            expected = np.float64 if name.endswith("_mean") else np.int8 if name == "status" else np.int64
            assert column.dtype == expected, name
