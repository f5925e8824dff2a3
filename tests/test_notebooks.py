"""Notebooks do what they show: each is run from a clean kernel, and what its cells print is compared with what is kept.

Pictures are not compared, since another release of matplotlib draws other pixels; that there is one is.
A notebook has a twin in plain Python, and the two hold the same cells. With SIMBATCH_REWRITE_NOTEBOOKS=1
in the environment a notebook is written anew from its twin, outputs included; twice gives the same file.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import jupytext
import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
TWINS = sorted(NOTEBOOKS.glob("[0-9]*.py"))
REWRITE = os.environ.get("SIMBATCH_REWRITE_NOTEBOOKS") == "1"
TOOK = re.compile(r"(iterations in )[\d.,]+ (?:ns|µs|ms|s)\b")
COMPARED = ("text/plain", "text/html")


def fresh(twin: Path) -> Any:
    """The notebook that *twin* stands for, without outputs; ids are places, so that they stay."""
    notebook = jupytext.read(twin)
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
    )
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number:02}"
        cell.metadata = nbformat.from_dict({})
    return notebook


def cells(notebook: Any) -> list[tuple[str, str]]:
    return [(cell.cell_type, cell.source) for cell in notebook.cells]


def printed(notebook: Any) -> list[list[str]]:
    """What each code cell says, without the time that the machine took."""
    return [
        [
            TOOK.sub(r"\1…", text)
            for output in cell.outputs
            for text in (output.get("text"), *(output.get("data", {}).get(kind) for kind in COMPARED))
            if text is not None and not text.startswith("<Figure size")
        ]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def settle(notebook: Any) -> None:
    """Take out what another run of the same cells would not repeat, and join what a cell printed in pieces."""
    for number, cell in enumerate((cell for cell in notebook.cells if cell.cell_type == "code"), start=1):
        cell.execution_count = number
        cell.metadata = nbformat.from_dict({})
        outputs: list[Any] = []
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = number
            if output.output_type == "stream":
                output.text = TOOK.sub(r"\1…", output.text)
                if outputs and outputs[-1].get("name") == output.name:
                    outputs[-1].text += output.text
                    continue
            for kind in COMPARED:
                if kind in output.get("data", {}):
                    output.data[kind] = TOOK.sub(r"\1…", output.data[kind])
            outputs.append(output)
        cell.outputs = outputs
    for key in [key for key in notebook.metadata if key not in ("kernelspec", "language_info")]:
        del notebook.metadata[key]
    notebook.metadata.language_info = nbformat.from_dict({"name": "python"})


def run(notebook: Any, folder: Path) -> None:
    NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()
    settle(notebook)


@pytest.mark.slow
@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.stem)
def test_a_notebook_runs_from_a_clean_kernel_and_prints_what_it_shows(
    twin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MPLBACKEND", raising=False)  # pictures go into the notebook
    notebook = fresh(twin)
    run(notebook, tmp_path)
    path = twin.with_suffix(".ipynb")
    if REWRITE:
        nbformat.write(notebook, path)
    kept = nbformat.read(path, as_version=4)
    nbformat.validate(kept)
    assert cells(kept) == cells(notebook), "notebook and twin differ: run jupytext --sync"
    assert printed(kept) == printed(notebook)
    assert not [o for cell in kept.cells for o in cell.get("outputs", ()) if o.get("name") == "stderr"], "it warns"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.stem)
def test_a_notebook_is_a_story_with_a_picture_and_a_computed_end(twin: Path) -> None:
    kept = nbformat.read(twin.with_suffix(".ipynb"), as_version=4)
    assert [cell.execution_count for cell in kept.cells if cell.cell_type == "code"] == [
        *range(1, 1 + sum(cell.cell_type == "code" for cell in kept.cells))
    ]
    assert kept.cells[0].source.startswith("# "), "it opens with its title"
    assert any("image/png" in o.get("data", {}) for cell in kept.cells for o in cell.get("outputs", ()))
    last = kept.cells[-1]
    assert last.cell_type == "code"
    assert any(o.output_type == "stream" and o.text.strip() for o in last.outputs), "what it came to is computed"
    assert {key for cell in kept.cells for key in cell.metadata} <= {"lines_to_next_cell"}, "times of one run are kept"


def test_every_notebook_has_its_twin_and_a_line_in_the_readme() -> None:
    assert [path.stem for path in sorted(NOTEBOOKS.glob("*.ipynb"))] == [twin.stem for twin in TWINS]
    readme = (NOTEBOOKS / "README.md").read_text(encoding="utf-8")
    assert [twin.stem for twin in TWINS if f"({twin.stem}.ipynb)" not in readme] == []
