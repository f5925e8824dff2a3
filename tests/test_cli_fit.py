"""`simbatch fit`: each kind of measurement gives a profile that a run takes, and bad input one clear line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import Result

import simbatch as sb
from simbatch.timing.card import read_card
from simbatch.timing.coefficients import Coefficients
from simbatch.timing.formula import FormulaTiming
from simbatch.timing.many import formula_s
from simbatch.timing.work import FEATURES, loads

Simbatch = Callable[..., Result]
HERE = ("--model", "llama-3.1-8b", "--gpu", "h100")
QUICK = ("--resamples", "3")
TRUTH = Coefficients(step_us=1800, layer_us=33, kv_efficiency=0.8, kv_half_heads=0.13, sequence_us=6)


def says(done: Result, text: str, code: int = 2) -> None:
    """One line on standard error that has *text*, nothing on the other, and the exit code."""
    assert text in done.stderr, done.stderr
    assert (done.stdout, done.exit_code, done.stderr.count("\n")) == ("", code, 1)
    assert done.stderr.startswith("Error: ")


def log(runs: int = 3, rows: int = 120) -> pd.DataFrame:
    """Decodes and mixed steps of several runs, of a machine that is known."""
    rng = np.random.default_rng(3)
    frames = []
    for run in range(runs):
        decoding = rng.integers(1, (20, 100, 300)[run % 3], rows)
        prompts = (rng.random(rows) < 0.25).astype(int)
        each = rng.integers(50, 800, rows) * prompts
        frame = pd.DataFrame(
            {
                "run": f"r{run}",
                "tokens": decoding + each,
                "sequences": decoding + prompts,
                "prefill_tokens": each,
                "prefill_sequences": prompts,
                "context_tokens": decoding * rng.integers(50, (3000, 900, 300)[run % 3], rows) + each,
                "prefill_context_tokens": each,
                "prefill_pairs": each * (each + 1) // 2,
                "waiting": 0,
            }
        )
        work = loads(sb.Deployment("llama-3.1-8b"), {name: frame[name].to_numpy(float) for name in FEATURES})
        noise = 1 + 0.004 * rng.standard_normal(rows)
        frames.append(frame.assign(duration_ms=formula_s(TRUTH, work) * 1e3 * noise))
    return pd.concat(frames, ignore_index=True)


@pytest.fixture
def steps(tmp_path: Path) -> Path:
    path = tmp_path / "steps.csv"
    log().to_csv(path, index=False)
    return path


def takes(simbatch: Simbatch, card: Path, **expected: Any) -> dict[str, Any]:
    """A run with the profile, and what it says of its timing."""
    done = simbatch("run", "sharegpt", "--rate", 5, "--requests", 20, *HERE, "--timing", card, "--json", "-q")
    assert done.exit_code == 0, done.stderr
    timing: dict[str, Any] = json.loads(done.stdout)["config"]["timing"]
    assert {name: timing[name] for name in expected} == expected
    return timing


def test_a_log_of_iterations(simbatch: Simbatch, steps: Path, tmp_path: Path) -> None:
    done = simbatch("fit", steps, *HERE, *QUICK, "-o", "mine.toml", "--name", "mine", "--engine", "vLLM 0.9")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith("profile     mine · Llama-3.1-8B on H100-SXM-80GB · vLLM 0.9")
    assert max(map(len, done.stdout.splitlines())) <= 100
    card = read_card(tmp_path / "mine.toml")
    # Weights and layers are pinned to usual values, so the constant stands for the rest of them.
    work = loads(sb.Deployment("llama-3.1-8b"), {name: log()[name].to_numpy(float) for name in FEATURES})
    ratio = formula_s(card.values(), work) / formula_s(TRUTH, work)
    assert np.median(np.abs(ratio - 1)) < 0.01
    timing = takes(simbatch, tmp_path / "mine.toml", name="mine", kind="measured")
    assert 0 < timing["error"] < 0.02


def test_the_json_object(simbatch: Simbatch, steps: Path) -> None:
    done = simbatch("fit", steps, *HERE, *QUICK, "--json")
    found = json.loads(done.stdout)
    assert {"profile", "error", "range", "n"} <= found.keys()
    assert found["n"] == {"iterations": 360, "runs": 3}
    assert found["range"]["tokens"][1] == log()["tokens"].max()


def test_names_of_columns_and_of_the_format(simbatch: Simbatch, tmp_path: Path) -> None:
    """The same log under other names, as jsonl, gives the same profile."""
    frame = log()
    frame.to_csv(tmp_path / "a.csv", index=False)
    renamed = frame.rename(columns={"tokens": "n_tok", "duration_ms": "latency"})
    renamed.to_json(tmp_path / "b.jsonl", orient="records", lines=True)
    plain = simbatch("fit", "a.csv", *HERE, "--no-validate", "--json")
    mapped = simbatch(
        "fit", "b.jsonl", *HERE, "--no-validate", "--json", "--columns", "tokens=n_tok,duration_ms=latency"
    )
    named = simbatch("fit", "a.csv", *HERE, "--no-validate", "--json", "--format", "iterations")
    values = [json.loads(done.stdout)["profile"]["coefficients"] for done in (plain, mapped, named)]
    assert values[0] == values[2]
    for name, one in values[0].items():
        assert values[1][name]["value"] == pytest.approx(one["value"], rel=1e-3, abs=1e-3), name


class Page(HTMLParser):
    """Counts elements, and what is left open."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, int] = {}
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen[tag] = self.seen.get(tag, 0) + 1
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen[tag] = self.seen.get(tag, 0) + 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_report_is_a_page_a_file_or_the_text(simbatch: Simbatch, steps: Path, tmp_path: Path) -> None:
    shown = simbatch("fit", steps, *HERE, *QUICK, "--report", "text")
    assert "Runs, predicted by fits that had not seen them, the worst first:" in shown.stdout
    assert "By tokens:" in shown.stdout
    assert simbatch("fit", steps, *HERE, *QUICK, "--report", "r.txt").exit_code == 0
    assert (tmp_path / "r.txt").read_text() == shown.stdout
    assert simbatch("fit", steps, *HERE, *QUICK, "--report", "r.html").exit_code == 0
    text = (tmp_path / "r.html").read_text()
    page = Page()
    page.feed(text)
    assert page.open == []
    # One point for each iteration in the figure of all, and in one for each input that varies.
    varying = page.seen["svg"] - 1
    assert varying >= 3
    assert page.seen["circle"] == 360 * (varying + 1)
    assert not re.search(r"https?://", text), "it opens without a network"
    assert "nan" not in text.lower().replace("finance", "")


def tables(folder: Path, slow: float = 1.0) -> list[Path]:
    """Kernels of a card that reaches 80 % of its bandwidth and 70 % of its arithmetic."""
    gpu = sb.Deployment("llama-3.1-8b").card
    read, math = gpu.bandwidth_bytes_per_s * 0.8, gpu.bf16_flop_per_s * 0.7
    products = [
        {"m": m, "n": n, "k": k, "us": slow * 1e6 * max(2 * (n * k + m * (n + k)) / read, 2 * m * n * k / math) + 2}
        for m in (1, 16, 64, 256, 1024, 4096, 8192)
        for n, k in ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (128256, 4096))
    ]
    decodes = [
        {"batch": b, "q_heads": 32, "kv_heads": 8, "context": c, "us": slow * 1e6 * b * c * 8 * 128 * 4 / read + 4}
        for b in (1, 8, 64, 256, 1024)
        for c in (16, 256, 1024, 8192)
    ]
    prompts = [
        {"batch": b, "new_tokens_each": t, "q_heads": 32, "kv_heads": 8, "us": 1e6 * b * t * t * 2 * 4096 / math + 5}
        for b in (1, 4, 8)
        for t in (64, 512, 2048, 8192)
    ]
    paths = []
    for name, rows in (("products", products), ("decodes", decodes), ("prompts", prompts)):
        paths.append(folder / f"{name}.csv")
        pd.DataFrame(rows).to_csv(paths[-1], index=False)
    return paths


def test_tables_of_kernels(simbatch: Simbatch, tmp_path: Path) -> None:
    found = {}
    for name, slow in (("one", 1.0), ("slow", 1.25)):
        done = simbatch("fit", *tables(tmp_path, slow), *HERE, *QUICK, "-o", f"{name}.toml", "--name", name)
        assert (done.exit_code, done.stderr) == (0, "")
        takes(simbatch, tmp_path / f"{name}.toml", name=name)
        timing = sb.Deployment("llama-3.1-8b"), read_card(tmp_path / f"{name}.toml").values()
        found[name] = FormulaTiming(*timing).decodes(64, 64 * 1000)[0]
    assert found["slow"] / found["one"] == pytest.approx(1.25, rel=0.05), "attention that is slower by a quarter"


def bench(concurrency: int, truth: FormulaTiming) -> dict[str, Any]:
    """What vllm bench would have saved of a server of that timing, 6 ms behind its front end."""
    trace = sb.Trace.load("sharegpt").head(100)
    result = sb.simulate(trace, truth.deployment, timing=truth, concurrency=concurrency, frontend_delay_s=0.006)
    latency = result.metrics()["latency_s"]
    return {
        "max_concurrency": concurrency,
        "request_rate": "inf",
        "completed": 100,
        "input_lens": trace.prompt_tokens.tolist(),
        "output_lens": trace.output_tokens.tolist(),
        "mean_ttft_ms": latency["ttft"]["mean"] * 1e3,
        "mean_tpot_ms": latency["tpot"]["mean"] * 1e3,
    }


def test_results_of_a_client(simbatch: Simbatch, tmp_path: Path) -> None:
    truth = FormulaTiming(sb.Deployment("llama-3.1-8b"), TRUTH)
    names = []
    for concurrency in (1, 8, 32):
        names.append(f"c{concurrency}.json")
        (tmp_path / names[-1]).write_text(json.dumps(bench(concurrency, truth)))
    done = simbatch("fit", *names, *HERE, "-o", "client.toml", "--name", "client", "--report", "text")
    assert (done.exit_code, done.stderr) == (0, "")
    assert "simulated over measured" in done.stdout
    card = read_card(tmp_path / "client.toml")
    assert card.error.worst < 0.03, "it comes out as it was measured"
    takes(simbatch, tmp_path / "client.toml", name="client")


def test_a_table_with_a_row_for_each_load(simbatch: Simbatch, tmp_path: Path) -> None:
    (tmp_path / "loads.csv").write_text(
        "prompt_tokens,output_tokens,concurrency,requests,ttft_ms,tpot_ms\n512,128,1,10,24,6.9\n512,128,16,40,60,8.4\n"
    )
    done = simbatch("fit", "loads.csv", *HERE, "-o", "mine.toml", "--report", "r.html", "--max-num-seqs", 64)
    assert (done.exit_code, done.stderr) == (0, "")
    assert "2 runs" in done.stdout
    assert (tmp_path / "r.html").read_text().count("<circle") == 4


def test_a_table_with_a_row_for_each_request(simbatch: Simbatch, tmp_path: Path) -> None:
    rows = "\n".join(f"{k * 0.2:.1f},300,{60 + k},30,{7.0 + k % 2}" for k in range(30))
    (tmp_path / "requests.csv").write_text("arrival_s,prompt_tokens,output_tokens,ttft_ms,tpot_ms\n" + rows + "\n")
    done = simbatch("fit", "requests.csv", *HERE, "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["n"]["runs"] == 1


def test_measurements_of_the_project(simbatch: Simbatch, tmp_path: Path) -> None:
    """The folder says what it is of; rows that it holds back are left alone, rows of kernels too."""
    frame = log().drop(columns="run").assign(stage="step", held_back=0)
    frame["duration_s"] = frame.pop("duration_ms") / 1e3
    frame.loc[frame.index[:40], ["held_back", "duration_s"]] = [1, 77.0]
    frame.loc[len(frame)] = {"stage": "copy", "held_back": 0, "duration_s": 0.1}
    (tmp_path / "out").mkdir()
    frame.to_csv(tmp_path / "out" / "measure.csv", index=False)
    machine = {"device": "NVIDIA H100 80GB HBM3", "gpu": "H100-SXM-80GB", "model": "llama-3.1-8b", "layers": 32}
    (tmp_path / "out" / "machine.json").write_text(json.dumps(machine))
    done = simbatch("fit", "out", *QUICK, "--json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["profile"]["model"], found["profile"]["gpu"]) == ("Llama-3.1-8B", "H100-SXM-80GB")
    assert found["n"]["iterations"] == 320
    assert found["error"]["median"] < 0.02
    (tmp_path / "out" / "machine.json").write_text(json.dumps({**machine, "fake": True, "layers": 16}))
    text = simbatch("fit", "out", *QUICK, "--json").stdout
    found = json.loads(text)["profile"]
    assert (found["kind"], found["model"]) == ("estimated", "Llama-3.1-8B, 16 layers")


def test_a_simulated_run_is_said_to_be_one(simbatch: Simbatch) -> None:
    simbatch("run", "sharegpt", "--rate", 9, "--requests", 60, "-o", "seen", "-q")
    found = json.loads(simbatch("fit", "seen", *QUICK, "--json").stdout)["profile"]
    assert found["kind"] == "estimated"
    assert any("nothing was measured" in note for note in found["notes"])


GOOD = log(runs=1, rows=40)


@pytest.mark.parametrize(
    ("content", "flags", "text"),
    [
        ("a,b\n1,2\n", HERE, "nothing that can be fitted (columns a, b)"),
        ("", HERE, "cannot be read as csv"),
        ("\x00\x01\xff", HERE, "bad.csv: "),
        (GOOD.drop(columns="duration_ms"), HERE, "nothing that can be fitted"),
        (GOOD.head(5), HERE, "5 iterations are too few to fit. Give 20 at least"),
        (GOOD, (), "whose iterations are these? Give --model and --gpu"),
        (GOOD, ("--model", "llama-3.1-8b"), "--model alone does not say what was measured"),
        (GOOD, ("-tp", "2"), "options of a deployment without one"),
        (GOOD, (*HERE, "--format", "log"), "unknown format 'log'. Known: client, iterations, measurements, tables."),
        (GOOD, (*HERE, "--format", "tables"), "no table that is known"),
        (GOOD, (*HERE, "--format", "client"), "no prompt_tokens or no output_tokens"),
        (GOOD, (*HERE, "--columns", "tokens=nothing"), "no column 'nothing' to take for tokens"),
        (GOOD, (*HERE, "--pin", "step_ms=3"), "unknown timing coefficient 'step_ms'"),
        (GOOD, (*HERE, "--pin", "kv_efficiency=7"), "kv_efficiency is 7.0. It is a share of a peak"),
        (GOOD, (*HERE, "--start", "h100-80"), "unknown profile 'h100-80'. Did you mean h100-80gb"),
        (GOOD, (*HERE, "--async-scheduling"), "engine options matter to client-side results alone"),
        (GOOD, (*HERE, "-o", "mine"), "--timing takes profiles that end in .toml"),
        (GOOD, (*HERE, "-o", "no/such/mine.toml"), "lies in no folder (no/such)"),
        (GOOD, (*HERE, "-o", "other.toml"), "is a file that is no profile, and would be overwritten"),
        (GOOD, (*HERE, "--report", "r.pdf"), "give a name that ends in .html or .txt"),
        (GOOD.assign(tokens="x"), HERE, "tokens of row 1 is x, which is no number (40 rows like this)"),
        (GOOD.assign(duration_ms=-1.0), HERE, "duration_ms of row 1 is -1.0, which is below 0"),
        (GOOD.assign(duration_ms=np.inf), HERE, "which is beyond all bounds"),
        (GOOD.assign(duration_ms=np.nan), HERE, "duration_ms of row 1 is nan, but an iteration takes time"),
        (GOOD.assign(prefill_tokens=9999), HERE, "prefill_tokens is a part of tokens"),
        (GOOD.assign(iterations=0), HERE, "iterations has rows that stand for none"),
        (GOOD.assign(iterations=1.5), HERE, "row 1 stands for 1.5 iterations. Give whole numbers"),
        (GOOD.assign(duration_us=5.0), HERE, "and duration_us. Leave the one that is not measured out"),
        (GOOD.assign(duration_ms=lambda f: f["duration_ms"] / 1e3), HERE, "times faster than Llama-3.1-8B on 1 x H100"),
        (
            GOOD.rename(columns={"duration_ms": "duration_s"}),
            HERE,
            "Check the unit of the column: milliseconds go to duration_ms",
        ),
        (GOOD, ("--model", "llama-3.1-70b", "--gpu", "h100", "-tp", "2"), "which model and GPU these are of"),
        ("prompt_tokens,output_tokens,concurrency,ttft_ms\n9,9,fast,5\n", HERE, "concurrency is 'fast'"),
        ("prompt_tokens,output_tokens,concurrency,ttft_ms\n9,9,1,5e9\n", HERE, "more than an hour. Check its unit"),
        ("prompt_tokens,output_tokens,concurrency,ttft_ms\n", HERE, "no rows. Give one for each load"),
        ("m,n,k,us\n1,2,3,4\n", HERE, "steps cannot be built: no table of decodes, prompts"),
        ("m,n,k,us\n1,2,3,0\n", HERE, "us of row 1 is 0, but a kernel takes time"),
        ("m,n,k,us\n1,2,3,4\n", (), "tables of kernels do not say which model to build"),
    ],
)
def test_hostile_input(
    simbatch: Simbatch, tmp_path: Path, content: str | pd.DataFrame, flags: tuple[str, ...], text: str
) -> None:
    (tmp_path / "other.toml").write_text("[project]\nname = 'mine'\n")
    path = tmp_path / "bad.csv"
    if isinstance(content, str):
        path.write_text(content, encoding="latin-1")
    else:
        content.to_csv(path, index=False)
    says(simbatch("fit", "bad.csv", *flags), text)
    assert "name = 'mine'" in (tmp_path / "other.toml").read_text()


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ([1, 2], "no mean_ttft_ms"),
        ({"mean_ttft_ms": 3}, "neither input_lens and output_lens nor completed"),
        ({"mean_ttft_ms": "soon", "completed": 3, "total_input_tokens": 9, "total_output_tokens": 9}, "is 'soon'"),
        ({"mean_ttft_ms": 3, "input_lens": [1, 2], "output_lens": [1]}, "not lists of the same length"),
        ({"mean_ttft_ms": 3, "input_lens": ["a"], "output_lens": [1]}, "input_lens is 'a'"),
        ({"mean_ttft_ms": 3, "input_lens": [5], "output_lens": [0]}, "no request with tokens"),
        ({"mean_ttft_ms": -3, "input_lens": [5], "output_lens": [2]}, "mean_ttft_ms is -3"),
        ({"mean_ttft_ms": None, "input_lens": [5], "output_lens": [2]}, "no run has a TTFT or a TPOT"),
    ],
)
def test_results_that_cannot_be_used(simbatch: Simbatch, tmp_path: Path, found: object, text: str) -> None:
    (tmp_path / "bad.json").write_text(json.dumps(found))
    says(simbatch("fit", "bad.json", *HERE), text)


def test_files_that_are_not_there(simbatch: Simbatch, tmp_path: Path) -> None:
    says(simbatch("fit", "nothing.csv", *HERE), "nothing.csv: no such file")
    says(simbatch("fit", "nothing.json", *HERE), "nothing.json")
    (tmp_path / "empty").mkdir()
    says(simbatch("fit", "empty", *HERE), "no measure.csv in this folder")
    assert simbatch("fit").exit_code == 2


def test_collinear_inputs_are_pinned_and_said(simbatch: Simbatch, tmp_path: Path) -> None:
    frame = log()
    frame = frame[frame["prefill_tokens"] == 0].assign(context_tokens=lambda f: f["sequences"] * 500)
    frame.assign(duration_ms=8 + frame["sequences"] * 0.05).to_csv(tmp_path / "a.csv", index=False)
    done = simbatch("fit", "a.csv", *HERE, *QUICK)
    assert done.exit_code == 0
    assert re.search(r"note +(kv_efficiency|sequence_us): .* of its effect looks like that of", done.stdout)


def test_interrupted(simbatch: Simbatch, steps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import simbatch.answers.fit.fitted as fitted

    def interrupted(*args: object, **more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fitted, "intervals", interrupted)
    done = simbatch("fit", steps, *HERE, "-o", "mine.toml")
    assert (done.exit_code, done.stdout) == (130, "")
    assert not (tmp_path / "mine.toml").exists()


def test_progress_counts_every_fit() -> None:
    seen: list[tuple[int, int]] = []
    sb.fit(
        log(), sb.Deployment("llama-3.1-8b"), resamples=3, on_progress=lambda done, total: seen.append((done, total))
    )
    # One fit of all, one without each of three runs, three of resampled runs.
    assert seen == [(number, 7) for number in range(1, 8)]


def test_steps_from_parts_are_not_trusted_as_measured_ones_are(simbatch: Simbatch, tmp_path: Path) -> None:
    """Nothing of the host is in kernels, however well the formula meets them."""
    simbatch("fit", *tables(tmp_path), *HERE, *QUICK, "-o", "k.toml")
    error = read_card(tmp_path / "k.toml").error
    assert error.step >= 0.08
    assert error.moved >= error.step


def test_figures_that_do_not_fit_together_are_said(simbatch: Simbatch, tmp_path: Path) -> None:
    """A TTFT of a minute beside a TPOT of milliseconds, alone on the machine: no coefficient does that."""
    (tmp_path / "loads.csv").write_text(
        "prompt_tokens,output_tokens,concurrency,requests,ttft_ms,tpot_ms\n512,128,1,10,60000,6.9\n512,128,4,10,20,7.1\n"
    )
    done = simbatch("fit", "loads.csv", *HERE)
    assert done.exit_code == 0
    assert "% off. The load or the engine was not as it is simulated" in " ".join(done.stdout.split())
