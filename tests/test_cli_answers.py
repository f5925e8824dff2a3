"""`simbatch compare` and `simbatch capacity`: what they write where, their exit codes, what they refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

import simbatch as sb
from simbatch.cli import main
from simbatch.cli.verb import Option
from simbatch.systems import SYSTEMS

Simbatch = Callable[..., Result]
SMALL = ("compare", "sharegpt", "--rate", "20", "--requests", "40", "--timing", "linear:base_ms=5")
THREE = ("--systems", "naive,orca-max,vllm")
POLICIES = '''
import simbatch as sb

class ShortestFirst(sb.Continuous):
    """Short prompts first."""
    def __init__(self):
        super().__init__(order=lambda sequence: sequence.prompt_tokens)

class Shy(sb.Continuous):
    """Admits nobody."""
    def admit(self, *args):
        return False

class Interrupted(sb.Continuous):
    """Somebody presses Ctrl-C."""
    def plan(self, *args):
        raise KeyboardInterrupt
'''


def says(done: Result, text: str, code: int = 2) -> None:
    assert (done.stderr, done.stdout, done.exit_code) == (f"Error: {text}\n", "", code)


# -- compare ---------------------------------------------------------------------------------------


def test_compare_shows_a_row_for_each_system(simbatch: Simbatch) -> None:
    done = simbatch(*SMALL)
    assert (done.exit_code, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[1 : 1 + len(SYSTEMS)]] == list(SYSTEMS)
    assert max(map(len, lines)) <= 100
    assert lines[-1] == f"repeat      simbatch {' '.join(SMALL)}"


def test_compare_as_json_is_what_python_computes(simbatch: Simbatch) -> None:
    flags = ("--seed", 3, "--max-num-seqs", 4, "--max-model-len", "1k", "--price", 2, "--tpot", "30ms", *THREE)
    done = simbatch(*SMALL, *flags, "--json")
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert done.stderr == "".join(f"Warning: {warning}\n" for warning in found["warnings"])
    assert list(found)[:2] == ["config", "systems"]
    trace = sb.Trace.load("sharegpt").head(40).at_rate(20, seed=3)
    here = sb.Deployment(max_num_seqs=4, max_model_len=1000, price_usd_per_hour=2.0)
    options: dict[str, Any] = {"max_num_seqs": 4, "max_model_len": 1000, "timing": "linear:base_ms=5", "seed": 3}
    expected = sb.compare(trace, here, systems=THREE[1].split(","), **options).metrics(tpot_s=0.03)
    assert found["differences"] == expected["differences"]
    assert list(found["systems"]) == ["naive", "orca-max", "vllm"]
    for name, run in found["systems"].items():
        assert run["latency_s"] == expected["systems"][name]["latency_s"]
        assert run["cost"]["usd_per_hour"] == 2.0
    assert found["config"]["seed"] == 3
    assert found["config"]["command"].startswith("simbatch compare sharegpt --rate 20")


def test_a_scheduler_from_a_file_beside_named_systems(simbatch: Simbatch) -> None:
    Path("policies_to_compare.py").write_text(POLICIES)
    name = "policies_to_compare:ShortestFirst"
    done = simbatch(*SMALL, "--systems", f" vllm, {name}", "--max-num-seqs", 2, "--json")
    assert done.exit_code == 0
    plain, mine = json.loads(done.stdout)["systems"].values()
    assert mine["config"]["scheduler"]["name"] == "ShortestFirst"
    assert mine["latency_s"]["ttft"]["mean"] != plain["latency_s"]["ttft"]["mean"]


def test_a_system_that_fails_makes_exit_code_1_after_the_others_are_shown(simbatch: Simbatch) -> None:
    flags = ("--systems", "orca-max,vllm", "--kv-tokens", 3000, "--max-model-len", 4096)
    done = simbatch(*SMALL, *flags)
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert lines[1].split()[:2] == ["orca-max", "failed"]
    assert lines[2].split()[0] == "vllm"
    assert "failed      orca-max: contiguous memory of 3000 tokens has no piece" in done.stdout
    found = simbatch(*SMALL, *flags, "--json")
    assert (found.exit_code, list(json.loads(found.stdout)["failed"])) == (1, ["orca-max"])
    assert "Warning: orca-max failed: contiguous memory of 3000 tokens has no piece" in found.stderr


def test_an_interruption_shows_what_is_done(simbatch: Simbatch) -> None:
    Path("policies_to_stop.py").write_text(POLICIES)
    done = simbatch(*SMALL, "--systems", "naive,policies_to_stop:Interrupted,vllm")
    assert (done.exit_code, done.stderr) == (130, "Interrupted before the end.\n")
    assert [line.split()[0] for line in done.stdout.splitlines()[1:4]] == [
        "naive",
        "policies_to_stop:Interrupted",
        "vllm",
    ]
    assert "failed      vllm: interrupted before its end" in done.stdout
    at_once = simbatch(*SMALL, "--systems", "policies_to_stop:Interrupted,vllm")
    assert (at_once.exit_code, at_once.stdout, at_once.stderr) == (130, "", "\nInterrupted before the end.\n")


def test_a_folder_holds_each_run_and_the_comparison(simbatch: Simbatch) -> None:
    Path("policies_to_keep.py").write_text(POLICIES)
    names = "naive,policies_to_keep:ShortestFirst"
    done = simbatch(*SMALL, "--systems", names, "-o", "x", "--ttft", "1s", "--json")
    assert done.exit_code == 0, done.stderr
    assert {path.name for path in Path("x").iterdir()} == {
        "naive",
        "policies_to_keep-ShortestFirst",
        "comparison.json",
        "repeat.sh",
    }
    assert json.loads(Path("x/comparison.json").read_text()) == json.loads(done.stdout)
    naive = sb.Result.load("x/naive").metrics(ttft_s=1.0)
    assert naive == json.loads(done.stdout)["systems"]["naive"]
    script = Path("x/repeat.sh").read_text()
    assert (
        f'compare sharegpt --rate 20 --requests 40 --timing linear:base_ms=5 --systems {names} --ttft 1s "$@"' in script
    )
    Path("y").write_text("")
    says(simbatch(*SMALL, "-o", "y"), "-o y: y is a file, but results need a folder. Give another name.")


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--systems", "vllm,naiv"], "unknown system 'naiv'. Did you mean naive?"),
        (["--systems", "vllm,vllm"], "the system 'vllm' is asked for twice. Leave one out, or name them in a dict."),
        (["--systems", ","], f"no system was asked for. Name some of {', '.join(SYSTEMS)}."),
        (
            ["--systems", "nowhere_at_all:Policy"],
            "scheduler 'nowhere_at_all:Policy': the module 'nowhere_at_all' cannot be imported "
            "(No module named 'nowhere_at_all'). Give module:Class with a module in the current folder or one that "
            "is installed.",
        ),
        (["--gpu", "h1000"], "unknown GPU 'h1000'. Did you mean H100-SXM-80GB or H100-PCIe-80GB or A10?"),
        (["--ttft", "0s"], "the limit ttft=0 s is not above 0 s. Give a time such as 500ms or 2s."),
        (["--batch-size", "0"], "batch_size is 0. Give a whole number of at least 1."),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_compared(simbatch: Simbatch, flags: list[str], text: str) -> None:
    says(simbatch(*SMALL, *flags), text)


def test_flags_of_one_system_are_no_flags_of_a_comparison(simbatch: Simbatch) -> None:
    for flag in ("--system", "--scheduler", "--memory", "--reserve", "--require"):
        done = simbatch(*SMALL, flag, "x")
        assert done.exit_code == 2
        assert f"No such option '{flag}'" in done.stderr


def test_the_flags_of_run_that_make_sense_are_shared() -> None:
    def flags(verb: str) -> set[str]:
        return {name for param in main.commands[verb].params if isinstance(param, Option) for name in param.opts}

    only_run = {"--system", "--scheduler", "--memory", "--reserve", "--require"}
    assert flags("run") - only_run <= flags("compare")
    assert flags("compare") - flags("run") == {"--systems"}
    assert {"--model", "--gpu", "--kv-tokens", "--max-num-seqs", "--length", "--json", "-q"} <= flags("capacity")
    assert "--price" not in flags("capacity"), "it would change nothing"


# -- capacity --------------------------------------------------------------------------------------


def test_capacity_shows_the_formula(simbatch: Simbatch) -> None:
    done = simbatch("capacity", "--model", "llama-13b", "--gpu", "h100", "--gpu-memory-utilization", 0.9)
    assert (done.exit_code, done.stderr) == (0, "")
    for line in (
        "  rounded                           31  (80 - 26) / 1.7 = 31.76",
        "  exact                             32  (80 - 26.03) / 1.6777 = 32.17",
        "  exact, 0.9 of the memory          27  (72 - 26.03) / 1.6777 = 27.40",
    ):
        assert line in done.stdout.splitlines()


def test_capacity_as_json_is_what_python_computes(simbatch: Simbatch) -> None:
    flags = ("--model", "qwen3-8b", "--gpu", "a100-80", "-tp", 2, "--max-num-seqs", 32, "--max-model-len", "8K")
    flags += ("--block-size", 32, "--kv-cache-dtype", "fp8", "--length", "4K", "--no-enable-chunked-prefill")
    done = simbatch("capacity", *flags, "--json")
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    here = sb.Deployment(
        "qwen3-8b",
        gpu="a100-80",
        tensor_parallel_size=2,
        max_num_seqs=32,
        max_model_len=8192,
        block_size=32,
        kv_cache_dtype="fp8",
        enable_chunked_prefill=False,
    )
    assert found == sb.capacity(here, length_tokens=4096).metrics()
    assert done.stderr == "".join(f"Warning: {warning}\n" for warning in found["warnings"])


def test_capacity_of_a_cache_that_was_given(simbatch: Simbatch) -> None:
    done = simbatch("capacity", "--num-gpu-blocks-override", 7891, "--max-model-len", 8192, "--json")
    found = json.loads(done.stdout)
    assert (found["num_gpu_blocks"], found["kv_tokens"], round(found["max_concurrency"], 2)) == (7891, 126_256, 15.41)


def test_warnings_of_capacity_can_be_silenced(simbatch: Simbatch) -> None:
    loud = simbatch("capacity", "--model", "llama-13b", "--length", 4096)
    assert loud.stderr == "Warning: 4,096 tokens exceed max_model_len, 2,048: vLLM would refuse them\n"
    quiet = simbatch("capacity", "--model", "llama-13b", "--length", 4096, "-q")
    assert (quiet.stderr, quiet.stdout) == ("", loud.stdout)


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--gpu", "h1000"], "unknown GPU 'h1000'. Did you mean H100-SXM-80GB or H100-PCIe-80GB or A10?"),
        (["--length", "0"], "length_tokens is 0. Give a whole number of tokens, at least 1."),
        (
            ["--model", "llama-3.1-70b"],
            "Llama-3.1-70B needs 131.4 GiB of weights and 4.1 GiB besides on each GPU, but H100-SXM-80GB gives "
            "72.9 GiB at gpu_memory_utilization 0.92: 62.7 GiB too much. tensor_parallel_size 2 would fit.",
        ),
    ],
    ids=["gpu", "length", "too large"],
)
def test_what_has_no_capacity(simbatch: Simbatch, flags: list[str], text: str) -> None:
    says(simbatch("capacity", *flags), text)


def test_a_length_that_cannot_be_read(simbatch: Simbatch) -> None:
    done = simbatch("capacity", "--length", "2.5")
    assert done.exit_code == 2
    assert "'2.5' is not a whole number. Write one such as 4096, 4k (4,000) or 4K (4,096)." in done.stderr
