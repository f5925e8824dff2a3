"""The GPUs known by name: `gpus.csv` and `gpus-implied.csv`, and the names under which people meet them.

Memory is what a process sees (torch's total), not the label of the box. Rents are examples with a
date and are used for nothing unless the user asks; see SOURCES.md for the certainty marks.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from simbatch.errors import UsageError, unknown

GIB = 2**30
_FILES = ("gpus.csv", "gpus-implied.csv")
"""Cards by their data sheets, and cards that only measurements tell of."""

_NOISE = {
    "ac", "amd", "blackwell", "core", "edition", "geforce", "gpu", "graphics", "hbm2", "hbm3", "hbm3e", "instinct",
    "nvidia", "rtx", "server", "tensor", "tesla",
}  # fmt: skip
"""Words of a printed name that distinguish nothing in the table."""
_FORM = re.compile(r"(sxm|pcie|nvl)\d*")
_MEMORY = re.compile(r"(\d{2,3})(?:gb|gib)?")


@dataclass(frozen=True)
class GPU:
    """One accelerator. Bytes, bytes per second and floating-point operations per second."""

    name: str
    memory_bytes: int
    """Total that the engine sees."""
    memory_nominal_gb: int
    bandwidth_bytes_per_s: float
    bf16_flop_per_s: float
    """Dense peak; fp16 where there is no bf16."""
    fp8_flop_per_s: float | None
    """Dense peak, None without fp8 units."""
    link_bytes_per_s: float | None
    """To the other GPUs of the machine, one way; None where there is no such link."""
    has_bf16: bool
    usd_per_hour_low: float | None
    usd_per_hour_high: float | None
    price_date: str
    memory_certainty: str
    spec_certainty: str
    price_certainty: str
    notes: str

    def ridge_flop_per_byte(self, kind: str = "dense") -> float:
        """Operations per byte read at which arithmetic takes as long as reading.

        *kind*: ``dense`` (16 bit), ``sparse`` (16 bit with 2:4 sparsity, twice dense) or ``fp8``.
        """
        peaks = {"dense": self.bf16_flop_per_s, "sparse": 2 * self.bf16_flop_per_s, "fp8": self.fp8_flop_per_s}
        if kind not in peaks:
            raise unknown("kind of peak", kind, peaks)
        peak = peaks[kind]
        if peak is None:
            raise UsageError(f"{self.name} has no {kind} units. Ask for the dense peak.")
        return peak / self.bandwidth_bytes_per_s


def list_gpus() -> list[GPU]:
    """Every row of the table, in its order."""
    return list(_table().values())


def find_gpu(name: str) -> GPU:
    """The GPU that *name* stands for: a row's name, a short form, or what nvidia-smi and vLLM print.

    Without a form factor SXM is meant where the row exists. Raises UsageError with the nearest
    names where no row or more than one is left.

    >>> find_gpu("NVIDIA H100 80GB HBM3").name, find_gpu("a100-40").name
    ('H100-SXM-80GB', 'A100-SXM-40GB')
    """
    family, form, memory_gb = _parse(name)
    left = []
    for gpu in list_gpus():
        row_family, row_form, _ = _parse(gpu.name)
        if family != row_family or memory_gb not in (None, gpu.memory_nominal_gb):
            continue
        if memory_gb is None and gpu.memory_certainty == "implied":
            continue  # meant only when its memory is named
        if form == row_form or form is None or (row_form is None and form != "nvl"):
            left.append(gpu)
    if form is None and any(_parse(gpu.name)[1] == "sxm" for gpu in left):
        left = [gpu for gpu in left if _parse(gpu.name)[1] == "sxm"]
    if len(left) == 1:
        return left[0]
    if left:
        raise UsageError(f"the GPU {name!r} may be {' or '.join(g.name for g in left)}. Write one of these names.")
    raise unknown("GPU", name, [gpu.name for gpu in list_gpus()])


def _parse(name: str) -> tuple[frozenset[str], str | None, int | None]:
    """(what tells the family, form factor, label in GB) of a name in any spelling."""
    family, form, memory_gb = set(), None, None
    spaced = re.sub(r"\brtx(?=a?\d)", "rtx ", re.sub(r"\(.*?\)", "", name.lower()))
    for word in re.findall(r"[a-z0-9]+", spaced):
        if form_word := _FORM.fullmatch(word):
            form = form_word[1]
        elif label := _MEMORY.fullmatch(word):
            memory_gb = int(label[1])
        elif word not in _NOISE:
            family.add(word)
    return frozenset(family), form, memory_gb


@cache
def _table() -> dict[str, GPU]:
    texts = (files("simbatch.deployment").joinpath(name).read_text(encoding="utf-8") for name in _FILES)
    return {row["gpu"]: _gpu(row) for text in texts for row in csv.DictReader(text.splitlines())}


def _gpu(row: dict[str, str]) -> GPU:
    def number(column: str) -> float | None:
        """The figure in a cell; a certainty may follow it in parentheses."""
        return float(row[column].split()[0]) if row[column] else None

    def scaled(column: str, factor: float) -> float | None:
        value = number(column)
        return None if value is None else value * factor

    return GPU(
        name=row["gpu"],
        memory_bytes=round((number("torch_total_gib") or 0) * GIB),
        memory_nominal_gb=int(row["mem_nominal_gb"]),
        bandwidth_bytes_per_s=(number("mem_bw_gb_s") or 0) * 1e9,
        bf16_flop_per_s=(number("bf16_dense_tflops") or 0) * 1e12,
        fp8_flop_per_s=scaled("fp8_dense_tflops", 1e12),
        link_bytes_per_s=scaled("link_one_way_gb_s", 1e9),
        has_bf16="no bf16" not in row["notes"],
        usd_per_hour_low=number("usd_per_hour_low"),
        usd_per_hour_high=number("usd_per_hour_high"),
        price_date=row["price_date"],
        memory_certainty=row["torch_total_certainty"],
        spec_certainty=row["spec_certainty"],
        price_certainty=row["price_certainty"],
        notes=row["notes"],
    )
