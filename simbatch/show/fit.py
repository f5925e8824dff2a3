"""A fitted profile as text: coefficients with their intervals, errors on unseen runs, and residuals by input."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from simbatch.show.text import line, paragraphs, percent, table
from simbatch.timing.coefficients import UNITS
from simbatch.units import show_number, show_s

if TYPE_CHECKING:
    from simbatch.answers.fit import Fit
    from simbatch.timing.work import Floats

BINS = 6
"""Into which each input is cut, with equally many observations in each."""
INPUTS = ("tokens", "sequences", "prompts", "context per decode", "waiting")
MOST_RUNS = 30


def fit_text(found: Fit) -> str:
    """The profile for people; no line break at the end."""
    card = found.card
    resampled = any(one.low != one.high for one in card.coefficients.values())
    rows = []
    for name, estimate in card.coefficients.items():
        if estimate.origin == "fitted" and resampled:
            between = f"{show_number(estimate.low)} to {show_number(estimate.high)}"
        else:
            between = estimate.origin
        rows.append([name, show_number(estimate.value), UNITS[name], between])
    return "\n\n".join(
        (
            paragraphs(_head(found), _errors(found)),
            table(["coefficient", "value", "unit", "90 % of resampled fits"], rows, texts=1),
            paragraphs(_notes(found)),
        )
    ).rstrip()


def report_text(found: Fit) -> str:
    """Predicted against measured: by run, by input, and where it is worst."""
    parts = [fit_text(found)]
    if found.client is not None:
        rows = [[name, signed(error)] for name, error in found.client.errors.items()]
        parts.append(table(["simulated over measured", "error"], rows, texts=1))
    if found.problem is not None:
        parts += ["Runs, predicted by fits that had not seen them, the worst first:", _runs(found)]
        parts += [f"By {name}:\n{_byinput_of(found, name)}" for name in INPUTS]
    return "\n\n".join(parts)


def _head(found: Fit) -> Iterator[str]:
    card = found.card
    of = f"{card.model} on {card.gpu}" if card.model else f"several models on {card.gpu}"
    if card.tensor_parallel_size > 1:
        of += f" x {card.tensor_parallel_size}"
    yield line("profile", card.name, of, card.engine)
    yield line(
        "data",
        f"{card.iterations:,} iterations" if card.iterations else "client side",
        f"{card.runs:,} run{'s' if card.runs != 1 else ''}",
        card.source,
    )
    ends = [f"{name} {low:,.0f} to {high:,.0f}" for name, (low, high) in card.measured.items()]
    if ends:
        yield line("range", *ends)
    if card.front_end_ms is not None:
        delay = show_number(card.front_end_ms)
        yield line(
            "front end",
            f"{delay} ms before the engine sees a request",
            f"a run takes it as --frontend-delay {delay.replace(',', '')}ms",
        )


def _errors(found: Fit) -> Iterator[str]:
    error = found.card.error
    yield line(
        "error",
        f"median {percent(error.median)}",
        f"p95 {percent(error.p95)}",
        f"worst {percent(error.worst)} ({error.worst_at})",
        error.how,
    )
    yield line("reckon with", f"{percent(error.step)} here", f"{percent(error.moved)} for another model")


def _notes(found: Fit) -> Iterator[str]:
    for note in found.card.notes:
        yield line("note", note)


def _runs(found: Fit) -> str:
    worst = sorted(found.runs, key=lambda run: -run.median_size)
    rows = [
        [run.run, f"{run.observations:,}", signed(run.median), percent(run.median_size), signed(run.total)]
        for run in worst[:MOST_RUNS]
    ]
    if len(worst) > MOST_RUNS:
        rows.append([f"and {len(worst) - MOST_RUNS} better ones", "", "", "", ""])
    return table(["run", "observations", "median error", "median size", "whole time"], rows, texts=1)


def _byinput_of(found: Fit, name: str) -> str:
    """Errors in bins of one input."""
    problem = found.problem
    assert problem is not None
    values = input_of(found, name)
    edges = np.unique(np.quantile(values, np.linspace(0, 1, BINS + 1)))
    rows = []
    for low, high in zip(edges, edges[1:] if len(edges) > 1 else edges, strict=False):
        inside = (values >= low) & ((values < high) | (high == edges[-1]))
        if not inside.any():
            continue
        errors, measured = found.unseen_errors[inside], problem.measured_s[inside]
        rows.append(
            [
                f"{low:,.0f} to {high:,.0f}",
                f"{int(inside.sum()):,}",
                show_s(float(np.median(measured))),
                show_s(float(np.median(measured * (1 + errors)))),
                signed(float(np.median(errors))),
                percent(float(np.percentile(np.abs(errors), 95))),
            ]
        )
    return table([name, "observations", "measured", "predicted", "median error", "p95 size"], rows, texts=1)


def input_of(found: Fit, name: str) -> Floats:
    """The mean of an input over the iterations of each observation."""
    problem = found.problem
    assert problem is not None
    work = problem.work
    decoding = np.maximum(work.sequences - work.prompts, 1)
    per = {
        "tokens": work.tokens,
        "sequences": work.sequences,
        "prompts": work.prompts,
        "context per decode": np.where(
            work.kv_sequence_s > 0, work.kv_s / np.maximum(work.kv_sequence_s / decoding, 1e-30), 0
        )
        / decoding,
        "waiting": work.waiting,
    }
    mean: Floats = problem.total(per[name]) / problem.total(np.ones(len(work)))
    return mean


def signed(error: float) -> str:
    """A relative error with its sign."""
    return f"{error:+.1%}".replace("%", " %")
