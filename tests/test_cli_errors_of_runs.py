"""What the command line says of deployments, values, limits and policies that cannot be: whole texts and exit codes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Simbatch = Callable[..., Result]
HEAD = "prompt_tokens,output_tokens\n"
LINEAR = ("--timing", "linear:base_ms=5")


def says(done: Result, text: str, code: int = 2) -> None:
    """One line on standard error, nothing on the other, and the exit code."""
    assert (done.stderr, done.stdout, done.exit_code) == (f"Error: {text}\n", "", code)


def says_of(done: Result, verb: str, flag: str, text: str) -> None:
    """What click says of a value that cannot be read, with the name of its option."""
    usage = f"Usage: simbatch {verb} [OPTIONS] TRACE\nTry 'simbatch {verb} --help' for help.\n\n"
    assert (done.stderr, done.exit_code) == (f"{usage}Error: Invalid value for '{flag}': {text}\n", 2)


# -- model, GPU, memory ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (
            ["--model", "llama-3.1-70b"],
            "Llama-3.1-70B needs 131.4 GiB of weights and 4.1 GiB besides on each GPU, but H100-SXM-80GB gives "
            "72.9 GiB at gpu_memory_utilization 0.92: 62.7 GiB too much. tensor_parallel_size 2 would fit.",
        ),
        (
            ["-tp", "3"],
            "tensor_parallel_size is 3, which does not divide the 32 attention heads and 8 KV heads of Llama-3.1-8B. "
            "Values that do: 1, 2, 4, 8, 16, 32.",
        ),
        (
            ["--gpu-memory-utilization", "1.5"],
            "gpu_memory_utilization is 1.5, but it is a share of the card's memory. "
            "Give a number above 0 and at most 1.",
        ),
        (
            ["--kv-tokens", "500", "--num-gpu-blocks-override", "50"],
            "num_gpu_blocks and kv_tokens both say how large the KV cache is. Give one of them.",
        ),
        (["--price", "-1"], "price_usd_per_hour is -1.0. Give dollars per GPU and hour."),
        (["--watermark", "1"], "watermark is 1.0. Give a share of the KV memory, from 0 up to below 1."),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_deployment_that_cannot_be(simbatch: Simbatch, flags: list[str], text: str) -> None:
    says(simbatch("run", "sharegpt", *flags), text)


def test_given_memory_goes_before_what_would_fit(simbatch: Simbatch) -> None:
    flags = ("--model", "llama-3.1-70b", "--kv-tokens", 8192, "--max-model-len", 4096, "--requests", 5)
    done = simbatch("run", "sharegpt", *flags)
    assert done.exit_code == 0
    assert "62.7 GiB too much; the KV cache is taken as given" in done.stderr


def test_a_request_that_can_never_fit_is_refused_and_counted(simbatch: Simbatch) -> None:
    Path("t.csv").write_text(f"{HEAD}200000,5\n10,5\n")
    done = simbatch("run", "t.csv", *LINEAR)
    assert done.exit_code == 0
    assert "2 requests: 1 finished, 1 refused." in done.stdout
    assert "Warning: 1 of 2 requests refused: prompt reaches max_model_len\n" in done.stderr


# -- values ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flag", "value", "text"),
    [
        ("--ttft", "500", "the duration '500' has no unit. Write 500ms or 500s."),
        ("--e2e", "2weeks", "'weeks' in '2weeks' is not a unit of time. Known: ns, us, µs, ms, s, min, h, d."),
        ("--tpot", "fast", "'fast' is not a duration. Write a number and a unit, such as 500ms or 2s."),
        (
            "--max-model-len",
            "4x",
            "'4x' is not a whole number. Write one such as 4096, 4k (4,000) or 4K (4,096).",
        ),
        (
            "--max-num-seqs",
            "1.5",
            "'1.5' is not a whole number. Write one such as 4096, 4k (4,000) or 4K (4,096).",
        ),
        ("--seed", "-1", "'-1' is not a seed. Give a whole number from 0."),
        ("--columns", "out", "'out' is not OURS=FILE. Write for example output_tokens=completion_tokens."),
        ("--columns", "n=a,n=b", "n is mapped twice. Leave one of the two out."),
        ("--rate", "fast", "'fast' is not a valid float."),
    ],
)
def test_a_value_that_cannot_be_read(simbatch: Simbatch, flag: str, value: str, text: str) -> None:
    says_of(simbatch("run", "sharegpt", flag, value), "run", flag, text)


@pytest.mark.parametrize(
    ("timing", "text"),
    [
        (
            "linear:base=5",
            "linear timing: 'base=5' is not a coefficient. Write NAME=NUMBER, separated by commas; "
            "names are base_ms, token_us, sequence_us, prefill_token_us, context_ns.",
        ),
        ("linear:base_ms=x", "linear timing: base_ms is 'x', not a number. Write it as base_ms=5."),
        (
            "linear:base_ms=-5",
            "linear timing: base_ms is -5.0, which is no time that work can take. Give a number that is not negative.",
        ),
        (
            "linear:context_ns=3",
            "linear timing: an iteration would take no time. Give base_ms, token_us or sequence_us.",
        ),
    ],
)
def test_timing_coefficients_that_cannot_be(simbatch: Simbatch, timing: str, text: str) -> None:
    says(simbatch("run", "sharegpt", "--timing", timing), text)


# -- limits ----------------------------------------------------------------------------------------


def test_limits_are_checked_before_the_run(simbatch: Simbatch) -> None:
    says(
        simbatch("run", "sharegpt", "--require"),
        "--require needs a limit. Add --ttft, --tpot or --e2e, such as --ttft 2s.",
    )
    says(
        simbatch("run", "sharegpt", "--ttft", "0s"),
        "the limit ttft=0 s is not above 0 s. Give a time such as 500ms or 2s.",
    )
    says(
        simbatch("run", "sharegpt", "--ttft", "1s", "--percentile", "0"),
        "the percentile 0 is not in 0..100. Give a share of requests, such as 95.",
    )


def test_too_few_requests_for_the_percentile(simbatch: Simbatch) -> None:
    done = simbatch("run", "sharegpt", "--rate", 20, "--requests", 50, *LINEAR, "--ttft", "2s", "--percentile", 99)
    assert done.exit_code == 0
    assert done.stderr == (
        "Warning: percentile 99 rests on 50 requests, 0.5 of them beyond it. "
        "Simulate at least 1,000 (--requests 1000) before trusting it.\n"
    )


# -- policies of the user's own --------------------------------------------------------------------

POLICIES = '''
import simbatch as sb

class Shy(sb.Continuous):
    """Admits nobody."""
    def admit(self, sequence, tokens, running, memory):
        return False

class Stranger:
    """No scheduler at all."""
'''


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        (
            "Shy",
            "Shy plans nothing at 1.151144 s while 5 requests wait, 0 run and nobody else arrives. "
            "A policy must admit somebody when the machine is idle, and serve whoever runs.",
            1,
        ),
        (
            "Nowhere",
            "scheduler 'policies_of_errors:Nowhere': policies_of_errors has no class 'Nowhere'. Give module:Class.",
            2,
        ),
        (
            "Stranger",
            "policies_of_errors:Stranger is not a scheduler. "
            "Derive its class from simbatch.Scheduler or simbatch.Continuous.",
            2,
        ),
    ],
)
def test_a_policy_that_does_not_do(simbatch: Simbatch, name: str, text: str, code: int) -> None:
    Path("policies_of_errors.py").write_text(POLICIES)
    flags = ("--rate", 5, "--requests", 5, "--scheduler", f"policies_of_errors:{name}")
    says(simbatch("run", "sharegpt", *flags), text, code)


def test_a_module_that_is_not_there(simbatch: Simbatch) -> None:
    says(
        simbatch("run", "sharegpt", "--scheduler", "nowhere_at_all:Policy"),
        "scheduler 'nowhere_at_all:Policy': the module 'nowhere_at_all' cannot be imported "
        "(No module named 'nowhere_at_all'). "
        "Give module:Class with a module in the current folder or one that is installed.",
    )
