"""What came out: bandwidth reached, predicted against measured by kind and end to end, and where it is worst.

Plain text, from the files of a folder alone; nothing is measured or fitted again here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from simbatch.deployment import find_gpu
from validation.measurements import Row, read, read_machine
from validation.profile import FORMS, Profile

COPY_SHARE = 0.85
"""Of the device's copy bandwidth that attention should reach above 1 GB."""
FLOOR_SHARE = 0.15
"""By how much attention between 50 MB and 1 GB may miss its floor, in the median."""
SMALLEST_S = 25e-6
H100_BYTES_PER_S = 3.35e12
HELD_BACK_ERROR = 0.04
END_ERROR = 0.03
"""What total time, mean TTFT and mean TPOT of a replay may differ by."""


def floor_s(rows: int, size: int, bandwidth: float) -> float:
    """What decode attention of the best public kernels takes: 17 µs + 34 ns for each row + bytes at 95 %.

    The constants are an H100's (kernel tables, FlashAttention 3) and are kept on other cards.
    """
    return 17e-6 + 0.034e-6 * rows + size / (0.95 * bandwidth)


def report(folder: Path) -> tuple[str, list[str]]:
    """(text, what misses its target) of everything in *folder*."""
    machine = read_machine(folder)
    rows = read(folder)
    missed: list[str] = []
    lines = list(_head(machine, rows))
    lines += _kernels(machine, rows, missed)
    path = folder / "profile.json"
    if path.exists():
        lines += _fit(path, rows, missed)
    for summary in sorted(folder.glob("replay-*/summary.json")):
        lines += _replay(json.loads(summary.read_text(encoding="utf-8")), missed)
    lines += ["", "targets missed: " + ("none" if not missed else "")]
    lines += [f"  {what}" for what in missed]
    return "\n".join(lines) + "\n", missed


def _head(machine: dict[str, Any], rows: list[Row]) -> Iterator[str]:
    if machine.get("fake"):
        yield "FAKE: a stand-in was asked instead of a card. Nothing here is a measurement."
    yield f"{machine['device']} · {machine['model']}, {machine['layers']} layers, {machine['dtype']}"
    steps = [row for row in rows if row.stage == "step"]
    yield f"{len(rows)} rows: {len(steps)} iterations, {sum(row.held_back for row in steps)} of them held back"
    hosts = [row.host_s for row in steps if row.host_s]
    if hosts:
        yield f"host time of the loop itself, no part of any fit: {np.median(hosts) * 1e3:.2f} ms a step (median)"


def _kernels(machine: dict[str, Any], rows: list[Row], missed: list[str]) -> Iterator[str]:
    """Attention alone against the copy of the same run and against its floor."""
    bandwidth = find_gpu(machine["gpu"]).bandwidth_bytes_per_s
    copies = [row.bytes / row.duration_s for row in rows if row.stage == "copy"]
    if copies:
        yield f"copy: {copies[0] / 1e12:.2f} TB/s, {copies[0] / bandwidth:.0%} of {bandwidth / 1e12:.2f}"
    attention = [row for row in rows if row.stage == "attention"]
    if not attention or not copies:
        return
    yield ""
    yield f"{'decode attention of a layer':34} {'MB':>8} {'µs':>8} {'TB/s':>6} {'of copy':>8} {'over floor':>11}"
    middle, default = [], attention[0].key.split()[-1]
    for row in sorted(attention, key=lambda row: (row.key.split()[-1] != default, row.bytes)):
        count = int(row.key.split()[0][1:])
        reached = row.bytes / row.duration_s
        over = row.duration_s / floor_s(count, row.bytes, bandwidth) - 1
        yield (
            f"{row.key:34} {row.bytes / 1e6:8.1f} {row.duration_s * 1e6:8.1f} {reached / 1e12:6.2f} "
            f"{reached / copies[0]:8.0%} {over:+11.0%}"
        )
        if row.key.split()[-1] != default:
            continue
        if row.bytes > 1e9 and reached < COPY_SHARE * copies[0]:
            missed.append(f"attention {row.key}: {reached / copies[0]:.0%} of the copy, wanted {COPY_SHARE:.0%}")
        if 50e6 <= row.bytes <= 1e9:
            middle.append(over)
    smallest = min(row.duration_s for row in attention)
    if middle and abs(np.median(middle)) > FLOOR_SHARE and np.median(middle) > 0:
        missed.append(f"attention of 50 MB to 1 GB: median {np.median(middle):+.0%} over its floor")
    if smallest > SMALLEST_S:
        missed.append(f"smallest attention: {smallest * 1e6:.0f} µs, wanted {SMALLEST_S * 1e6:.0f}")


def _fit(path: Path, rows: list[Row], missed: list[str]) -> Iterator[str]:
    """Predicted against measured, by kind of iteration and by form."""
    profile = Profile.load(path)
    card = profile.card
    yield ""
    yield "fit: " + ", ".join(f"{name} {value:.4g}" for name, value in card["formula"].items())
    for name, why in card["pinned"].items():
        yield f"  {name}: {why}"
    steps = [row for row in rows if row.stage == "step"]
    yield ""
    yield f"{'predicted against measured':26} {'n':>4} {'form':>10} {'mean':>7} {'median':>7} {'p95':>7} {'worst':>7}"
    groups = {
        kind: [r for r in steps if r.counts.kind == kind and not r.held_back] for kind in ("decode", "prefill", "mixed")
    }
    groups["held back"] = [r for r in steps if r.held_back]
    for form in FORMS:
        timing = Profile(card, form)
        for kind, group in groups.items():
            if not group:
                continue
            share = np.array([abs(timing.seconds(r.counts) / r.duration_s - 1) for r in group])
            worst = group[int(share.argmax())].key
            yield (
                f"{kind:26} {len(group):4} {form:>10} {share.mean():7.1%} {np.median(share):7.1%} "
                f"{np.quantile(share, 0.95):7.1%} {share.max():7.1%} at {worst}"
            )
            if kind == "held back" and form == FORMS[0] and share.mean() > HELD_BACK_ERROR:
                missed.append(f"held-back iterations: mean error {share.mean():.1%}, wanted {HELD_BACK_ERROR:.0%}")


def _replay(summary: dict[str, Any], missed: list[str]) -> Iterator[str]:
    """One replayed system."""
    name = summary["system"]
    same = summary["same_decisions"] and summary["same_end"]
    yield ""
    yield (
        f"replay {name}: {summary['requests']} requests, {summary['iterations']} iterations, "
        f"{summary['preemptions']} preemptions, {summary['gpu_s']:.2f} s on the device; "
        f"the simulator decides {'the same in every step' if same else 'OTHERWISE'}"
    )
    if not same:
        missed.append(f"replay {name}: {summary['first_difference'] or 'the runs end at different times'}")
    step = summary["step_error"]
    if step:
        yield "  a step: " + ", ".join(f"{name} {step[name]:.1%}" for name in ("mean", "median", "p95", "worst"))
    for what, end in summary["ends"].items():
        if end["error"] is None:
            continue
        yield f"  {what}: measured {end['measured_s']:.4g} s, predicted {end['predicted_s']:.4g} s, {end['error']:+.2%}"
        if abs(end["error"]) > END_ERROR:
            missed.append(f"replay {name}, {what}: {end['error']:+.1%}, wanted within {END_ERROR:.0%}")
