"""The README and some pages of docs/ do what they say: their blocks are run, and what they print is compared.

The blocks of a page are run in order in one empty folder.

Blocks marked ``bash`` run with the installed `simbatch`, blocks marked ``python`` in one session; one that
opens with a comment such as ``# name.py`` is written to that file as well. A ``text`` block after
either is what it prints, but for the time that the machine took. To write the README's output anew, set
SIMBATCH_REWRITE_README=1. Blocks marked ``sh`` set up a machine and are run by `.ci/run`.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
PAGES = [
    README,
    *(
        ROOT / "docs" / f"{name}.md"
        for name in ("capacity", "cost", "diagnose", "fit", "how-to-traces", "see-it", "sizing")
    ),
]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TOOK = re.compile(r"(iterations in )[\d.,]+ (?:ns|µs|ms|s)\b")

Block = tuple[str, str, int, int]
"""What it is marked as, what it holds, and where that begins and ends."""


def blocks(page: Path = README) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [(found[1], found[2], found.start(2), found.end(2)) for found in BLOCK.finditer(text)]


def sh_blocks() -> list[str]:
    return [content.strip() for kind, content, _, _ in blocks() if kind == "sh"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_does_what_it_says(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    session: dict[str, object] = {"__name__": "readme"}
    printed, wrong = "", []
    for kind, content, start, end in blocks(page):
        if kind == "bash":
            printed = run_bash(content, tmp_path)
        elif kind == "python":
            printed = run_python(content, session)
        elif kind == "text" and TOOK.sub(r"\1…", content) != TOOK.sub(r"\1…", printed):
            wrong.append((start, end, content, printed))
        assert kind in ("bash", "python", "text", "sh"), f"nobody runs a block marked {kind!r}"
    if os.environ.get("SIMBATCH_REWRITE_README"):
        rewrite(page, [(start, end, printed) for start, end, _, printed in wrong])
    for _, _, content, printed in wrong:
        assert content == printed


def run_bash(content: str, folder: Path) -> str:
    """Standard output of each line of *content*, which must succeed and warn of nothing."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", content], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{content}{done.stderr}"
    assert done.stderr == "", content
    return done.stdout


def run_python(content: str, session: dict[str, object]) -> str:
    """What *content* prints."""
    name = re.match(r"# (\w+\.py)\n", content)
    if name:
        Path(name[1]).write_text(content, encoding="utf-8")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(content, "page", "exec"), session)
    return printed.getvalue()


def rewrite(page: Path, outputs: list[tuple[int, int, str]]) -> None:
    text = page.read_text(encoding="utf-8")
    for start, end, printed in reversed(outputs):
        text = text[:start] + printed + text[end:]
    page.write_text(text, encoding="utf-8")


def test_outputs_are_compared_but_for_the_time_they_took() -> None:
    kinds = [kind for kind, *_ in blocks()]
    assert kinds.count("text") >= 3
    assert kinds[:2] == ["bash", "text"], "the first screen is a command and what it prints"
    assert TOOK.sub(r"\1…", "45,916 iterations in 438 ms · seed 0") == "45,916 iterations in … · seed 0"


def test_two_commands_set_a_machine_up_and_ci_runs_the_second() -> None:
    install, test = sh_blocks()
    assert install.endswith(".venv/bin/simbatch run sharegpt --rate 20")
    assert "constraints.txt" in test
    assert test.endswith("-m pytest -n auto --dist worksteal")
    assert test in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("page", [README, *sorted((ROOT / "docs").glob("*.md"))], ids=lambda page: page.stem)
def test_links_lead_to_files(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []
    assert links or page != README
