"""Starting is quick: what loads when, in counts."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import simbatch as sb

HELP = "from simbatch.cli import main; main(['--help'], prog_name='simbatch', standalone_mode=False)"


def loaded_by(code: str) -> set[str]:
    """Top-level names of the modules that *code* loads."""
    return {name.split(".")[0] for name in modules(code)}


def modules(code: str) -> list[str]:
    """Names of all modules that are there after *code*."""
    shown = "import sys, json; sys.stdout.write(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", f"{code}\n{shown}"], check=True, capture_output=True, text=True)
    names: list[str] = json.loads(done.stdout.splitlines()[-1])
    return names


def test_help_and_import_load_few_modules() -> None:
    """Help takes some 70 ms and an import 25 on a machine with nothing else to do; modules are what can be counted."""
    bare = len(modules("pass"))
    assert len(modules(HELP)) - bare < 130
    assert len(modules("import simbatch")) - bare < 20


def test_help_loads_no_numpy_and_no_simpy() -> None:
    loaded = loaded_by(HELP)
    assert {"click", "simbatch"} <= loaded
    assert not loaded & {"numpy", "simpy", "pandas", "scipy", "rich", "tqdm", "matplotlib"}


def test_a_run_loads_no_pandas_before_a_frame_is_looked_at() -> None:
    code = (
        "import simbatch as sb\n"
        "trace = sb.Trace.from_lengths([10], [5])\n"
        "timing = sb.LinearTiming(base_ms=1)\n"
        "sb.simulate(trace, timing=timing, kv_tokens=64, max_model_len=32).metrics()"
    )
    loaded = loaded_by(code)
    assert {"numpy", "simpy"} <= loaded
    assert not loaded & {"pandas", "scipy", "rich", "matplotlib"}


def test_every_public_name_is_there_and_is_listed() -> None:
    for name in sb.__all__:
        assert getattr(sb, name) is not None
    assert set(sb.__all__) <= set(dir(sb))
    names: dict[str, object] = {}
    exec("from simbatch import *", names)
    assert set(sb.__all__) <= names.keys()


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'simbatch' has no attribute 'simulte'"):
        _ = sb.simulte


def test_simulate_stays_a_function_when_its_module_is_imported_first() -> None:
    code = (
        "from simbatch.simulate import simulate\n"
        "import simbatch, simbatch.simulate\n"
        "assert callable(simbatch.simulate), simbatch.simulate\n"
        "import simbatch.testing\n"
        "assert simbatch.testing.__name__ == 'simbatch.testing'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
