"""Requests per second, counts, memory and the gain over stepping, for every load and engine.

Run it as ``python benchmarks/table.py [REQUESTS]``.

Each figure comes from a process of its own: CPU seconds inside the engine (drawing, columns and metrics left out),
the median of three runs; peak memory is that of the process. Prints the rows of the table in `docs/performance.md`.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import time
from typing import Any

import loads
import simpy

import simbatch as sb
from simbatch.decisions import DecisionLog


class NoLog(DecisionLog):
    """Keeps nothing: what stepping costs without it."""

    def added(self, *what: Any) -> None: ...
    def nothing_planned(self, *what: Any) -> None: ...
    def planned(self, *what: Any) -> None: ...
    def applied(self, *what: Any) -> None: ...


def engine_s(trace: sb.Trace, **options: Any) -> tuple[float, sb.Result]:
    """CPU seconds of SimPy's loop, and the result."""
    run, took = simpy.Environment.run, [0.0]

    def timed(environment: simpy.Environment) -> None:
        started = time.process_time()
        run(environment)
        took[0] = time.process_time() - started

    simpy.Environment.run = timed  # type: ignore[method-assign,assignment]
    try:
        result = sb.simulate(trace, loads.deployment(), timing=loads.TIMING, **options)
    finally:
        simpy.Environment.run = run  # type: ignore[method-assign]
    return took[0], result


def measure(load: str, mode: str, requests: int) -> dict[str, Any]:
    make, options = loads.LOADS[load]
    trace, options = make(requests), {**options, **loads.MODES[mode]}
    runs = [engine_s(trace, **options) for _ in range(3)]
    n, facts = len(trace), runs[0][1].facts
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    fewer = make(max(1, requests // 10))
    ahead = statistics.median(engine_s(fewer, **options)[0] for _ in range(3))
    stepping = engine_s(fewer, step=True, **({} if "replicas" in options else {"log": NoLog()}), **options)[0]
    took = statistics.median(seconds for seconds, _ in runs)
    return {
        "requests/s": n / took,
        "output tokens/s": float(facts.requests["output_tokens"].sum()) / took,
        "us an iteration": took / facts.iterations * 1e6,
        "counts": [facts.events / n, len(facts.rows["start_ps"]) / n, facts.iterations / n],
        "gain": stepping / ahead,
        "peak MB": peak,
    }


def main(requests: int) -> None:
    for load in loads.LOADS:
        for mode in loads.MODES:
            command = [sys.executable, __file__, load, mode, str(requests)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                print(f"| {load} | {mode} | {done.stderr.strip().splitlines()[-1]} |", flush=True)
                continue
            found = json.loads(done.stdout)
            counts = ", ".join(f"{count:.1f}" for count in found["counts"])
            print(
                f"| {load} | {mode} | {found['requests/s']:,.0f} | {found['output tokens/s'] / 1e6:.1f} M | {counts} | "
                f"{found['us an iteration']:.1f} | {found['gain']:.1f} | {found['peak MB']:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    if len(sys.argv) == 4:
        print(json.dumps(measure(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
