"""Pages of metrics and logs as signals: names by engine, rates between scrapes, and pages that are none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result as Done

import simbatch as sb
from simbatch.answers.diagnose.from_log import log_signals
from simbatch.answers.diagnose.from_pages import page_signals
from simbatch.answers.diagnose.page import read_page
from simbatch.answers.diagnose.signals import read_signals

Run = Callable[..., Done]

SGLANG = """\
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{model_name="qwen"} 40.0
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{model_name="qwen"} 80.0
# TYPE sglang:token_usage gauge
sglang:token_usage{model_name="qwen"} 0.97
# TYPE sglang:max_total_num_tokens gauge
sglang:max_total_num_tokens{model_name="qwen"} 44450.0
# TYPE sglang:generation_tokens_total counter
sglang:generation_tokens_total{model_name="qwen"} 9000.0
"""
TGI = """\
# TYPE tgi_batch_current_size gauge
tgi_batch_current_size 12
# TYPE tgi_queue_size gauge
tgi_queue_size 30
# TYPE tgi_batch_current_max_tokens gauge
tgi_batch_current_max_tokens 15000
# TYPE tgi_batch_max_total_tokens gauge
tgi_batch_max_total_tokens 16000
# TYPE tgi_request_queue_duration histogram
tgi_request_queue_duration_bucket{le="1"} 2
tgi_request_queue_duration_bucket{le="+Inf"} 4
tgi_request_queue_duration_sum 10
tgi_request_queue_duration_count 4
"""
VLLM = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 32.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 50.0
# TYPE vllm:gpu_cache_usage_perc gauge
vllm:gpu_cache_usage_perc{engine="0",model_name="m"} 0.2
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="m"} 1000.0
# TYPE vllm:generation_tokens_created gauge
vllm:generation_tokens_created{engine="0",model_name="m"} 1.7e9
"""


def of(text: str, *more: Any) -> dict[str, Any]:
    return page_signals(read_page(text, "page"), *more)


@pytest.fixture
def samples(shared: Path) -> Path:
    return shared / "reference" / "metrics-samples"


def two(samples: Path, name: str, interval_s: float | None = 60) -> dict[str, Any]:
    pages = [read_page((samples / f"vllm_v1_{name}_t{t}.prom").read_text(encoding="utf-8"), f"t{t}") for t in (0, 60)]
    return page_signals(*pages, interval_s)


# -- vLLM's samples --------------------------------------------------------------------------------


def test_the_full_server_reads_as_its_readme_says(samples: Path) -> None:
    found = two(samples, "kv_bound")
    assert (found["num_gpu_blocks"], found["kv_tokens"]) == (4574, 73_184)
    assert (found["running"], found["waiting"], found["preemptions"], found["requests_finished"]) == (61, 117, 24, 95)
    assert found["kv_usage"] == pytest.approx(0.99, abs=0.01)
    assert found["generation_tok_s"] == pytest.approx(1116, abs=1)
    assert found["queue_mean_s"] == pytest.approx(72, abs=1)
    assert found["ttft_p50_s"] == [40, 80]
    assert found["model"] == "meta-llama/Llama-3.1-8B-Instruct"
    diagnosis = sb.diagnose(found, effect=False)
    assert [finding.id for finding in diagnosis.findings] == ["kv-bound"]
    assert "= 1,194 each" in " ".join(diagnosis.findings[0].evidence), "about 1,190 tokens a running request"
    assert "nothing finishes" not in repr(diagnosis)
    assert read_signals(found)[1] == [], "every signal is one that is known"


def test_the_healthy_server_reads_as_its_readme_says(samples: Path) -> None:
    found = two(samples, "healthy")
    assert (found["running"], found["waiting"], found["preemptions"]) == (5, 0, 0)
    assert found["kv_usage"] == pytest.approx(0.01, abs=0.001)
    assert found["prefix_hit_share"] == pytest.approx(0.45, abs=0.02)
    assert [finding.id for finding in sb.diagnose(found).findings] == ["demand-limited"]


def test_one_scrape_has_totals_and_no_rates(samples: Path) -> None:
    text = (samples / "vllm_v1_kv_bound_t60.prom").read_text(encoding="utf-8")
    found = of(text)
    assert found["window"] == "since the server's start"
    assert (found["preemptions_total"], found["requests_finished"]) == (155, 495)
    assert [key for key in found if key.endswith(("tok_s", "req_s", "per_s"))] == []
    assert sb.diagnose(found, effect=False).findings[0].id == "kv-bound"


def test_two_scrapes_without_the_time_between_them_have_no_rates_either(samples: Path) -> None:
    found = two(samples, "kv_bound", None)
    assert (found["preemptions"], found["requests_finished"]) == (24, 95)
    assert [key for key in found if key.endswith(("tok_s", "req_s", "per_s"))] == []
    assert all("t" not in look for look in found["series"])


def test_a_restart_between_two_scrapes_is_an_error(samples: Path, simbatch: Run) -> None:
    pages = [samples / f"vllm_v1_kv_bound_t{t}.prom" for t in (60, 0)]
    done = simbatch("diagnose", *pages, "--interval", "60s")
    assert done.exit_code == 2
    assert "the server restarted between the scrapes, or they are in the wrong order" in done.stderr
    assert "vllm:prompt_tokens fell from 318,712" in done.stderr


def test_the_change_is_simulated_where_the_gpu_is_named(samples: Path, simbatch: Run) -> None:
    pages = [samples / f"vllm_v1_kv_bound_t{t}.prom" for t in (0, 60)]
    done = simbatch("diagnose", *pages, "--interval", "60s", "--gpu", "a10g", "--client-concurrency", "178", "--json")
    found = json.loads(done.stdout)
    effect = found["findings"][0]["effect"]
    assert effect.startswith("Simulated on a closed loop of 178 with prompts of 661 and outputs of 705 tokens")
    assert "with 61 in flight instead of 178" in effect
    assert found["questions"][1]["value"]["kv_memory_share"] == pytest.approx(
        73_184 * 131_072 / (22.07 * 2**30), rel=0.01
    )


@pytest.mark.parametrize("cut", [0.05, 0.3, 0.6, 0.9, 0.999])
def test_a_page_that_breaks_off_is_said_to(samples: Path, cut: float) -> None:
    text = (samples / "vllm_v1_healthy_t0.prom").read_text(encoding="utf-8")
    with pytest.raises(sb.UsageError, match=r"breaks off|not whole") as caught:
        of(text[: int(len(text) * cut)])
    assert "Fetch it again" in str(caught.value)


# -- other engines ---------------------------------------------------------------------------------


def test_names_of_sglang() -> None:
    found = of(SGLANG)
    assert (found["engine"], found["running"], found["waiting"], found["kv_usage"]) == ("sglang", 40, 80, 0.97)
    assert found["kv_tokens"] == 44_450
    assert [finding.id for finding in sb.diagnose(found).findings] == ["kv-bound"]


def test_tgi_books_what_it_might_need() -> None:
    found = of(TGI)
    assert (found["running"], found["waiting"], found["kv_usage"], found["queue_mean_s"]) == (12, 30, 15 / 16, 2.5)
    assert "93.8 % of it is booked for running requests" in sb.diagnose(found).questions[1].answer


def test_older_names_of_vllm_and_two_flat_scrapes() -> None:
    later = VLLM.replace("} 50.0", "} 70.0").replace("} 1000.0", "} 4000.0")
    found = page_signals(read_page(VLLM, "a"), read_page(later, "b"), 10.0)
    assert found["kv_usage"] == 0.2
    assert found["generation_tok_s"] == 300
    assert [finding.id for finding in sb.diagnose(found).findings] == ["sequence-capped"]


def test_each_engine_of_a_page_is_kept_apart() -> None:
    other = VLLM.replace('engine="0"', 'engine="1"').replace("} 32.0", "} 2.0").replace("} 50.0", "} 0.0")
    merged = VLLM + "".join(f"{line}\n" for line in other.splitlines() if not line.startswith("#"))
    found = of(merged)
    assert [(own["engine_index"], own["running"]) for own in found["engines"]] == [("0", 32), ("1", 2)]
    assert {finding.id for finding in sb.diagnose(found).findings} == {"unknown", "uneven-engines", "demand-limited"}


# -- pages that are none ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "page: the page is empty."),
        (" \n\n", "page: the page is empty."),
        ("<!DOCTYPE html><html><body>404</body></html>\n", "page: this is an HTML page, not metrics."),
        ("<html>\n", "this is an HTML page"),
        ('{"status": "ok"}\n', "page: this is JSON, not metrics."),
        (
            "llamacpp:requests_deferred 3\n",
            "these are metrics of llama.cpp, which cannot be read. Known engines:",
        ),
        ("trtllm_request_success_total 3\n", "these are metrics of TensorRT-LLM"),
        ("nv_inference_count 3\n", "these are metrics of Triton"),
        (
            "node_cpu_seconds_total 3\n",
            "no metrics of a known engine (vllm, sglang, tgi); it has node_cpu_",
        ),
        ("vllm:num_requests_running 3\n", "a page of vllm without vllm:num_requests_waiting: it is not whole."),
        (
            "vllm:num_requests_running 3\nvllm:num_requests_wai",
            "line 2: the page breaks off in 'vllm:num_req",
        ),
        ("vllm:num_requests_running three\n", "this is not a page of metrics"),
        ("hello world this is text\n", "this is not a page of metrics"),
        (VLLM + "# TYPE vllm:prompt_tokens counter\n", "the page breaks off in '# TYPE vllm:prompt_tokens counter'"),
    ],
)
def test_a_page_that_is_none_is_refused_in_words(text: str, says: str) -> None:
    with pytest.raises(sb.UsageError) as caught:
        of(text)
    assert says in str(caught.value)


def test_pages_of_different_servers_are_no_two_scrapes() -> None:
    with pytest.raises(sb.UsageError, match="Give two scrapes of one server"):
        page_signals(read_page(VLLM, "a"), read_page(SGLANG, "b"))


def test_a_value_that_is_no_number_is_not_there() -> None:
    found = of(VLLM.replace("} 0.2", "} NaN"))
    assert "kv_usage" not in found


# -- logs ------------------------------------------------------------------------------------------

V0_LOG = """\
INFO 11-02 10:00:00 metrics.py:345] Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 2136.3 tokens/s, \
Running: 247 reqs, Swapped: 0 reqs, Pending: 740 reqs, GPU KV cache usage: 99.7%, CPU KV cache usage: 0.0%.
INFO 11-02 10:00:20 metrics.py:345] Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 2103.3 tokens/s, \
Running: 219 reqs, Swapped: 0 reqs, Pending: 768 reqs, GPU KV cache usage: 100.0%, CPU KV cache usage: 0.0%.
"""
V1_LOG = """\
INFO 09-01 08:00:00 [kv_cache_utils.py:868] GPU KV cache size: 476,016 tokens
INFO 09-01 08:00:00 [kv_cache_utils.py:872] Maximum concurrency for 8,192 tokens per request: 58.11x
noise
INFO 09-01 08:00:10 [loggers.py:123] Engine 000: Avg prompt throughput: 120.5 tokens/s, Avg generation throughput: \
300.0 tokens/s, Running: 5 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%, Prefix cache hit rate: 45.1%
"""
START = (
    "INFO worker.py:241] the current vLLM instance can use total_gpu_memory (23.58GiB) x gpu_memory_utilization (0.90) "
    "= 21.22GiB\nINFO model weights take 14.99GiB; non_torch_memory takes 0.35GiB; PyTorch activation peak memory "
    "takes 2.07GiB; the rest of the memory reserved for KV Cache is 3.81GiB.\nINFO # GPU blocks: 1952, "
    "# CPU blocks: 2048\n"
)


def test_lines_of_v0() -> None:
    found = log_signals(V0_LOG.splitlines(), "log")
    assert found["engine"] == "vllm-v0"
    assert found["series"][1] == {
        "t": 20, "prompt_tok_s": 0, "generation_tok_s": 2103.3, "running": 219, "waiting": 768, "swapped": 0,
        "kv_usage": 1,
    }  # fmt: skip
    diagnosis = sb.diagnose(found)
    assert diagnosis.findings[0].id == "kv-bound"
    assert "28 requests were pushed back in 20 s, 1.4 preemptions/s" in " ".join(diagnosis.findings[0].evidence)


def test_lines_of_v1_and_what_it_prints_at_its_start() -> None:
    found = log_signals(V1_LOG.splitlines(), "log")
    assert (found["kv_tokens"], found["max_model_len"], found["max_concurrency"]) == (476_016, 8192, 58.11)
    assert found["prefix_hit_share"] == pytest.approx(0.451)
    assert [finding.id for finding in sb.diagnose(found).findings] == ["demand-limited"]
    assert read_signals(found)[1] == []


def test_memory_at_the_start_answers_the_second_question() -> None:
    found = log_signals(START.splitlines(), "log")
    assert (found["weights_gib"], found["activation_gib"], found["kv_gib"], found["num_gpu_blocks"]) == (
        14.99,
        2.07,
        3.81,
        1952,
    )
    assert sb.diagnose(found).questions[1].value["kv_memory_share"] == pytest.approx(3.81 / 23.58)


def test_engines_in_one_log_are_kept_apart() -> None:
    lines = [V1_LOG.splitlines()[-1], V1_LOG.splitlines()[-1].replace("Engine 000", "Engine 001")]
    assert [own["engine_index"] for own in log_signals(lines, "log")["engines"]] == ["0", "1"]


def test_a_day_that_ends_leaves_only_the_order() -> None:
    lines = [V0_LOG.splitlines()[0].replace("11-02 10:00:00", "12-31 23:59:59"), V0_LOG.splitlines()[1]]
    assert all("t" not in look for look in log_signals(lines, "log")["series"])


def test_files_are_told_by_what_is_in_them(tmp_path: Path, simbatch: Run) -> None:
    for name, text, expected in (
        ("a.log", V1_LOG, "demand-limited"),
        ("b.txt", V0_LOG, "kv-bound"),
        ("c.prom", SGLANG, "kv-bound"),
        ("d.json", json.dumps({"running": 4, "waiting": 0}), "demand-limited"),
        ("e.json", json.dumps([{"running": 4, "waiting": 0}]), "demand-limited"),
    ):
        (tmp_path / name).write_text(text, encoding="utf-8")
        done = simbatch("diagnose", name, "--json", "-q")
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["findings"][0]["id"] == expected


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("missing", None, "missing does not exist. Give a saved run's folder,"),
        ("empty", b"", "empty: the file is empty."),
        ("page.html", b"<html></html>\n", "this is an HTML page"),
        ("binary", b"\0\1\2" * 100, "binary: this is not text."),
        ("broken.json", b'{"running": ', "broken.json: this is not JSON"),
        ("prose", b"nothing of the kind\n", "prose: this is not a page of metrics"),
    ],
)
def test_files_that_are_nothing(tmp_path: Path, simbatch: Run, name: str, content: bytes | None, says: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    done = simbatch("diagnose", name)
    assert done.exit_code == 2
    assert says in done.stderr


def test_signals_may_be_written_out(simbatch: Run) -> None:
    done = simbatch("diagnose", "running=61,waiting=117,kv_usage=0.99,prefix_cache=true,engine=vllm", "--json")
    found = json.loads(done.stdout)
    assert found["findings"][0]["id"] == "kv-bound"
    assert found["signals"]["prefix_cache"] is True
    wrong = simbatch("diagnose", "running=61,kv_usage=99")
    assert (wrong.exit_code, "kv_usage is 99.0, but it is a share" in wrong.stderr) == (2, True)


def test_a_file_that_is_too_long_for_a_page(tmp_path: Path, simbatch: Run) -> None:
    (tmp_path / "long.prom").write_text(VLLM + "# more\n" * 1_300_000, encoding="utf-8")
    done = simbatch("diagnose", "long.prom")
    assert (done.exit_code, "longer than 8 MiB, which no page of metrics is" in done.stderr) == (2, True)


def test_a_folder_that_is_no_run_and_flags_that_a_run_answers(tmp_path: Path, simbatch: Run) -> None:
    assert "is not a saved run" in simbatch("diagnose", tmp_path).stderr
    assert simbatch("diagnose", tmp_path).exit_code == 2
    (tmp_path / "a.log").write_text(V1_LOG, encoding="utf-8")
    done = simbatch("diagnose", "a.log", "--interval", "10s")
    assert "--interval needs two scrapes" in done.stderr
