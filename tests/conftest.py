"""Fixtures for the whole suite."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import settings

settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True, scope="session")
def laws() -> Iterator[None]:
    """Every run of the suite in this process is held to the laws of conservation, Little's among them."""
    import simbatch.result

    made = simbatch.result.Result.__init__

    def checked(result: simbatch.result.Result, facts: simbatch.facts.Facts) -> None:
        made(result, facts)
        if facts.config.get("simbatch"):  # of a simulation, not made by hand
            result.check()

    simbatch.result.Result.__init__ = checked  # type: ignore[method-assign]
    yield
    simbatch.result.Result.__init__ = made  # type: ignore[method-assign]


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


@pytest.fixture
def doc_table() -> Callable[[str, str, list[list[str]]], None]:
    """Compares a table of a document with what was computed: ``doc_table("fidelity.md", "kv-sweep", rows)``.

    The table follows the line ``<!-- table: NAME -->``; *rows* are its rows below the heading. With
    SIMBATCH_WRITE_TABLES=1 in the environment it is written instead of compared.
    """

    def compare(document: str, name: str, rows: list[list[str]]) -> None:
        path = ROOT / "docs" / document
        lines = path.read_text(encoding="utf-8").split("\n")
        start = lines.index(f"<!-- table: {name} -->") + 3
        assert lines[start - 1].startswith("| ---"), f"{document} has no heading of two lines for the table {name}"
        end = next(i for i in range(start, len(lines)) if not lines[i].startswith("|"))
        computed = [f"| {' | '.join(row)} |" for row in rows]
        if os.environ.get("SIMBATCH_WRITE_TABLES") == "1":
            path.write_text("\n".join([*lines[:start], *computed, *lines[end:]]), encoding="utf-8")
        else:
            assert lines[start:end] == computed

    return compare


@pytest.fixture
def locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a folder in the current one that may not be looked into; root gives its rights away for it."""
    monkeypatch.chdir(tmp_path)
    place = tmp_path / "locked"
    place.mkdir()
    place.chmod(0)
    tmp_path.chmod(0o755)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield "locked"
    finally:
        if root:
            os.seteuid(0)
        place.chmod(0o755)
