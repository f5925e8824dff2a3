"""`simbatch list` and `--help`: what is known, and what can be asked."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from click.testing import Result

import simbatch as sb
from simbatch.cli import main
from simbatch.limits import DEFAULT_PERCENTILE
from simbatch.scheduler import Limits
from simbatch.show.text import table
from simbatch.systems import DEFAULT_SYSTEM
from simbatch.version import __version__

Simbatch = Callable[..., Result]


@pytest.mark.parametrize("kind", ["gpus", "models", "traces", "systems"])
def test_list_shows_a_table_or_an_array(simbatch: Simbatch, kind: str) -> None:
    shown, found = simbatch("list", kind), simbatch("list", kind, "--json")
    assert (shown.exit_code, found.exit_code, shown.stderr, found.stderr) == (0, 0, "", "")
    rows = json.loads(found.stdout)
    assert [line.split("  ")[0] for line in shown.stdout.splitlines()[1:]] == [row["name"] for row in rows]


def test_listed_names_are_those_that_run_takes(simbatch: Simbatch) -> None:
    for row in json.loads(simbatch("list", "gpus", "--json").stdout):
        assert sb.Deployment(gpu=row["name"], kv_tokens=1000, dtype="float16").card.name == row["name"]
    models = json.loads(simbatch("list", "models", "--json").stdout)
    assert len({row["name"] for row in models}) == len(models) > 60
    for row in models:
        if row["unusable"]:
            with pytest.raises(sb.UsageError, match="cannot be deployed"):
                sb.Deployment(row["name"])
            continue
        here = sb.Deployment(row["name"], kv_tokens=1000, dtype="bfloat16", max_model_len=500)
        assert here.kv_bytes_per_token == row["kv_bytes_per_token_bf16"]
        assert here.shape.params == row["params"] >= row["active_params"] > 0
    assert "sharegpt" in [row["name"] for row in json.loads(simbatch("list", "traces", "--json").stdout)]
    assert "vllm" in [row["name"] for row in json.loads(simbatch("list", "systems", "--json").stdout)]


def test_list_profiles_says_how_good_each_is(simbatch: Simbatch) -> None:
    found = json.loads(simbatch("list", "profiles", "--json").stdout)
    names = {profile["name"] for profile in found}
    assert {"h100-80gb", "h100-64gb-llama-3.1-8b", "a100-80gb", "h200-141gb", "rtx-pro-6000"} <= names
    assert all(profile["source"] and profile["error_worst"] >= 0 for profile in found)


def test_a_profile_times_a_run_and_says_so(simbatch: Simbatch) -> None:
    done = simbatch("run", "sharegpt", "--requests", 50, "--rate", 5, "--timing", "h100-80gb", "--json")
    timing = json.loads(done.stdout)["config"]["timing"]
    assert (timing["name"], timing["use"], timing["kind"]) == ("h100-80gb", "moved to another model", "estimated")
    wrong = simbatch("run", "sharegpt", "--timing", "nowhere.toml")
    assert wrong.exit_code == 2
    assert "Traceback" not in wrong.output


def test_a_table_aligns_figures_at_their_end() -> None:
    assert table(["name", "size"], [["a", "1"], ["long", "1,000"]]) == "name   size\na         1\nlong  1,000"


def test_help_lists_the_verbs(simbatch: Simbatch) -> None:
    done = simbatch("--help")
    assert done.exit_code == 0
    assert "Example: simbatch run sharegpt --rate 20" in done.stdout
    shown = done.stdout.partition("Commands:")[2].splitlines()
    assert {line.split()[0] for line in shown if line[2:3].strip()} >= {"run", "compare", "capacity", "list"}
    for verb in main.commands:
        assert re.search(rf"^  {verb} +[A-Z]", done.stdout, re.MULTILINE)


@pytest.mark.parametrize("verb", sorted(main.commands))
def test_help_of_a_verb_starts_with_an_example_and_fits_on_a_screen(simbatch: Simbatch, verb: str) -> None:
    done = simbatch(verb, "--help")
    lines = done.stdout.splitlines()
    assert done.exit_code == 0
    assert len(lines) <= 50
    assert max(map(len, lines)) <= 80
    commands = lines[0].removeprefix("Example: ").split(" && ")
    assert commands[-1].startswith(f"simbatch {verb} ")
    for command in commands:
        example = simbatch(*command.split()[1:])
        assert (example.exit_code, example.stderr) == (0, "")


def test_every_flag_is_in_the_help(simbatch: Simbatch) -> None:
    shown = simbatch("run", "--help").stdout.replace("[no-]", "")
    flags = {name for param in main.commands["run"].params for name in param.opts if name.startswith("-")}
    assert {flag for flag in flags if not re.search(rf"(?<![\w-]){flag}\b", shown)} == set()


def test_defaults_in_the_help_are_those_of_the_library(simbatch: Simbatch) -> None:
    lines = simbatch("run", "--help").stdout.replace("[no-]", "").splitlines()
    shown = {flag: line for line in lines if line[:3] == "  -" for flag in re.findall(r"--[a-z-]+", line[:38])}
    here, limits = sb.Deployment(), Limits(max_model_len=1)
    defaults = {
        "--model": here.model,
        "--gpu": here.gpu,
        "--gpu-memory-utilization": here.gpu_memory_utilization,
        "--block-size": here.block_size,
        "--kv-cache-dtype": here.kv_cache_dtype,
        "--percentile": f"{DEFAULT_PERCENTILE:g}",
        "--system": DEFAULT_SYSTEM,
        "--watermark": f"{limits.watermark:g}",
    }
    for flag, default in defaults.items():
        assert shown[flag].endswith(f"({default})"), shown[flag]
    for flag in ("chunked-prefill", "reserve-full-isl"):
        assert any(flag in line and line.endswith("(yes)") for line in shown.values())
    assert limits.enable_chunked_prefill
    assert limits.scheduler_reserve_full_isl


def test_the_version(simbatch: Simbatch) -> None:
    assert simbatch("--version").stdout == f"simbatch, version {__version__}\n"
