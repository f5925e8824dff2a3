"""What fits side by side, as text: a row for each value, the share of memory that is left for the KV cache first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simbatch.show.text import line, paragraphs, percent, table

if TYPE_CHECKING:
    from simbatch.answers.capacity import Capacity
    from simbatch.answers.capacity_table import CapacityTable

_HEADS = ("GPU, GiB", "weights", "KV cache", "share", "KV tokens", "concurrency", "sequences", "each, tokens", "gain")


def capacity_table_text(found: CapacityTable) -> str:
    """All rows for people; no line break at the end."""
    base = next((row.sequences.value for row in found.rows.values() if row.sequences.value), None)
    rows = [[value, *_cells(row, base)] for value, row in found.rows.items()]
    first = next(iter(found.rows.values())).deployment
    fixed = {
        "model": first.shape.name,
        "gpu": f"{first.tensor_parallel_size} x {first.card.name}",
        "dtype": first.weight_format.name if first.weight_format else first.dtype,
    }
    shown = " · ".join(value for name, value in fixed.items() if name != found.varied)
    notes = [
        line("GiB", "2^30 bytes of one GPU; estimates, ranges with --json or without --compare"),
        line("concurrency", "requests of max_model_len, as vLLM prints it"),
        line("gain", "sequences that fit at once against the first row that holds any"),
    ]
    failed = [line("failed", f"{value}: {message}") for value, message in found.failed.items()]
    return "\n\n".join([shown, table([found.varied, *_HEADS], rows, texts=1), paragraphs([*notes, *failed])])


def _cells(row: Capacity, base: float | None) -> list[str]:
    here = row.deployment
    memory_gib = here.memory.total_bytes / 2**30
    sequences = row.sequences.value
    return [
        f"{memory_gib:.1f}",
        f"{row.weights_gib:.2f}",
        f"{row.kv_gib.value:.2f}",
        percent(row.kv_gib.value / memory_gib),
        f"{row.kv_tokens.value:,}",
        f"{row.max_concurrency.value:.2f}",
        f"{sequences:,}",
        f"{row.length_tokens:,}",
        "-" if base is None else f"{sequences / base:.2f}",
    ]
