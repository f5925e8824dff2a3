"""The command line as a process: interruption, closed pipes, full disks, terminals, `python -m simbatch`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import simbatch as sb
from simbatch.cli.terminal import progress

PROGRAM = [sys.executable, "-c", "from simbatch.cli import main; main(prog_name='simbatch')"]
SMALL = ("--requests", "60", "--timing", "linear:base_ms=5")


def test_ctrl_c_ends_a_run_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        "import pathlib, time\n"
        "import simbatch as sb\n"
        "class Slow(sb.Continuous):\n"
        "    def admit(self, *args):\n"
        "        pathlib.Path('started').touch()\n"
        "        time.sleep(0.05)\n"
        "        return super().admit(*args)\n"
    )
    process = subprocess.Popen(
        [*PROGRAM, "run", "sharegpt", "--rate", "20", "--scheduler", "slow:Slow"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=here(),
    )  # fmt: skip
    give_up_s = time.monotonic() + 30
    while not (tmp_path / "started").exists() and time.monotonic() < give_up_s:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, "", "\nInterrupted before the end.\n")


def test_ctrl_c_while_the_verbs_are_imported_ends_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    done = run("--version", path=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_importing_the_verbs_leaves_interruptions_as_they_were(tmp_path: Path) -> None:
    for before in ("signal.default_int_handler", "signal.SIG_IGN", "print"):
        code = f"import signal; signal.signal(signal.SIGINT, {before}); import simbatch.cli; " + (
            f"assert signal.getsignal(signal.SIGINT) is {before}"
        )
        assert run(code=code).returncode == 0
    code = "import threading; t = threading.Thread(target=__import__, args=('simbatch.cli',)); t.start(); t.join()"
    assert run(code=code).stderr == ""


@pytest.mark.parametrize(
    "command",
    [
        ["--help"],
        ["--version"],
        ["run", "--help"],
        ["list", "gpus"],
        ["list", "gpus", "--json"],
        ["run", "sharegpt", *SMALL],
    ],
    ids=" ".join,
)
def test_a_full_disk_behind_standard_output_is_one_line(command: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = run(*command, "-q" if command[0] == "run" and "--help" not in command else "", stdout=full)
    why = "standard output cannot be written to (No space left on device). Make room, or send it elsewhere."
    assert (done.returncode, done.stderr) == (1, f"Error: {why}\n")


def test_a_full_disk_behind_standard_error_costs_only_what_was_written_there() -> None:
    with open("/dev/full", "w") as full:
        done = run("run", "sharegpt", *SMALL, stderr=full)
        assert (done.returncode, done.stdout[:8]) == (0, "OFFLINE:")
        done = run("run", "nosuch.csv", stderr=full)
        assert (done.returncode, done.stdout) == (2, "")


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "simbatch", "--version"], capture_output=True, text=True, env=here())
    assert (done.returncode, done.stdout) == (0, f"simbatch, version {sb.version.__version__}\n")


def test_a_reader_that_stops_reading_is_no_error(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*PROGRAM, "list", "models", "--json"],
        cwd=tmp_path,
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        env=here(),
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


def test_no_progress_bar_where_nobody_watches(tmp_path: Path) -> None:
    done = subprocess.run(
        [*PROGRAM, "run", "sharegpt", "--rate", "20", *SMALL], cwd=tmp_path, capture_output=True, text=True, env=here()
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_progress_goes_to_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []

    class Terminal:
        encoding = "utf-8"

        def isatty(self) -> bool:
            return True

        def write(self, text: str) -> None:
            written.append(text)

        def flush(self) -> None: ...

    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress(quiet=True) as advance:
        assert advance is None
    with progress(quiet=False) as advance:
        assert advance is not None
        time.sleep(0.6)
        advance(30, 60)
        time.sleep(0.2)
        advance(60, 60)
    assert any("60/60" in text or "30/60" in text for text in written)


def run(
    *command: str, code: str = PROGRAM[-1], path: Path | None = None, **streams: Any
) -> subprocess.CompletedProcess[str]:
    """The command line (or other *code*) in a process of its own, modules of *path* first."""
    words = [word for word in command if word]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    env = here() if path is None else {**here(), "PYTHONPATH": f"{path}{os.pathsep}{here()['PYTHONPATH']}"}
    return subprocess.run([*PROGRAM[:-1], code, *words], text=True, env=env, **streams)


def here() -> dict[str, str]:
    """The environment, with this checkout first."""
    return {**os.environ, "PYTHONPATH": str(Path(sb.__file__).parent.parent)}
