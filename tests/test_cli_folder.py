"""What `-o DIR` leaves behind: all of the run, and a script that makes it again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

import simbatch as sb
from simbatch.cli import folder

Simbatch = Callable[..., Result]
SMALL = ("run", "sharegpt", "--rate", "20", "--requests", "40", "--timing", "linear:base_ms=5")
SAVED = {
    "config.json",
    "extra_gaps.csv.gz",
    "facts.json",
    "metrics.json",
    "repeat.sh",
    "requests.csv.gz",
    "steps.csv.gz",
}


def names(place: str) -> set[str]:
    return {path.name for path in Path(place).iterdir()}


def without_wall(text: str) -> list[str]:
    return [line for line in text.splitlines() if '"wall_s"' not in line]


def test_a_folder_holds_the_run(simbatch: Simbatch) -> None:
    done = simbatch(*SMALL, "--ttft", "20ms", "-o", "runs/first", "--json")
    assert done.exit_code == 0, done.stderr
    assert names("runs/first") == SAVED
    saved = Path("runs/first/metrics.json").read_text()
    assert json.loads(saved) == json.loads(done.stdout)
    loaded = sb.Result.load("runs/first")
    assert loaded.metrics(ttft_s=0.02) == json.loads(saved)
    assert loaded.config["command"] == " ".join((*SMALL[:0], "simbatch", *SMALL, "--ttft 20ms"))


@pytest.mark.parametrize("more", [(), ("--step", "--sample", "--seed", "5"), ("--ttft", "30ms", "--price", "2")])
def test_the_script_makes_the_same_files_again(simbatch: Simbatch, more: tuple[str, ...]) -> None:
    """Byte for byte, but for the time that the run took."""
    assert simbatch(*SMALL, *more, "-o", "first").exit_code == 0
    script(Path("first"), "-o", Path("second").absolute(), "-q")
    assert names("second") == names("first")
    for name in names("first"):
        one, two = (Path(place, name).read_bytes() for place in ("first", "second"))
        if name.endswith(".json"):
            assert without_wall(one.decode()) == without_wall(two.decode()), name
        elif name != "repeat.sh":
            assert one == two, name


def test_the_script_finds_files_of_the_folder_where_it_was_made(simbatch: Simbatch, tmp_path: Path) -> None:
    Path("my trace.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,10,5\n1,20,6\n")
    assert simbatch("run", "my trace.csv", "--timing", "linear:base_ms=5", "--o", "x").exit_code == 2
    assert simbatch("run", "my trace.csv", "--timing", "linear:base_ms=5", "-o", "x").exit_code == 0
    elsewhere = tmp_path / "elsewhere"
    shutil.move(tmp_path / "x", elsewhere)
    found = json.loads(script(elsewhere, "--json"))
    assert found["requests"]["finished"] == 2
    assert found["config"]["command"] == "simbatch run 'my trace.csv' --timing linear:base_ms=5"


def script(place: Path, *more: object) -> str:
    """Runs a folder's script with this checkout's simbatch, from the root folder."""
    text = (place / "repeat.sh").read_text()
    assert text.startswith("#!/bin/sh\n# Repeats the run")
    assert os.access(place / "repeat.sh", os.X_OK)
    bin_folder = place.absolute().parent / "bin"
    bin_folder.mkdir(exist_ok=True)
    program = bin_folder / "simbatch"
    program.write_text(f"#!{sys.executable}\nfrom simbatch.cli import main\nmain()\n")
    program.chmod(0o755)
    ours = next(line for line in text.splitlines() if line.startswith("exec "))
    (place / "repeat.sh").write_text(text.replace(ours.split()[1], str(program)))
    env = {**os.environ, "PYTHONPATH": str(Path(sb.__file__).parent.parent)}
    done = subprocess.run(
        [str((place / "repeat.sh").absolute()), *map(str, more)], cwd="/", capture_output=True, text=True, env=env
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_script_names_versions_and_the_trace(simbatch: Simbatch) -> None:
    simbatch(*SMALL, "-o", "x")
    text = Path("x/repeat.sh").read_text()
    assert f"# simbatch {sb.version.__version__}, Python {sys.version.split()[0]}, numpy " in text
    assert f"# trace 'sharegpt', sha256 {sb.Trace.load('sharegpt').sha256}" in text


def test_another_run_replaces_ours_and_nothing_else(simbatch: Simbatch) -> None:
    Path("x").mkdir()
    Path("x/notes.txt").write_text("mine")
    assert simbatch(*SMALL, "--step", "-o", "x").exit_code == 0
    assert "decisions.jsonl.gz" in names("x")
    assert simbatch(*SMALL, "--seed", 1, "-o", "x").exit_code == 0
    assert names("x") == {*SAVED, "notes.txt"}
    assert Path("x/notes.txt").read_text() == "mine"
    assert sb.Result.load("x").config["seed"] == 1


def test_a_file_is_no_folder(simbatch: Simbatch) -> None:
    Path("x").write_text("")
    for place in ("x", "x/y"):
        done = simbatch(*SMALL, "-o", place)
        expected = f"Error: -o {place}: x is a file, but results need a folder. Give another name.\n"
        assert (done.exit_code, done.stdout, done.stderr) == (2, "", expected)


def test_a_folder_that_cannot_be_written_to_is_found_before_the_run(
    simbatch: Simbatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder.os, "access", lambda path, mode: False)
    monkeypatch.setattr(sb.Trace, "load", lambda *args, **kw: pytest.fail("simulated first"))
    done = simbatch(*SMALL, "-o", "x")
    expected = "Error: -o x: . cannot be written to. Give a folder that you may write to.\n"
    assert (done.exit_code, done.stderr) == (2, expected)


def test_a_full_disk_is_said(simbatch: Simbatch, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sb.Result, "save", full)
    done = simbatch(*SMALL, "-o", "x")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == (
        "Error: -o x: the results cannot be written (No space left on device). "
        "What is in the folder is not whole; make room, or give another folder.\n"
    )
