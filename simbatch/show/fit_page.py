"""A fit as one HTML page that opens without a network: predicted against measured, errors by input, the tables.

Figures are SVG written here: points, two axes, one line to compare with. What they show is in the
tables below them too, in words and figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from simbatch.show.fit import INPUTS, input_of, report_text, signed
from simbatch.show.text import percent
from simbatch.units import show_number

if TYPE_CHECKING:
    from simbatch.answers.fit import Fit
    from simbatch.timing.work import Floats

MOST_POINTS = 1500
"""In a figure; of more, equally many between each two that are shown are left out."""
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _EDGE = 640, 300, 70, 45, 12
_STYLE = """
:root { color-scheme: light dark; --text: #1c2126; --soft: #5b6670; --line: #d8dde2; --page: #fff; --dot: #0067a5; }
@media (prefers-color-scheme: dark) { :root { --text: #e8ecef; --soft: #a3adb6; --line: #3a434b; --page: #14181c;
  --dot: #6cb8ee; } }
body { margin: 0 auto; max-width: 60rem; padding: 1.2rem; background: var(--page); color: var(--text);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
figure { margin: 1rem 0; } svg { width: 100%; height: auto; } figcaption { color: var(--soft); font-size: .9rem; }
svg text { fill: var(--soft); font: 12px system-ui, sans-serif; } svg path { stroke: var(--line); fill: none; }
svg path.compare { stroke: var(--soft); stroke-dasharray: 5 4; } svg circle { fill: var(--dot); fill-opacity: .45; }
pre { overflow-x: auto; font-size: .85rem; line-height: 1.3; }
"""


def fit_html(found: Fit) -> str:
    """The page for *found*."""
    card, error = found.card, found.card.error
    of = card.model or "several models"
    parts = [
        f"<h1>Profile {escape(card.name)}</h1>",
        f"<p>{escape(of)} on {escape(card.gpu)}: half of the errors are below {percent(error.median)}, 95 % below "
        f"{percent(error.p95)}; worst {escape(error.worst_at)} with {percent(error.worst)} ({escape(error.how)}).</p>",
        *(f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>" for svg, caption in _figures(found)),
        "<h2>In figures</h2>",
        f"<pre>{escape(report_text(found))}</pre>",
    ]
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>simbatch: profile {escape(card.name)}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def _figures(found: Fit) -> Iterator[tuple[str, str]]:
    errors = np.asarray(found.unseen_errors, dtype=np.float64)
    if found.problem is None:
        order = np.arange(1, len(errors) + 1, dtype=np.float64)
        yield (
            _scatter(order, errors * 100, "figure of a run, in the order of the table", "error, %", compare=0.0),
            "Simulated over measured for every mean TTFT and TPOT: on the line they agree.",
        )
        return
    measured_ms = found.problem.measured_s * 1e3
    every = max(1, len(errors) // MOST_POINTS)
    some = np.argsort(measured_ms, kind="stable")[::every]
    yield (
        _scatter(measured_ms[some], (measured_ms * (1 + errors))[some], "measured, ms", "predicted, ms", compare=None),
        "Predicted against measured, by fits that had not seen the run: on the line they agree.",
    )
    for name in INPUTS:
        values = input_of(found, name)
        if values.min() == values.max():
            continue
        some = np.argsort(values, kind="stable")[::every]
        wide = percent(float(np.percentile(np.abs(errors), 99)))
        yield (
            _scatter(values[some], np.clip(errors[some] * 100, -50, 50), name, "error, %", compare=0.0),
            f"Errors by {name}: above the line predicted times are too long. 99 % of errors are below {wide}; "
            f"the median is {signed(float(np.median(errors)))}.",
        )


def _scatter(x: Floats, y: Floats, x_name: str, y_name: str, *, compare: float | None) -> str:
    """Points with a horizontal line at *compare*, or the diagonal where it is None."""
    if compare is None:
        low, high = _ends(np.concatenate([x, y]))
        x_ends = y_ends = (low, high)
    else:
        x_ends, y_ends = _ends(x), _ends(np.append(y, [compare - 1, compare + 1]))
    to_x = _scale(x_ends, _LEFT, _WIDTH - _EDGE)
    to_y = _scale(y_ends, _HEIGHT - _BOTTOM, _EDGE)
    points = "".join(f'<circle cx="{to_x(a):.1f}" cy="{to_y(b):.1f}" r="2.5"/>' for a, b in zip(x, y, strict=True))
    bottom, top, left, right = _HEIGHT - _BOTTOM, _EDGE, _LEFT, _WIDTH - _EDGE
    line = (
        f"M{left} {bottom}L{right} {top}"
        if compare is None
        else f"M{left} {to_y(compare):.1f}L{right} {to_y(compare):.1f}"
    )
    marks = "".join(
        f'<text x="{to_x(a):.1f}" y="{bottom + 16}" text-anchor="{anchor}">{show_number(a)}</text>'
        for a, anchor in ((x_ends[0], "start"), (sum(x_ends) / 2, "middle"), (x_ends[1], "end"))
    ) + "".join(
        f'<text x="{left - 6}" y="{to_y(b) + 4:.1f}" text-anchor="end">{show_number(b)}</text>'
        for b in (y_ends[0], sum(y_ends) / 2, y_ends[1])
    )
    names = (
        f'<text x="{(left + right) / 2}" y="{_HEIGHT - 8}" text-anchor="middle">{escape(x_name)}</text>'
        f'<text x="14" y="{(top + bottom) / 2}" text-anchor="middle" '
        f'transform="rotate(-90 14 {(top + bottom) / 2})">{escape(y_name)}</text>'
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(f"{y_name} by {x_name}")}">'
        f'<path d="M{left} {top}V{bottom}H{right}"/><path class="compare" d="{line}"/>{points}{marks}{names}</svg>'
    )


def _ends(values: Floats) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    return (low, high) if high > low else (low - 1, high + 1)


def _scale(ends: tuple[float, float], first: float, last: float) -> Callable[[float], float]:
    """From values to places, in a line."""
    each = (last - first) / (ends[1] - ends[0])
    return lambda value: first + (value - ends[0]) * each
