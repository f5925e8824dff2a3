"""The verbs about kernels: `check` on a device (or under the interpreter) and `compile` for sm_90."""

from __future__ import annotations

import argparse
import os
from importlib.util import find_spec
from typing import Any

from simbatch.errors import UsageError


def check(given: argparse.Namespace) -> int:
    if given.fake:
        if find_spec("torch") is None or find_spec("triton") is None:
            print("NOT CHECKED: torch and triton are not installed, and kernels need both, also under the interpreter.")
            return 0
        os.environ["TRITON_INTERPRET"] = "1"  # before Triton is first imported
    else:
        from validation.machine import machine

        print(say_machine(machine()))
    import torch

    from validation import checks
    from validation.far import far
    from validation.loop_check import loop

    device = "cpu" if given.fake else "cuda"
    small = given.quick or given.fake
    named = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
    unknown = [name for name in given.dtypes.split(",") if name not in named]
    if unknown:
        raise UsageError(f"--dtypes has {unknown[0]!r}. Give some of {', '.join(named)}, with commas between them.")
    dtypes = tuple(named[name] for name in given.dtypes.split(","))
    cases = checks.SMALL if small else checks.SMALL + checks.LARGE
    failed = count = 0

    def show(found: checks.Check, kind: str = "") -> None:
        nonlocal failed, count
        failed, count = failed + (not found.ok), count + 1
        print(
            f"{'ok  ' if found.ok else 'FAIL'} {kind}{found.name}: {found.error:.1e} of {found.limit:.0e}", flush=True
        )

    for found in checks.all_checks(device, dtypes, cases):
        show(found)
    for dtype in dtypes:
        for paged in (True, False):
            for found in loop(dtype, device, paged):
                show(found, f"{str(dtype).removeprefix('torch.')}: ")
    if not small and torch.float16 in dtypes:
        for paged in (True, False):
            show(far(device, paged))
            torch.cuda.empty_cache()
    where = "under the interpreter on this CPU" if given.fake else "on this card"
    print(f"{count - failed} of {count} checks passed {where}.")
    return 1 if failed else 0


def compile_kernels(given: argparse.Namespace) -> int:
    if find_spec("triton") is None:
        raise UsageError("triton is not installed. Install the extra: pip install simbatch[gpu].")
    if os.environ.get("TRITON_INTERPRET") == "1":
        raise UsageError("TRITON_INTERPRET=1 is set, and interpreted kernels cannot be compiled. Unset it.")
    import triton

    from validation import compile_check

    print(f"triton {triton.__version__}, sm_90")
    print(compile_check.HEADER)
    problems = count = 0
    for compiled in compile_check.compile_all(given.quick):
        count += 1
        found = compiled.problems()
        problems += bool(found)
        print(compile_check.row(compiled) + "".join(f"  <- {what}" for what in found), flush=True)
    print(f"{count - problems} of {count} variants are as intended.")
    return 1 if problems else 0


def say_machine(machine: dict[str, Any]) -> str:
    names = ("device", "torch", "cuda", "triton", "python", "nvidia_smi driver_version")
    return " · ".join(f"{name} {machine[name]}" for name in names if machine.get(name))
