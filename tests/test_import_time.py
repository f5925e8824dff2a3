"""Starting is quick: what loads when, in counts and in CPU time."""

from __future__ import annotations

import json
import resource
import subprocess
import sys

import pytest

import simbatch as sb

HELP = "from simbatch.cli import main; main(['--help'], prog_name='simbatch', standalone_mode=False)"


def cpu_s(code: str) -> float:
    """CPU seconds of a Python that runs *code*, its own start included; the best of five."""
    taken = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(taken)


def loaded_by(code: str) -> set[str]:
    """Top-level names of the modules that *code* loads."""
    shown = "import sys, json; sys.stdout.write(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    done = subprocess.run([sys.executable, "-c", f"{code}\n{shown}"], check=True, capture_output=True, text=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_help_takes_at_most_150_ms_of_cpu() -> None:
    assert cpu_s(HELP) <= 0.150


def test_import_takes_at_most_250_ms_of_cpu() -> None:
    assert cpu_s("import simbatch") <= 0.250


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
