"""What is measured, the most valuable points first.

The first 21 points alone cost a fit less than a percentage point; the others make up the grid, ragged
batches and chunks on cached prefixes. Points that the memory cannot hold are left out, and said so.
"""

from __future__ import annotations

from dataclasses import dataclass

from validation.work import Counts, bucket_of

DECODE_ROWS = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256)
DECODE_CONTEXTS = (128, 512, 1024, 2048, 4096, 8192)
PREFILLS = (64, 128, 256, 512, 1024, 2048, 4096)
CHUNKS = (128, 512, 2048)
MIXED_ROWS = (8, 64, 256)
MIXED_CONTEXT = 512


@dataclass(frozen=True)
class Point:
    """One iteration to measure; `lens` are the contexts of its decoding rows when it ends."""

    lens: tuple[int, ...]
    chunks: tuple[tuple[int, int], ...] = ()
    first: bool = False
    """Among the most valuable ones."""

    @property
    def counts(self) -> Counts:
        rows = len(self.lens)
        return Counts(rows + sum(new for new, _ in self.chunks), rows, bucket_of(rows), sum(self.lens), self.chunks)

    @property
    def ragged(self) -> bool:
        return len(set(self.lens)) > 1

    @property
    def key(self) -> str:
        """Its name in the table of measurements."""
        return self.counts.label + (" ragged" if self.ragged else "")

    @property
    def kv_tokens(self) -> int:
        """KV memory that it needs."""
        return sum(self.lens) + sum(new + cached for new, cached in self.chunks)


def first_points() -> list[Point]:
    """21 points: decodes from the corners inwards, prefills, mixed steps."""
    decodes = [
        (1, 1024), (256, 128), (64, 1024), (8, 4096), (1, 128), (128, 128), (32, 1024), (8, 128), (1, 4096),
        (32, 4096), (64, 128), (8, 1024), (128, 1024), (32, 128),
    ]  # fmt: skip
    points = [Point((context,) * rows, first=True) for rows, context in decodes]
    prefills = [Point((), ((new, 0),), first=True) for new in (512, 2048, 128, 4096)]
    mixed = [Point((MIXED_CONTEXT,) * rows, ((new, 0),), first=True) for rows, new in ((64, 512), (8, 128), (8, 2048))]
    return [*points[:4], prefills[0], mixed[0], *points[4:8], *prefills[1:], *points[8:], *mixed[1:]]


def all_points(kv_tokens: int) -> list[Point]:
    """Every point of up to *kv_tokens*, each once, the first ones first."""
    points = first_points()
    points += [Point((context,) * rows) for context in DECODE_CONTEXTS for rows in DECODE_ROWS]
    points += [Point((), ((new, 0),)) for new in PREFILLS]
    points += [Point((MIXED_CONTEXT,) * rows, ((new, 0),)) for new in CHUNKS for rows in MIXED_ROWS]
    points += [ragged(rows, context) for rows in (8, 32, 128) for context in (512, 1024)]
    points += [Point((), ((new, 2048),)) for new in CHUNKS]
    seen: dict[str, Point] = {}
    for point in points:
        if point.kv_tokens <= kv_tokens:
            seen.setdefault(point.key, point)
    return list(seen.values())


def ragged(rows: int, context: int) -> Point:
    """As many tokens as *rows* equal ones of *context*, half of them in one long row."""
    long = rows * context // 2
    short, rest = divmod(rows * context - long, rows - 1)
    return Point((long + rest, *(short,) * (rows - 1)))


def held_back(points: list[Point]) -> list[Point]:
    """Random iterations that no fit sees: unequal rows, odd chunks. For judging a fit, measured last."""
    import random

    draw = random.Random(8)
    room = max(point.kv_tokens for point in points)
    found: list[Point] = []
    while len(found) < 20:
        rows = draw.choice((0, 3, 7, 12, 20, 40, 56, 80, 110, 150, 220))
        lens = tuple(min(8192, int(draw.lognormvariate(6.2, 0.9)) + 16) for _ in range(rows))
        new = draw.choice((0, 0, 90, 200, 380, 700, 1500)) if rows else draw.choice((90, 300, 700, 1200, 1500))
        point = Point(lens, ((new, 0),) if new else ())
        if point.kv_tokens <= room and point.key not in {other.key for other in found}:
            found.append(point)
    return found
