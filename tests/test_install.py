"""A wheel and an editable installation both find the bundled trace, from a folder that has nothing in it; a compiled
wheel gives the same results as the source.

Each goes into a fresh environment that borrows the dependencies of this one, so no network is needed.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SHOW = "import simbatch.trace as t; x = t.Trace.load('sharegpt'); print(t.__file__, x.name, len(x), x.sha256, sep='|')"
PIP = ("--no-input", "--disable-pip-version-check", "--no-index", "--no-deps", "--no-build-isolation", "-q")

pytestmark = [
    pytest.mark.install,
    pytest.mark.skipif(
        not all(importlib.util.find_spec(name) for name in ("pip", "hatchling")),
        reason="needs pip and hatchling to build",
    ),
]


def run(*command: str | Path, folder: Path, **variables: str) -> str:
    """Standard output of *command* in *folder*, without this process's import path."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PIP_"))}
    done = subprocess.run(
        [*map(str, command)], cwd=folder, env=environment | variables, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The interpreter of a fresh environment with this one's packages behind its own."""
    venv.create(tmp_path / "env", with_pip=False, symlinks=os.name != "nt")
    paths = {"base": str(tmp_path / "env"), "platbase": str(tmp_path / "env")}
    site = Path(sysconfig.get_path("purelib", "venv", vars=paths))
    (site / "zz_borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return Path(sysconfig.get_path("scripts", "venv", vars=paths)) / Path(sys.executable).name


def test_a_wheel_brings_the_trace(tmp_path: Path, python: Path) -> None:
    run(sys.executable, "-m", "pip", "wheel", *PIP, "-w", tmp_path, ROOT, folder=tmp_path)
    (wheel,) = tmp_path.glob("simbatch-*.whl")
    run(python, "-m", "pip", "install", *PIP, wheel, folder=tmp_path)
    check(tmp_path, python, tmp_path / "env")


def test_an_editable_installation_finds_the_trace(tmp_path: Path, python: Path) -> None:
    run(python, "-m", "pip", "install", *PIP, "-e", ROOT, folder=tmp_path)
    check(tmp_path, python, ROOT)


def check(tmp_path: Path, python: Path, home: Path) -> None:
    """The package comes from *home*, and the name reaches the trace of the repository."""
    empty = tmp_path / "empty"
    empty.mkdir()
    file, name, rows, sha256 = run(python, "-c", SHOW, folder=empty).strip().split("|")
    assert home in Path(file).resolve().parents or home.resolve() in Path(file).resolve().parents
    assert (name, rows) == ("sharegpt", "6870")
    assert sha256 == "319a9a988593f896ac3ef4191f76a39249b2db4fd9057fc656d34ba2e97dad79"


RUNS = """
import hashlib, json, pickle, sys
import simbatch as sb

class Shortest(sb.VllmV1):  # a policy and a memory of one's own: Python, on a core that may not be
    def queue(self):
        return sb.Continuous(order=lambda sequence: sequence.prompt_tokens).queue()

class Counted(sb.PagedMemory):
    caches = True
    def __init__(self, blocks):
        super().__init__(blocks)
        self.taken = [0]
    def take(self, *what, **more):
        self.taken[0] += 1
        return super().take(*what, **more)

memory = pickle.loads(pickle.dumps(Counted(300)))
assert memory.take(sb.Sequence(next(sb.Trace.load("sharegpt").requests()), 4096), 20) and memory.taken == [1]
trace = sb.Trace.load("sharegpt").sample(150, 0).at_rate(20, seed=0)
tight = {"kv_tokens": 6000, "max_model_len": 4096}
runs = {
    "default": {}, "plain": {"async_scheduling": False, "enable_prefix_caching": False}, "tight": tight,
    "v0": {"system": "vllm-v0", **tight}, "sarathi": {"system": "sarathi", **tight}, "static": {"system": "static"},
    "contiguous": {"system": "orca-oracle", **tight}, "users": {"concurrency": 8, **tight},
    "samples": {"trace": trace.with_samples(3), **tight},
    "samples on v0": {"trace": trace.with_samples(3), "system": "vllm-v0"},
    "replicas": {"replicas": 3, "router": "least-loaded", **tight},
    "mine": {"scheduler": Shortest(), "memory": Counted(300), "replicas": 2},
    "stepped": {"step": True, **tight},
}
found = {}
for name, options in runs.items():
    facts = sb.simulate(options.pop("trace", trace), sb.Deployment("llama-3.1-8b", gpu="h100"), **options).facts
    digest = hashlib.sha256(repr((facts.iterations, facts.peak_held_tokens, facts.decisions)).encode())
    for table in (facts.requests, facts.rows, facts.extra_gaps, facts.stays):
        for column in sorted(table):
            digest.update(table[column].tobytes())
    found[name] = digest.hexdigest()
files = {name: getattr(module, "__file__", "") for name, module in sys.modules.items() if name.startswith("simbatch.")}
found["compiled"] = sorted(name for name, file in files.items() if file.endswith((".so", ".pyd")))
print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("mypyc", "setuptools")) or not shutil.which("cc"),
    reason="needs mypy, setuptools and a C compiler to compile the core",
)
def test_a_compiled_core_gives_the_same_results(tmp_path: Path, python: Path) -> None:
    run(sys.executable, "-m", "pip", "wheel", *PIP, "-w", tmp_path, ROOT, folder=tmp_path, SIMBATCH_COMPILED="1")
    (wheel,) = tmp_path.glob("simbatch-*.whl")
    assert "-none-any" not in wheel.name
    run(python, "-m", "pip", "install", *PIP, wheel, folder=tmp_path)
    compiled = json.loads(run(python, "-c", RUNS, folder=tmp_path))
    source = json.loads(run(sys.executable, "-c", RUNS, folder=tmp_path))
    assert source.pop("compiled") == []
    names = compiled.pop("compiled")
    assert {"simbatch.engine", "simbatch.async_engine", "simbatch.batch", "simbatch.memory.paged"} <= set(names)
    assert "simbatch.scheduler.vllm_v1" not in names
    assert compiled == source
