"""Fixtures for the whole suite."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference data that is not part of the repository; skips where it is missing."""
    folder = Path(os.environ.get("SIMBATCH_SHARED", ROOT.parent / "shared"))
    if not (folder / "data").is_dir():
        pytest.skip("needs the reference data: set SIMBATCH_SHARED to its folder")
    return folder
