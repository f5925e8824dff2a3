"""The list of what `measure` does, in order of worth, and what each entry costs.

A job has a stage (copy, step, attention, product), a key under which its row is found again, and an
estimate of its time from first principles, which the run corrects as it learns how slow things are.
"""

from __future__ import annotations

from dataclasses import dataclass

from simbatch.deployment import GPU
from validation.form import Coefficients, features
from validation.shape import ELEMENT_BYTES, Shape
from validation.sweep import Point, all_points, held_back

WARMUPS, REPEATS = 3, 10
PRODUCT_TOKENS = (1, 16, 64)
PRODUCTS = ("qkv", "o", "gate_up", "down")
ATTENTION = (
    (1, 128), (256, 512), (32, 1024), (1, 2048), (8, 512), (128, 2048), (16, 1024), (64, 1024), (64, 2048), (8, 4096),
    (1, 8192), (128, 1024), (256, 1024), (16, 4096), (32, 8192), (4, 256), (64, 256), (256, 256), (32, 512),
)  # fmt: skip
"""(rows, context) of the attention kernel alone, the default cut; corners first."""
SHARED = 3
"""Pages may be used up to so often in one iteration, as long as the cache of a layer is far larger than L2."""
FAR_BYTES = 500_000_000
"""Of a layer's cache: ten times an H100's L2, so nothing is found there again."""
MOST_STEP_TOKENS = 135_168
"""Largest context of an iteration in the sweep: 131,072 and a chunk."""
TUNED = ((256, 512), (32, 1024), (8, 512), (64, 2048))
"""(rows, context) at which the other cuts are timed too."""


@dataclass(frozen=True)
class Job:
    """One row to measure."""

    stage: str
    key: str
    estimate_s: float
    point: Point | None = None
    """Of a step."""
    rows: int = 0
    """Of attention."""
    context_tokens: int = 0
    config: str = ""
    """How the attention kernel is cut."""
    product: str = ""
    tokens: int = 0
    """Of a product."""
    held_back: bool = False
    """For judging a fit, not for making it."""


def product_size(shape: Shape, product: str) -> tuple[int, int]:
    """(out, in) of one of a layer's products."""
    width = shape.heads * shape.head_dim
    return {
        "qkv": (shape.qkv_width, shape.hidden),
        "o": (shape.hidden, width),
        "gate_up": (2 * shape.intermediate, shape.hidden),
        "down": (shape.hidden, shape.intermediate),
    }[product]


def attention_bytes(shape: Shape, rows: int, context_tokens: int) -> int:
    """Read by one layer's decode attention: keys and values; queries and outputs are below 1 %."""
    return rows * context_tokens * shape.kv_bytes_per_token_layer


def product_bytes(shape: Shape, product: str, tokens: int) -> int:
    out, width = product_size(shape, product)
    return ELEMENT_BYTES * (out * width + tokens * (out + width))


def jobs(shape: Shape, card: GPU, kv_tokens: int, configs: list[str]) -> list[Job]:
    """Everything, the most valuable first: copy bandwidth, 21 steps, attention, products, the rest of the grid."""
    runs = WARMUPS + REPEATS
    bandwidth = card.bandwidth_bytes_per_s
    found = [Job("copy", "copy", 1.0)]

    def steps(points: list[Point], held: bool = False) -> list[Job]:
        seconds = features([p.counts for p in points], shape, card).seconds(Coefficients())
        return [
            Job("step", p.key, float(s) * (runs + 3) + 0.3, point=p, held_back=held)
            for p, s in zip(points, seconds, strict=True)
        ]

    far = kv_tokens * shape.kv_bytes_per_token_layer >= FAR_BYTES
    room = SHARED * kv_tokens if far else kv_tokens
    points = all_points(min(room, MOST_STEP_TOKENS))
    found += steps([p for p in points if p.first])
    sizes = [(r, c) for r, c in ATTENTION if r * c <= room]
    for name in configs:
        for rows, context in sizes if name == configs[0] else [s for s in TUNED if s in sizes]:
            seconds = attention_bytes(shape, rows, context) * shape.layers / bandwidth + shape.layers * 2e-5
            key = f"B{rows} context {context} {name}"
            found.append(Job("attention", key, seconds * runs + 0.4, rows=rows, context_tokens=context, config=name))
    for product in PRODUCTS:
        for tokens in PRODUCT_TOKENS:
            seconds = product_bytes(shape, product, tokens) * min(8, shape.layers) / bandwidth
            key = f"{product} T{tokens}"
            found.append(Job("product", key, seconds * runs + 0.2, product=product, tokens=tokens))
    found += steps(held_back(points), held=True)
    found += steps([p for p in points if not p.first])
    return found
