"""``python -m validation`` from the repository: every verb with --fake, and nothing imported that need not be there."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from validation.cli import main
from validation.measurements import FILE

ROOT = Path(__file__).resolve().parent.parent
VALIDATION = ROOT / "validation"

BLOCKED = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked}:
            raise ModuleNotFoundError(f"{{name}} is blocked in this test", name=name)
sys.meta_path.insert(0, Blocked())
from validation.cli import main
sys.exit(main(sys.argv[1:]))
"""


def without(blocked: set[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line in a process that cannot import *blocked*."""
    return subprocess.run(
        [sys.executable, "-c", BLOCKED.format(blocked=blocked), *arguments],
        capture_output=True, text=True, check=False, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=120,
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole fake run."""
    out = str(tmp_path_factory.mktemp("run"))
    assert main(["measure", "--fake", "--out", out, "--seed", "1"]) == 0
    assert main(["fit", "--out", out]) == 0
    replay = ["replay", "sharegpt", "--fake", "--out", out, "--requests", "20", "--systems", "vllm,orca-max"]
    assert main([*replay, "--rate", "3"]) == 0
    assert main(["report", "--out", out]) == 0
    return Path(out)


def test_a_whole_run_leaves_everything_in_one_folder(folder: Path) -> None:
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert {"machine.json", FILE, "profile.json", "report.txt"} <= names
    for system in ("vllm", "orca-max"):
        assert {f"replay-{system}/{name}" for name in ("summary.json", "gpu_steps.csv", "simulated_steps.csv")} <= names
    assert json.loads((folder / "machine.json").read_text())["fake"] is True
    assert json.loads((folder / "profile.json").read_text())["kind"] == "fake"
    if "profile.toml" in names:  # where the package has a fit of its own
        ours = tomllib.loads((folder / "profile.toml").read_text())
        assert (ours["kind"], ours["about"][:4]) == ("estimated", "FAKE")
    text = (folder / "report.txt").read_text()
    assert text.startswith("FAKE: a stand-in was asked instead of a card. Nothing here is a measurement.")
    assert "decides the same in every step" in text
    assert text.endswith("targets missed: none\n")


def test_nothing_beyond_numpy_scipy_pandas_and_simpy_is_needed(tmp_path: Path) -> None:
    """Blocked: torch and Triton (fake), and what the package has for its own command line."""
    blocked = {"torch", "triton", "click", "tqdm", "rich", "matplotlib", "pytest", "hypothesis", "datasets"}
    out = ("--out", str(tmp_path))
    for arguments in (
        ("measure", "--fake", "--first", *out),
        ("fit", *out),
        ("replay", "sharegpt", "--fake", "--requests", "5", *out),
        ("report", *out),
    ):
        done = without(blocked, *arguments)
        assert done.returncode == 0, (arguments, done.stderr)


def test_measuring_and_reporting_need_no_simpy(tmp_path: Path) -> None:
    """The one library that GPU images lack: without it there is still something to bring home."""
    for arguments in (("measure", "--fake", "--first"), ("report",)):
        assert without({"simpy"}, *arguments, "--out", str(tmp_path)).returncode == 0


def test_progress_goes_to_standard_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["measure", "--fake", "--out", str(folder), "--seed", "1"]) == 0
    out, err = capsys.readouterr()
    assert "0 rows measured, 1" in out
    assert "(FAKE)" in out
    assert err == ""


def test_minutes_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Minutes count from the start of the process, which is long ago here."""
    assert main(["measure", "--fake", "--out", str(tmp_path), "--minutes", "0"]) == 0
    assert "0 rows measured, 0 were there" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["fit"], "has no machine.json. Run python -m validation measure"),
        (["report"], "has no machine.json"),
        (["measure", "--fake", "--model", "llama-9"], "unknown model 'llama-9'"),
        (["measure", "--fake", "--model", "mixtral-8x7b"], "no dense LLaMA-family model"),
        (["measure", "--fake", "--layers", "99"], "Give 1 to that many"),
        (["measure", "--fake", "--gpu", "h10"], "unknown GPU"),
        (["replay", "nothing", "--fake"], "unknown trace 'nothing'"),
        (["replay", "sharegpt", "--fake", "--systems", "vlm"], "Did you mean vllm"),
    ],
)
def test_wrong_usage_is_explained(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--out", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("Error: ")
    assert said in err


def test_another_model_does_not_go_into_the_same_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["measure", "--fake", "--model", "llama-3-8b", "--layers", "32", "--out", str(folder)]) == 2
    assert "Give another --out folder" in capsys.readouterr().err


def test_another_depth_joins_the_fit_and_another_card_does_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, more in (("20", ("--layers", "20")), ("40", ()), ("other", ("--gpu", "h200"))):
        assert main(["measure", "--fake", "--first", "--out", str(tmp_path / name), *more]) == 0
    fit = ["fit", "--out", str(tmp_path / "40"), "--also"]
    assert main([*fit, str(tmp_path / "20")]) == 0
    capsys.readouterr()
    assert main([*fit, str(tmp_path / "other")]) == 2
    assert "not on fake H100-SXM-80GB. Leave it out" in capsys.readouterr().err


def test_the_job_script_runs_everything(tmp_path: Path) -> None:
    """On the stand-in; kernels are only checked where torch and Triton are, and the log says which."""
    env = os.environ | {"PYTHON": sys.executable, "MINUTES": "0.5"}
    script = [str(VALIDATION / "run_h100.sh"), str(tmp_path / "run"), "--fake", "--gpu", "h200"]
    done = subprocess.run(script, capture_output=True, text=True, check=False, env=env, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    for verb in ("check", "measure", "fit", "replay", "report"):
        assert f"== {verb} " in done.stdout
    for system in ("vllm", "orca-max", "static", "naive"):
        assert (tmp_path / "run" / f"replay-{system}" / "summary.json").exists()
    assert "checks passed under the interpreter" in done.stdout or "NOT CHECKED" in done.stdout
    assert "H200" in (tmp_path / "run" / "report.txt").read_text()


def test_recorded_measurements_are_none_or_real() -> None:
    """Nothing is presented as measured that was not; what was is fitted again."""
    from simbatch.deployment import find_gpu
    from validation.fit import fit
    from validation.measurements import read, read_machine
    from validation.shape import find_shape

    folders = [path for path in (VALIDATION / "measurements").iterdir() if path.is_dir()]
    said = (VALIDATION / "measurements" / "README.md").read_text()
    assert ("There are none yet" in said) == (not folders)
    for folder in folders:
        machine = read_machine(folder)
        assert machine["fake"] is False
        card = json.loads((folder / "profile.json").read_text())
        found = fit(read(folder), find_shape(machine["model"], machine["layers"]), find_gpu(machine["gpu"]))
        for name, value in found.coefficients.describe().items():
            assert card["formula"][name] == pytest.approx(value, rel=1e-3)


def imports_at_the_top(path: Path) -> set[str]:
    """Top-level packages that importing *path* brings in, what only type checkers see left out."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            found |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(str(node.module).split(".")[0])
    return found


def test_torch_and_triton_are_imported_where_they_are_used() -> None:
    torch = {"model.py", "dense.py", "executor.py", "card.py", "checks.py", "far.py", "loop_check.py"}
    modules = {str(path.relative_to(VALIDATION)): imports_at_the_top(path) for path in VALIDATION.rglob("*.py")}
    assert {name for name, found in modules.items() if "torch" in found} == torch
    triton = {name for name, found in modules.items() if "triton" in found}
    assert triton == {f"kernels/{name}.py" for name in ("attention", "cache", "rows")}
    assert not {name for name, found in modules.items() if found & {"pandas", "scipy", "click", "tqdm"}}


def test_only_the_command_line_prints() -> None:
    for path in VALIDATION.rglob("*.py"):
        calls = [ast.unparse(n.func) for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)]
        assert ("print" in calls) == path.name.startswith("cli"), path
