"""A shared run simulated: what came out, beside what was measured, in the figures that people compare.

Latencies are milliseconds as the client saw them. The number of sequences is by Little's law, time spent decoding
over the span, from the same two columns on both sides. What a set did not record is empty.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from fidelity.data import Section, signed

STATS = ("mean", "p50", "p90", "p99")
LATENCIES = ("ttft", "tpot", "e2e")
NOT_RECORDED = float("nan")

Row = tuple[float, float, float, float]


@dataclass(frozen=True)
class Figures:
    """One side of a comparison."""

    latencies: dict[str, Row]
    """By latency, in the order of `STATS`, ms."""
    output_tokens_per_s: float = NOT_RECORDED
    sequences: float = NOT_RECORDED
    """Decoding at once, on average."""
    preemptions: float = NOT_RECORDED
    completed: float = NOT_RECORDED


@dataclass(frozen=True)
class Replay:
    """A run, the profile that it was simulated with, and both sides."""

    run: str
    profile: str
    saw: str
    """What the profile had seen: this run, this model, this GPU, nothing of them."""
    simulated: Figures
    measured: Figures

    def error(self, latency: str, stat: str) -> float:
        """Simulated ÷ measured - 1."""
        at = STATS.index(stat)
        return self.simulated.latencies[latency][at] / self.measured.latencies[latency][at] - 1


def row_of(values: pd.Series) -> Row:
    """`STATS` of some latencies."""
    known = values.dropna().to_numpy(dtype=float)
    if not len(known):
        return (NOT_RECORDED,) * 4
    return float(known.mean()), *(float(np.percentile(known, at)) for at in (50, 90, 99))


def figures(
    latencies: pd.DataFrame, arrival_s: pd.Series, outputs: pd.Series, preemptions: float, tail_from_s: float = 0.0
) -> Figures:
    """Figures of requests with `LATENCIES` in ms; *tail_from_s*: earlier arrivals are left out of the tail of TTFT."""
    rows = {name: row_of(latencies[name]) for name in LATENCIES}
    warm = latencies["ttft"][arrival_s >= arrival_s.min() + tail_from_s]
    rows["ttft"] = (*rows["ttft"][:3], row_of(warm)[3])
    done = latencies["e2e"].notna()
    end_s = (arrival_s + latencies["e2e"] / 1e3)[done].max()
    span_s = float(end_s - arrival_s.min())
    decoding_s = float((latencies["e2e"] - latencies["ttft"])[done].sum()) / 1e3
    return Figures(
        latencies=rows,
        output_tokens_per_s=float(outputs[done].sum()) / span_s,
        sequences=decoding_s / span_s,
        preemptions=preemptions,
        completed=float(done.sum()),
    )


def both(simulated: float, measured: float, places: int = 1) -> str:
    """The two beside each other, with the relative error where there is one."""
    if np.isnan(simulated) and np.isnan(measured):
        return "-"
    shown = ["-" if np.isnan(value) else f"{value:,.{places}f}" for value in (simulated, measured)]
    error = f" ({signed(simulated / measured - 1)})" if measured and not np.isnan(simulated / measured) else ""
    return f"{shown[0]} / {shown[1]}{error}"


def latency_section(name: str, replays: list[Replay]) -> Section:
    """One row for each run and latency."""
    rows = []
    for replay in replays:
        for latency in LATENCIES:
            sides = zip(replay.simulated.latencies[latency], replay.measured.latencies[latency], strict=True)
            cells = [both(*pair) for pair in sides]
            if any(cell != "-" for cell in cells):
                rows.append([replay.run, latency.upper(), *cells])
    return Section(name, ["run", "ms", *STATS], rows)


def rate_section(name: str, replays: list[Replay]) -> Section:
    """Throughput, batch and preemptions, and what the profile had seen."""
    rows = []
    for replay in replays:
        one, other = replay.simulated, replay.measured
        rows.append(
            [
                replay.run,
                replay.profile,
                replay.saw,
                both(one.output_tokens_per_s, other.output_tokens_per_s, 0),
                both(one.sequences, other.sequences),
                both(one.preemptions, other.preemptions, 0),
            ]
        )
    return Section(name, ["run", "profile", "it had seen", "output tokens/s", "sequences", "preemptions"], rows)
