"""Compiles the core with mypyc where SIMBATCH_COMPILED=1 asks for it: the same source, half again to twice as fast.

Needs a C compiler. Without the variable, and for an editable installation, the package is plain Python.
"""

from __future__ import annotations

import os
import shutil
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

CORE = (
    "async_engine",
    "batch",
    "describe",
    "engine",
    "memory/contiguous",
    "memory/copy_on_write",
    "memory/own_prefix",
    "memory/paged",
    "memory/prefix",
    "progression",
    "record",
    "request",
    "scheduler/plan",
    "timing/base",
    "world",
)
"""What runs for every request or round. Policies and timings stay Python, as those that derive from them are."""
NEEDS = ("mypy>=1.18", "setuptools>=77", "numpy>=1.26", "simpy>=4.1.1")


class CompiledCore(BuildHookInterface[Any]):
    """Adds compiled modules to a wheel, beside the source that they were made from."""

    def dependencies(self) -> list[str]:
        return [*NEEDS] if self._asked() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if not self._asked() or version == "editable":
            return
        compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
        if not shutil.which(compiler):
            raise RuntimeError(
                f"SIMBATCH_COMPILED=1 needs a C compiler, and there is no {compiler}. Install one, or leave it out: "
                "the plain package gives the same results."
            )
        self._built = Path(tempfile.mkdtemp())
        compile_core(Path(self.root), self._built)
        for path in self._built.rglob(f"*{sysconfig.get_config_var('EXT_SUFFIX')}"):
            build_data["force_include"][str(path)] = str(path.relative_to(self._built))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if hasattr(self, "_built"):
            shutil.rmtree(self._built)

    def _asked(self) -> bool:
        return self.target_name == "wheel" and os.environ.get("SIMBATCH_COMPILED") == "1"


def compile_core(root: Path, into: Path) -> None:
    """Compile the modules of `CORE` found under *root*; what comes of it goes to *into*."""
    from mypyc.build import mypycify
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    here = Path.cwd()
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copytree(root / "simbatch", Path(scratch, "simbatch"))
        os.chdir(scratch)  # mypyc takes module names from paths below the current folder
        try:
            asked = ["--ignore-missing-imports", "--follow-imports=silent", *(f"simbatch/{name}.py" for name in CORE)]
            extensions = mypycify(asked, opt_level="3", debug_level="0")
            command = build_ext(Distribution({"ext_modules": extensions}))
            command.build_lib = str(into)
            command.ensure_finalized()
            command.run()
        finally:
            os.chdir(here)
