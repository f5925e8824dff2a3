"""What the command line says of names and traces that it cannot use: the whole text and the exit code."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

import simbatch as sb

Simbatch = Callable[..., Result]
HEAD = "prompt_tokens,output_tokens\n"
TIMES = "arrival_s," + HEAD
LINEAR = ("--timing", "linear:base_ms=5")


def says(done: Result, text: str, code: int = 2) -> None:
    """One line on standard error, nothing on the other, and the exit code."""
    assert (done.stderr, done.stdout, done.exit_code) == (f"Error: {text}\n", "", code)


# -- unknown names ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (
            ["sharegtp"],
            "unknown trace 'sharegtp'. Did you mean sharegpt or sharegpt-sessions? "
            "The path of a csv or jsonl file is accepted too.",
        ),
        (["no/such.csv"], "no/such.csv: no such file. Give the path of a csv or jsonl file."),
        ([""], "the trace has no name. Give the path of a csv or jsonl file, or a name (simbatch list traces)."),
        ([" "], "the trace has no name. Give the path of a csv or jsonl file, or a name (simbatch list traces)."),
        (["./"], ". is a folder. Give the path of a csv or jsonl file in it."),
        (["/dev/zero"], "/dev/zero is a device, not a file. Give the path of a csv or jsonl file."),
        (
            ["sharegpt", "--model", "llama-3.1-9b"],
            "unknown model 'llama-3.1-9b'. Did you mean Llama-3.1-8B or Llama-3.1-70B or Llama-3.1-405B? "
            "A folder with a Hugging Face config.json is accepted too.",
        ),
        (["sharegpt", "--gpu", "h1000"], "unknown GPU 'h1000'. Did you mean H100-SXM-80GB or H100-PCIe-80GB or A10?"),
        (["sharegpt", "--system", "vlm"], "unknown system 'vlm'. Did you mean vllm or vllm-v0?"),
        (
            ["sharegpt", "--scheduler", "contnuous"],
            "unknown scheduler 'contnuous'. Did you mean continuous? module:Class is accepted too.",
        ),
        (
            ["sharegpt", "--memory", "pagd"],
            "unknown memory 'pagd'. Did you mean paged? module:Class is accepted too.",
        ),
        (
            ["sharegpt", "--timing", "ruufline"],
            "unknown timing 'ruufline'. Did you mean roofline? module:Class is accepted too.",
        ),
        (["sharegpt", "--quantization", "fp3"], "unknown quantization 'fp3'. Did you mean fp8 or mxfp4?"),
        (
            ["sharegpt", "--dtype", "int8"],
            "unknown dtype 'int8'. Known: auto, bf16, bfloat16, float, float16, float32, fp16, fp32, half. "
            "Weights of 8 or 4 bits are asked for with quantization.",
        ),
        (
            ["sharegpt", "--columns", "output_tokns=out"],
            "unknown trace column 'output_tokns'. Did you mean output_tokens or prompt_tokens or prefix_tokens?",
        ),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_a_name_that_is_not_known(simbatch: Simbatch, flags: list[str], text: str) -> None:
    says(simbatch("run", *flags), text)


def test_an_unknown_kind_verb_or_flag(simbatch: Simbatch) -> None:
    says(simbatch("list", "gpu"), "unknown kind 'gpu'. Did you mean gpus?")
    done = simbatch("run", "sharegpt", "--max-num-seq", 5)
    assert done.exit_code == 2
    assert "No such option '--max-num-seq'." in done.stderr
    assert "'--max-num-seqs'" in done.stderr
    done = simbatch("rum", "sharegpt")
    assert done.exit_code == 2
    assert "Error: No such command 'rum'." in done.stderr


def test_a_missing_argument(simbatch: Simbatch) -> None:
    done = simbatch("run", "--rate", 5)
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (2, "Error: Missing argument 'TRACE'.")


# -- trace files -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (
            "arrival_s,prompt_tokens\n0,1\n",
            "t.csv line 1: no column output_tokens (found: arrival_s, prompt_tokens; needed: prompt_tokens, "
            "output_tokens). Rename the columns, or map them with --columns output_tokens=NAME.",
        ),
        (
            f"{HEAD}5,5\n5,-1\n5,-2\n5,0\n",
            "t.csv line 3: output_tokens is -1, but a request asks for at least 1. "
            "Three rows like this; --drop-bad leaves them out.",
        ),
        (
            f"{TIMES}1,5,5\n0.5,5,5\n",
            "t.csv line 3: arrival_s is 0.5, but the row before has 1: times cannot go back. "
            "One row like this; --sort puts it in order.",
        ),
        (
            f"{TIMES}1,5,5\n15000001,5,5\n",
            "t.csv: arrival_s spans 15,000,000 s (173 days), but the clock ends after 106 days. "
            "If these are milliseconds, --time-scale 0.001 makes seconds of them.",
        ),
        (
            f"{HEAD}5,5\n6",
            "t.csv breaks off inside record 2, after record 1. "
            "Fetch the file again, or use the whole records with --drop-bad.",
        ),
        ("", "t.csv is empty. A trace has a line of column names, then one line per request."),
    ],
    ids=["missing column", "bad rows", "unsorted", "milliseconds", "cut", "empty"],
)
def test_a_trace_that_cannot_be_used(simbatch: Simbatch, content: str, text: str) -> None:
    Path("t.csv").write_text(content)
    says(simbatch("run", "t.csv"), text)


def test_a_gzip_file_that_breaks_off(simbatch: Simbatch) -> None:
    packed = gzip.compress((HEAD + "".join(f"{k},{k * 7919 % 1000 + 1}\n" for k in range(1, 2000))).encode())
    Path("t.csv.gz").write_bytes(packed[: len(packed) // 2])
    done = simbatch("run", "t.csv.gz")
    assert done.exit_code == 2
    assert done.stderr.startswith("Error: t.csv.gz breaks off after record ")
    assert done.stderr.endswith(
        "the gzip stream has no end. Fetch the file again, or use the whole records with --drop-bad.\n"
    )
    whole = simbatch("run", "t.csv.gz", "--drop-bad", *LINEAR)
    assert whole.exit_code == 0
    assert "Warning: t.csv.gz: 1 bad row was left out.\n" in whole.stderr


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (
            ["--rate", "5", "--time-scale", "2"],
            "--rate replaces recorded times, so --time-scale has nothing to multiply. Leave one of the two out.",
        ),
        (
            ["--burstiness", "2"],
            "--burstiness shapes arrivals at a rate, and there is none. Add --rate, such as --rate 5.",
        ),
        (["--time-scale", "2"], "sharegpt has no arrival times to scale. Give a rate instead, such as --rate 5."),
        (
            ["--rate", "0"],
            "the rate is 0 requests per second, but it has to be more than 0. Give a positive number.",
        ),
        (["--requests", "0"], "0 requests were asked for, but a trace has at least 1. Ask for more."),
        (
            ["--requests", "99999999999999999999"],
            "the number of requests is 99999999999999999999, but the most that can be simulated is 50,000,000. "
            "Give less.",
        ),
        (
            ["--rate", "5", "--requests", "10000000000", "--sample"],
            "the number of requests is 10000000000, but the most that can be simulated is 50,000,000. Give less.",
        ),
        (["--n", "0"], "the number of samples is 0. Give a whole number of at least 1."),
        (
            ["--n", "1M"],
            "the number of requests is 7203717120, but the most that can be simulated is 50,000,000. Give less.",
        ),
        (
            ["--rate", "5", "--burstiness", "1e-300"],
            "the burstiness is 1e-300, at which nearly all requests come at once. Give 0.001 or more; 1 is Poisson.",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_traffic_that_makes_no_sense(simbatch: Simbatch, flags: list[str], text: str) -> None:
    says(simbatch("run", "sharegpt", *flags), text)


def test_more_than_memory_holds_is_one_line(simbatch: Simbatch, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_much(*_: object) -> None:
        raise MemoryError("Unable to allocate 373. MiB for an array with shape (50000000,)")

    monkeypatch.setattr(sb.Trace, "head", too_much)
    what = "there is not enough memory for that. Ask for fewer requests, such as --requests 1000."
    says(simbatch("run", "sharegpt", "--requests", "50M"), what, 1)


def test_a_trace_that_may_not_be_looked_at(simbatch: Simbatch, locked: str) -> None:
    says(
        simbatch("run", f"{locked}/t.csv"),
        "locked/t.csv cannot be read (Permission denied). Give a file that you may read.",
    )
