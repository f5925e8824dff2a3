"""Every kernel variant in use, compiled for sm_90 without a GPU, and what the compiler made of it.

Triton carries its own ptxas and cuobjdump, so registers, spills, shared memory, the width of loads and
the use of tensor cores are known before a card is touched. Needs Triton alone, in a process without
TRITON_INTERPRET. ``python -m validation compile`` prints the table; `problems` is what CI asserts.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SHARED_LIMIT_BYTES = 227 * 1024
"""Shared memory of a Hopper multiprocessor that programs can use."""
REGISTERS = 65_536
"""Registers of a multiprocessor."""
BUCKETS = (1, 16, 256)
"""Batch buckets whose planner is compiled: the smallest, the last of one head a merge program, the largest."""


@dataclass(frozen=True)
class Variant:
    """One specialisation: a kernel, the types of its arguments and its compile-time values."""

    kernel: str
    label: str
    types: dict[str, str]
    """Run-time arguments in order; pointers and strides are multiples of 16 unless in `odd`."""
    constants: dict[str, Any]
    warps: int
    stages: int = 3
    programs: int = 1
    """Programs that must be able to live on one multiprocessor."""
    wide_loads: bool = True
    """Must loads of 16 bytes occur?"""
    tensor_cores: bool = False
    in_flight: int = 0
    """Asynchronous copies that must stay in flight while a tile is computed."""
    odd: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Compiled:
    """What came out for one variant."""

    variant: Variant
    registers: int
    stack_bytes: int
    shared_bytes: int
    wide: int
    """Loads of 16 bytes, asynchronous copies included."""
    asynchronous: int
    tensor: int
    in_flight: int
    """Copies that a tile's arithmetic need not wait for: 0 when nothing overlaps inside a program."""

    def problems(self) -> list[str]:
        """What breaks the promise of the variant, in words; empty when nothing does."""
        v = self.variant
        found = []
        if self.stack_bytes:
            found.append(f"{self.stack_bytes} bytes of stack: registers spill")
        if self.registers * v.warps * 32 * v.programs > REGISTERS:
            found.append(f"{self.registers} registers leave no room for {v.programs} programs of {v.warps} warps")
        if self.shared_bytes * v.programs > SHARED_LIMIT_BYTES:
            found.append(f"{self.shared_bytes} bytes of shared memory leave no room for {v.programs} programs")
        if v.wide_loads and not self.wide:
            found.append("no 16-byte loads")
        if self.in_flight < v.in_flight:
            found.append(f"{self.in_flight} copies in flight, not {v.in_flight}: loads and arithmetic do not overlap")
        if v.tensor_cores and not self.tensor:
            found.append("no tensor-core instructions")
        return found


_TYPES = {"fp16": "*fp16", "bf16": "*bf16"}
_MODELS = {"7b": (32, 32, 4096, 11008), "13b": (40, 40, 5120, 13824), "8b": (32, 8, 4096, 14336),
           "70b": (64, 8, 8192, 28672)}  # fmt: skip
"""Heads, KV heads, width, feed-forward width of the shapes that the job replays."""


def variants(quick: bool = False) -> Iterator[Variant]:
    """All in use; *quick*: those of one type, for a test that must be short."""
    from validation.kernels.cache import heads_each
    from validation.kernels.configs import BLOCK_H, CONFIGS, CONTIGUOUS

    kinds = ["fp16"] if quick else list(_TYPES)
    for kind in kinds:
        pointer = _TYPES[kind]
        cuts = [
            (config, page) for page in (16, 64) for config in (CONFIGS if page == 16 and not quick else CONFIGS[:1])
        ]
        for config, page in [*cuts, (CONTIGUOUS, 0)]:
            for group in (1, 4) if quick else (1, 4, 8):
                yield Variant(
                    "attend",
                    f"{kind} group {group} page {page or 'none'} cut {config.name}",
                    dict.fromkeys(("q", "k_cache", "v_cache"), pointer)
                    | {"tables": "*i32" if page else "*i64", "lens": "*i32", "item_row": "*i32"}
                    | {"item_split": "*i32", "splits": "*i32", "chunk": "*i32", "out": pointer}
                    | {"part": "*fp32", "part_lse": "*fp32", "scale_log2": "fp32"}
                    | dict.fromkeys(("q_row", "q_head", "page_stride", "head_stride", "slot_stride"), "i32")
                    | dict.fromkeys(("table_row", "out_row", "out_head"), "i32"),
                    {"GROUP": group, "BLOCK_H": BLOCK_H, "DIM": 128, "PAGE": page, "TILE": config.tile_tokens,
                     "STAGES": config.stages, "WIDEN": False},
                    warps=config.warps,
                    stages=config.stages,
                    programs=config.programs,
                    tensor_cores=True,
                    in_flight=2 if config.stages > 2 else 0,
                    odd=frozenset({"table_row"}),
                )  # fmt: skip
        cache = dict.fromkeys(("k_cache", "v_cache"), pointer) | {"slots": "*i64"}
        places = dict.fromkeys(("cache_page", "cache_head", "cache_slot"), "i32")
        yield Variant(
            "write_kv",
            kind,
            {"k": pointer, "v": pointer} | cache | {"page_tokens": "i32"}
            | {"row_stride": "i32", "head_stride": "i32"} | places,
            {"DIM": 128, "HEADS_EACH": 8},
            warps=4,
            programs=4,
            odd=frozenset({"page_tokens"}),
        )  # fmt: skip
        for model, (heads, kv_heads, width, _) in _MODELS.items():
            yield Variant(
                "rotate_and_write",
                f"{kind} {model}",
                {"qkv": pointer} | cache | {"positions": "*i64", "cosines": "*fp32", "sines": "*fp32"}
                | {"page_tokens": "i32", "qkv_row": "i32"} | places,
                {"HEADS": heads, "KV_HEADS": kv_heads, "HALF": 64, "HEADS_EACH": heads_each(heads, kv_heads)},
                warps=2,
                programs=8,
                odd=frozenset({"page_tokens"}),
            )  # fmt: skip
            for add in (True, False):
                yield Variant(
                    "add_norm",
                    f"{kind} {model}{'' if add else ' first'}",
                    dict.fromkeys(("x", "residual", "weight", "out"), pointer)
                    | dict.fromkeys(("x_row", "residual_row", "out_row"), "i32") | {"epsilon": "fp32"},
                    {"WIDTH": width, "BLOCK": 1 << (width - 1).bit_length(), "ADD": add},
                    warps=8,
                    programs=2,
                )  # fmt: skip
        yield Variant(
            "silu_up",
            kind,
            {"gate_up": pointer, "out": pointer, "width": "i32", "in_row": "i32", "out_row": "i32"},
            {"BLOCK": 1024},
            warps=4,
            programs=4,
        )
        for merged in (1, 8):
            yield Variant(
                "merge",
                f"{kind} {merged} heads",
                {"part": "*fp32", "part_lse": "*fp32", "splits": "*i32", "first_item": "*i32", "out": pointer}
                | {"heads": "i32", "out_row": "i32", "out_head": "i32"},
                {"DIM": 128, "BLOCK_S": 16, "HEADS": merged},
                warps=4,
                programs=4,
                odd=frozenset({"heads"}),
            )  # fmt: skip
    for rows in BUCKETS[-1:] if quick else BUCKETS:
        yield Variant(
            "plan",
            f"{rows} rows",
            dict.fromkeys(("lens", "item_row", "item_split", "splits", "first_item", "chunk"), "*i32")
            | dict.fromkeys(("rows", "items", "target", "least"), "i32"),
            {"ROWS": rows, "ITEMS": 32, "TILE": CONFIGS[0].tile_tokens},
            warps=4,
            wide_loads=False,
            odd=frozenset({"rows", "items", "target", "least"}),
        )


def kernels() -> dict[str, Any]:
    """The kernels by the names that variants use."""
    from validation.kernels import attention, cache, rows

    return {
        "plan": attention.plan_kernel,
        "attend": attention.attend_kernel,
        "merge": attention.merge_kernel,
        "write_kv": cache.write_kv_kernel,
        "rotate_and_write": cache.rotate_and_write_kernel,
        "add_norm": rows.add_norm_kernel,
        "silu_up": rows.silu_up_kernel,
    }


def compile_variant(variant: Variant, kernel: Any, capability: int = 90) -> Compiled:
    """Compile for sm_*capability* and read the result off the binary."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = list(kernel.arg_names)
    signature = {name: variant.types.get(name, "constexpr") for name in names}
    missing = [n for n in names if n not in variant.types and n not in variant.constants]
    if missing or list(variant.types) != [n for n in names if n in variant.types]:
        raise ValueError(f"{variant.kernel}: the variant does not match the kernel's arguments {names}")
    constants = {(names.index(name),): value for name, value in variant.constants.items()}
    attributes = {
        (i,): [["tt.divisibility", 16]]
        for i, name in enumerate(names)
        if name in variant.types and variant.types[name] != "fp32" and name not in variant.odd
    }
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=attributes)
    made = triton.compile(
        source,
        target=GPUTarget("cuda", capability, 32),
        options={"num_warps": variant.warps, "num_stages": variant.stages},
    )
    usage, sass = _disassemble(made.asm["cubin"])
    return Compiled(
        variant,
        registers=int(re.findall(r"REG:(\d+)", usage)[-1]),
        stack_bytes=int(re.findall(r"STACK:(\d+)", usage)[-1]) + 4 * len(re.findall(r"\b(?:LDL|STL)\b", sass)),
        shared_bytes=made.metadata.shared,
        wide=len(re.findall(r"\b(?:LDG|LDGSTS)\.[A-Z0-9.]*128", sass)) + sass.count("UTMALDG"),
        asynchronous=len(re.findall(r"\bLDGSTS\b", sass)) + sass.count("UTMALDG"),
        in_flight=max((int(n) for n in re.findall(r"async_wait.*num = (\d+)", made.asm["ttgir"])), default=0),
        tensor=len(re.findall(r"\b(?:HMMA|HGMMA)\b", sass)),
    )


def _disassemble(cubin: bytes) -> tuple[str, str]:
    """(resource usage, machine code) as cuobjdump prints them."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        texts = [
            subprocess.run([tool, flag, file.name], capture_output=True, text=True, check=True).stdout
            for flag in ("-res-usage", "-sass")
        ]
    return texts[0], texts[1]


def compile_all(quick: bool = False) -> Iterator[Compiled]:
    """Each variant in order, as many at once as there are cores (half a second to three each)."""
    with ProcessPoolExecutor() as pool:
        yield from pool.map(_compile, variants(quick))


def _compile(variant: Variant) -> Compiled:
    return compile_variant(variant, kernels()[variant.kernel])


def row(compiled: Compiled) -> str:
    """One line of the table."""
    v = compiled.variant
    return (
        f"{v.kernel:17} {v.label:36} {compiled.registers:4} {compiled.shared_bytes / 1024:6.1f} "
        f"{compiled.stack_bytes:5} {compiled.wide:5} {compiled.asynchronous:5} "
        f"{compiled.in_flight:6} {compiled.tensor:6}"
    )


HEADER = f"{'kernel':17} {'variant':36} regs {'KiB':>6} stack   16B async flight tensor"
