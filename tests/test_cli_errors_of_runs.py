"""What the command line says of deployments, values, limits and policies that cannot be: whole texts and exit codes."""

from __future__ import annotations

import json
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
        (
            ["--max-num-batched-tokens", "999999999999"],
            "Llama-3.1-8B needs 15.0 GiB of weights and 110626221.9 GiB besides on each GPU, but H100-SXM-80GB gives "
            "72.9 GiB at gpu_memory_utilization 0.92: 110626164.0 GiB too much. "
            "Lower max_num_batched_tokens: 8192 would fit.",
        ),
        (
            ["--max-num-seqs", "9999999", "--max-num-batched-tokens", "9999999"],
            "Llama-3.1-8B needs 15.0 GiB of weights and 16876.4 GiB besides on each GPU, but H100-SXM-80GB gives "
            "72.9 GiB at gpu_memory_utilization 0.92: 16818.5 GiB too much. "
            "Lower max_num_batched_tokens and max_num_seqs: 8192 and 1024 would fit.",
        ),
        (
            ["--block-size", "1M"],
            "Llama-3.1-8B needs 15.0 GiB of weights and 3.0 GiB besides on each GPU, but H100-SXM-80GB gives "
            "72.9 GiB at gpu_memory_utilization 0.92: 201.1 GiB too much. Lower block_size: 16 would fit.",
        ),
        (
            ["--block-size", "999999999999"],
            "block_size is 999999999999, but the most that can be simulated is 1,048,576. Give less.",
        ),
        (
            ["--kv-tokens", "1" + "0" * 23],
            f"kv_tokens is 1{'0' * 23}, but the most that can be simulated is 9,007,199,254,740,992. Give less.",
        ),
        (
            ["--num-gpu-blocks-override", "1" + "0" * 23],
            f"num_gpu_blocks is 1{'0' * 23}, but the most that can be simulated is 9,007,199,254,740,992. Give less.",
        ),
        (
            ["--num-gpu-blocks-override", "9007199254740992"],
            "num_gpu_blocks * block_size is 144115188075855872, but the most that can be simulated is "
            "9,007,199,254,740,992. Give less.",
        ),
        (
            ["--vllm-version", "0.12"],
            "unknown vLLM version '0.12'. Did you mean 0.11 or 0.33? Only the rules of these are known exactly.",
        ),
        (["--scheduling-policy", "fifo"], "unknown scheduling policy 'fifo'. Did you mean fcfs?"),
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


@pytest.mark.parametrize("flags", [(), ("-q",), ("--require", "--ttft", "1s", "--percentile", "100")])
def test_nobody_served_is_a_failure(simbatch: Simbatch, flags: tuple[str, ...]) -> None:
    Path("t.csv").write_text(f"arrival_s,{HEAD}0,200000,5\n1,200000,5\n")
    done = simbatch("run", "t.csv", *LINEAR, *flags)
    assert done.exit_code == 1
    assert done.stdout.startswith("UNSERVED: nothing could be served.\n2 requests: 0 finished, 2 refused.\n")
    assert done.stderr.endswith(
        "Warning: 2 of 2 requests refused: prompt reaches max_model_len\n"
        "Error: none of the 2 requests could be served. "
        "The warnings say why; give more KV memory, a longer max_model_len or other requests.\n"
    )


def test_outputs_that_end_early_are_counted(simbatch: Simbatch) -> None:
    Path("t.csv").write_text("prompt_tokens,output_tokens,max_tokens\n10,90,\n10,91,\n10,95,90\n10,95,200\n10,50,20\n")
    done = simbatch("run", "t.csv", *LINEAR, "--max-model-len", 100)
    assert done.exit_code == 0
    assert done.stderr.splitlines()[1:] == [
        "Warning: 2 outputs end at max_model_len, 100 tokens, before the length in the trace",
        "Warning: 2 outputs end at max_tokens, before the length in the trace",
    ]
    longer = simbatch("run", "t.csv", *LINEAR, "--max-model-len", 104)
    assert "Warning: 1 output ends at max_model_len, 104 tokens, before the length in the trace\n" in longer.stderr
    assert "max_model_len" not in simbatch("run", "t.csv", *LINEAR, "--max-model-len", 210).stderr


def test_a_length_beyond_what_the_model_was_made_for_is_said(simbatch: Simbatch) -> None:
    flags = ("--model", "llama-13b", "--requests", 5, *LINEAR)
    done = simbatch("run", "sharegpt", *flags, "--max-model-len", 2049)
    assert (done.exit_code, done.stderr.splitlines()[0]) == (
        0,
        "Warning: max_model_len 2049 exceeds the 2048 tokens that Llama-13B was made for: "
        "vLLM refuses that unless VLLM_ALLOW_LONG_MAX_MODEL_LEN=1",
    )
    assert "made for" not in simbatch("run", "sharegpt", *flags, "--max-model-len", 2048).stderr
    assert "2049 exceeds" in simbatch("capacity", "--model", "llama-13b", "--max-model-len", 2049).stderr


def test_the_most_kv_memory_that_is_taken_can_be_simulated(simbatch: Simbatch) -> None:
    done = simbatch("run", "sharegpt", "--requests", 5, "--kv-tokens", 2**53, "--json", "-q")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["kv"]["capacity_tokens"] == 2**53


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
        (
            "--seed",
            "\N{ARABIC-INDIC DIGIT THREE}",
            "'\N{ARABIC-INDIC DIGIT THREE}' is not a seed. Give a whole number from 0.",
        ),
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
            "linear",
            "the timing 'linear' has no coefficients. "
            "Write them after it, such as linear:base_ms=5,token_us=20,context_ns=20.",
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
    for verb in ("run", "compare"):
        says(
            simbatch(verb, "sharegpt", "--percentile", "99"),
            "--percentile needs a limit to be kept. Add --ttft, --tpot or --e2e, such as --ttft 2s.",
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
