"""The command line as a process: interruption, closed pipes, terminals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

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


def here() -> dict[str, str]:
    """The environment, with this checkout first."""
    return {**os.environ, "PYTHONPATH": str(Path(sb.__file__).parent.parent)}
