"""The GPU kernels without a GPU: interpreted in a process of their own, and compiled for sm_90 in another.

Both need the extra [gpu] (torch and Triton for the first, Triton alone for the second) and skip without it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton: the extra [gpu]")
needs_torch = pytest.mark.skipif(
    find_spec("torch") is None or find_spec("triton") is None, reason="needs torch and Triton: the extra [gpu]"
)


def run(*arguments: str, interpret: bool = False, **more: str) -> subprocess.CompletedProcess[str]:
    """Python with *arguments* from the root of the repository, which need not be installed."""
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    env |= {"PYTHONPATH": str(ROOT), **({"TRITON_INTERPRET": "1"} if interpret else {}), **more}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, cwd=ROOT, env=env, timeout=900
    )


@needs_torch
@pytest.mark.slow
def test_kernels_and_loop_under_the_interpreter() -> None:
    done = run("-m", "pytest", "tests/gpu", "-q", "-p", "no:cacheprovider", interpret=True)
    assert done.returncode == 0, done.stdout[-6000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) >= 55


@needs_triton
@pytest.mark.slow
def test_every_variant_compiles_for_sm_90(tmp_path: Path) -> None:
    """No spills, 16-byte loads, tensor cores, copies in flight, room for as many programs as are counted on."""
    done = run("-m", "validation", "compile", TRITON_CACHE_DIR=str(tmp_path))
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    variants, as_intended = re.findall(r"\d+", done.stdout.splitlines()[-1])
    assert variants == as_intended
    assert int(variants) >= 70


@needs_triton
def test_a_variant_that_breaks_its_promise_is_said_so() -> None:
    """A tile twice as wide on a quarter of the warps spills; two stages behind a table keep nothing in flight."""
    script = """
from dataclasses import replace
from validation.compile_check import compile_variant, kernels, variants
wide = next(v for v in variants(quick=True) if v.kernel == "attend")
bad = replace(wide, warps=2, stages=2, constants=wide.constants | {"TILE": 256, "STAGES": 2})
print(*compile_variant(bad, kernels()["attend"]).problems(), sep="\\n")
"""
    done = run("-c", script)
    assert done.returncode == 0, done.stderr
    assert "registers spill" in done.stdout
    assert "do not overlap" in done.stdout
    assert "leave no room for 3 programs" in done.stdout


@needs_triton
def test_interpreted_kernels_cannot_be_compiled_and_the_message_says_so() -> None:
    done = run("-m", "validation", "compile", interpret=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Unset it" in done.stderr
