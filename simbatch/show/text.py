"""How figures stand in text: lines with a label, tables, shares, times.

Every page of text that simbatch shows is at most `WIDTH` columns wide and uses these, so that a
figure looks the same wherever it is read. A figure that does not exist is a dash.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from simbatch.units import show_number, show_s

WIDTH = 100
LABEL = 12
"""Columns of the label that a line starts with."""


def line(label: str, *parts: str) -> str:
    """*label*, then *parts* with a dot between them."""
    return label.ljust(LABEL) + " · ".join(parts)


def wrapped(text: str) -> list[str]:
    """*text* within the width; what does not fit stands below the first part."""
    if len(text) <= WIDTH:
        return [text.rstrip()]
    label, rest = text[:LABEL], text[LABEL:]
    if label != label.rstrip().ljust(LABEL):
        return textwrap.wrap(text, WIDTH)
    lines = textwrap.wrap(rest, WIDTH - LABEL, break_on_hyphens=False)
    return [(label if number == 0 else " " * LABEL) + part for number, part in enumerate(lines)]


def paragraphs(*parts: Iterable[str]) -> str:
    """Each part's lines within the width, an empty line between parts; a part without lines is left out."""
    blocks = ["\n".join(fitting for text in part for fitting in wrapped(text)) for part in parts]
    return "\n\n".join(block for block in blocks if block)


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], texts: int | None = None) -> str:
    """Columns as wide as they need to be. The first *texts* start aligned and all others end aligned.

    Without *texts*, columns that hold figures only are end aligned.
    """
    lines = []
    for index, column in enumerate(zip(heads, *rows, strict=True)):
        width = max(map(len, column))
        figures = not "".join(column[1:]).strip("0123456789.,-") if texts is None else index >= texts
        lines.append([cell.rjust(width) if figures else cell.ljust(width) for cell in column])
    return "\n".join("  ".join(cells).rstrip() for cells in zip(*lines, strict=True))


def number(value: float | None) -> str:
    """A count or a figure with three significant digits."""
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else show_number(value)


def percent(share: float | None) -> str:
    """A share in per cent, never rounded to all or nothing when it is not."""
    if share is None:
        return "-"
    if 0 < share < 0.001:
        return "< 0.1 %"
    if 0.999 < share < 1:
        return "> 99.9 %"
    return f"{share:.1%}".replace("%", " %")


def time(seconds: float | None) -> str:
    """A duration as people write it."""
    return "-" if seconds is None else show_s(seconds)
