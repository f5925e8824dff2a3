"""Fixtures for the whole suite."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference data that is not part of the repository; skips where it is missing."""
    folder = Path(os.environ.get("SIMBATCH_SHARED", ROOT.parent / "shared"))
    if not (folder / "data").is_dir():
        pytest.skip("needs the reference data: set SIMBATCH_SHARED to its folder")
    return folder


@pytest.fixture
def simbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs the command line in an empty folder, in this process: ``simbatch("run", "sharegpt")``."""
    from simbatch.cli import main

    monkeypatch.chdir(tmp_path)
    # A policy of the current folder puts it on the path.
    monkeypatch.setattr(sys, "path", list(sys.path))
    return lambda *args: CliRunner().invoke(main, [str(arg) for arg in args])
