"""A wheel and an editable installation both find the bundled trace, from a folder that has nothing in it.

Each goes into a fresh environment that borrows the dependencies of this one, so no network is needed.
"""

from __future__ import annotations

import importlib.util
import os
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


def run(*command: str | Path, folder: Path) -> str:
    """Standard output of *command* in *folder*, without this process's import path."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PIP_"))}
    done = subprocess.run(
        [*map(str, command)], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
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
