"""What `-o DIR` leaves behind: all of the run, and a script that makes it again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

import simbatch as sb
from simbatch import saved
from simbatch.cli import folder

Simbatch = Callable[..., Result]
SMALL = ("run", "sharegpt", "--rate", "20", "--requests", "40", "--timing", "linear:base_ms=5")
SAVED = {
    "config.json",
    "extra_gaps.csv.gz",
    "stays.csv.gz",
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
    done = subprocess.run(
        [str((place / "repeat.sh").absolute()), *map(str, more)], cwd="/", capture_output=True, text=True, env=here()
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_script_names_versions_and_the_trace(simbatch: Simbatch) -> None:
    simbatch(*SMALL, "-o", "x")
    text = Path("x/repeat.sh").read_text()
    assert f"# simbatch {sb.version.__version__}, Python {sys.version.split()[0]}, numpy " in text
    assert f"# trace 'sharegpt', sha256 {sb.Trace.load('sharegpt').sha256}" in text


def test_another_run_replaces_ours_and_nothing_else(simbatch: Simbatch) -> None:
    assert simbatch(*SMALL, "--step", "-o", "x").exit_code == 0
    assert "decisions.jsonl.gz" in names("x")
    Path("x/notes.txt").write_text("mine")
    assert simbatch(*SMALL, "--seed", 1, "-o", "x").exit_code == 0
    assert names("x") == {*SAVED, "notes.txt"}
    assert Path("x/notes.txt").read_text() == "mine"
    assert sb.Result.load("x").config["seed"] == 1


# -- places where results may not go ---------------------------------------------------------------


def test_a_folder_of_somebody_else_is_left_alone(simbatch: Simbatch, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model's folder has a config.json too."""
    Path("mym").mkdir()
    Path("mym/config.json").write_text("the model")
    result = sb.simulate(sb.Trace.load("sharegpt").head(5), sb.Deployment())
    monkeypatch.setattr(sb.Trace, "load", lambda *args, **kw: pytest.fail("simulated first"))
    what = (
        "holds other things than a result of this kind (there is no {} of ours in it), and they could be "
        "overwritten. Give a new name, or an empty folder."
    )
    done = simbatch(*SMALL, "-o", "mym")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == f"Error: -o mym {what.format('facts.json')}\n"
    done = simbatch("compare", *SMALL[1:], "-o", "mym")
    assert (done.exit_code, done.stderr) == (2, f"Error: -o mym {what.format('comparison.json')}\n")
    Path("mym/facts.json").write_text('{"weights": 7}')
    with pytest.raises(sb.UsageError, match="mym holds other things than a result"):
        result.save("mym")
    assert names("mym") == {"config.json", "facts.json"}
    assert Path("mym/config.json").read_text() == "the model"
    result.save("new/one")
    result.save("new/one")


def test_a_run_is_not_saved_over_a_comparison(simbatch: Simbatch) -> None:
    both = ("--systems", "naive,vllm")
    assert simbatch("compare", *SMALL[1:], *both, "-o", "x").exit_code == 0
    assert simbatch("compare", *SMALL[1:], *both, "-o", "x").exit_code == 0
    before = names("x")
    done = simbatch(*SMALL, "-o", "x")
    assert done.exit_code == 2
    assert done.stderr.startswith("Error: -o x holds other things than a result of this kind (there is no facts.json")
    assert names("x") == before


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("", "-o has no name. Give the name of a folder, such as -o first."),
        (" ", "-o has no name. Give the name of a folder, such as -o first."),
        ("y" * 300, "-o {}: there can be no folder of this name (File name too long). Give another name."),
        ("no/" + "y" * 300, "-o {}: a name of 300 bytes, but file systems take 255. Give a shorter name."),
        ("x", "-o {}: x is a file, but results need a folder. Give another name."),
        ("x/y", "-o {}: x is a file, but results need a folder. Give another name."),
    ],
    ids=["empty", "blank", "long", "long below", "file", "below a file"],
)
def test_a_name_that_is_no_folder(simbatch: Simbatch, place: str, text: str) -> None:
    Path("x").write_text("")
    done = simbatch(*SMALL, "-o", place)
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", f"Error: {text.format(place)}\n")


def test_a_folder_that_may_not_be_looked_into(simbatch: Simbatch, locked: str) -> None:
    done = simbatch(*SMALL, "-o", f"{locked}/x")
    why = "there can be no folder of this name (Permission denied). Give another name."
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", f"Error: -o locked/x: {why}\n")


def test_a_folder_that_cannot_be_written_to_is_found_before_the_run(
    simbatch: Simbatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder.os, "access", lambda path, mode: False)
    monkeypatch.setattr(sb.Trace, "load", lambda *args, **kw: pytest.fail("simulated first"))
    done = simbatch(*SMALL, "-o", "x")
    expected = "Error: -o x: . cannot be written to. Give a folder that you may write to.\n"
    assert (done.exit_code, done.stderr) == (2, expected)


@pytest.mark.parametrize("verb", ["run", "compare"])
def test_a_full_disk_is_said_after_the_result(simbatch: Simbatch, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    more = ("--systems", "naive,vllm") if verb == "compare" else ()
    shown = simbatch(verb, *SMALL[1:], *more).stdout
    with monkeypatch.context() as patched:
        patched.setattr(saved, "_write_table", full)
        done = simbatch(verb, *SMALL[1:], *more, "-o", "x")
    assert done.exit_code == 1
    assert done.stdout.splitlines()[:9] == shown.splitlines()[:9]
    place = "x/naive" if more else "x"
    assert done.stderr == (
        f"Error: -o {place}: the run cannot be written (No space left on device). "
        "What is in the folder is not whole; make room, or give another folder.\n"
    )
    # What was begun is ours, and may be done again.
    assert simbatch(verb, *SMALL[1:], *more, "-o", "x").exit_code == 0


def test_a_script_that_cannot_be_written_is_said(simbatch: Simbatch) -> None:
    Path("x/repeat.sh").mkdir(parents=True)
    Path("x/facts.json").write_text('{"format": 1}')
    done = simbatch(*SMALL, "-o", "x")
    assert (done.exit_code, done.stdout.splitlines()[0][:7]) == (1, "STABLE:")
    assert done.stderr == (
        "Error: -o x: the results cannot be written (Is a directory). "
        "What is in the folder is not whole; make room, or give another folder.\n"
    )


# -- scripts that repeat a run ---------------------------------------------------------------------


def test_the_script_of_a_trace_that_came_through_a_pipe_says_so(simbatch: Simbatch) -> None:
    os.mkfifo("rows")
    writer = threading.Thread(target=Path("rows").write_text, args=("prompt_tokens,output_tokens\n5,5\n7,5\n",))
    writer.start()
    done = simbatch("run", "rows", "--timing", "linear:base_ms=5", "-o", "x", "--json")
    writer.join()
    assert (done.exit_code, json.loads(done.stdout)["requests"]["finished"]) == (0, 2)
    again = subprocess.run(["x/repeat.sh"], capture_output=True, text=True)
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr == "The trace came through rows, which cannot be read again.\n"


def test_the_script_of_a_run_as_a_module(simbatch: Simbatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(Path(sb.__file__).parent / "__main__.py"), *SMALL])
    assert simbatch(*SMALL, "-o", "x").exit_code == 0
    done = subprocess.run(["x/repeat.sh", "--json"], capture_output=True, text=True, env=here())
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["requests"]["finished"] == 40


def here() -> dict[str, str]:
    """The environment, with this checkout first."""
    return {**os.environ, "PYTHONPATH": str(Path(sb.__file__).parent.parent)}
