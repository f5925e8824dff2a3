"""How fast it is: every load with every kind of engine, the growth of a run, a comparison of all systems.

Not part of the tests: seconds depend on the machine. Run with ``pytest benchmarks`` in an environment
with the dependency group `bench`; what was measured is in `docs/performance.md`.
"""

from __future__ import annotations

from typing import Any

import loads
import pytest
from table import NoLog

import simbatch as sb

REQUESTS = 10_000


def measured(benchmark: Any, trace: sb.Trace, rounds: int = 3, **options: Any) -> None:
    """Simulate *trace* some times; counts, which are the same on any machine, go beside the times."""
    here = loads.deployment()
    result = benchmark.pedantic(
        sb.simulate, (trace, here), {"timing": loads.TIMING, **options}, rounds=rounds, iterations=1
    )
    facts, n = result.facts, len(trace)
    benchmark.extra_info.update(
        requests_per_s=round(n / benchmark.stats.stats.median),
        output_tokens_per_s=round(int(facts.requests["output_tokens"].sum()) / benchmark.stats.stats.median),
        events_per_request=round(facts.events / n, 2),
        rows_per_request=round(len(facts.rows["start_ps"]) / n, 2),
        iterations_per_request=round(facts.iterations / n, 2),
    )


@pytest.mark.parametrize("mode", loads.MODES)
@pytest.mark.parametrize("load", loads.LOADS)
def test_load(benchmark: Any, load: str, mode: str) -> None:
    make, options = loads.LOADS[load]
    measured(benchmark, make(REQUESTS), **options, **loads.MODES[mode])


@pytest.mark.parametrize("load", loads.LOADS)
def test_stepping(benchmark: Any, load: str) -> None:
    make, options = loads.LOADS[load]
    log = {} if "replicas" in options else {"log": NoLog()}
    measured(benchmark, make(REQUESTS // 10), 1, step=True, **log, **options, **loads.PLAIN)


@pytest.mark.parametrize("requests", [10_000, 100_000, 1_000_000])
def test_growth(benchmark: Any, requests: int) -> None:
    measured(benchmark, loads.mixed(requests, 10), 1, **loads.PLAIN)


def test_compare_all_systems(benchmark: Any) -> None:
    systems = ["naive", "static", "orca-max", "orca-pow2", "orca-oracle", "vllm-v0", "sarathi", "vllm"]
    trace, here = loads.mixed(1000, 10), loads.deployment()
    benchmark.pedantic(sb.compare, (trace, here), {"systems": systems, "max_model_len": 4096}, rounds=3, iterations=1)
