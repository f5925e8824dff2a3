"""Signals in, findings out: real cases as they were concluded, whatever their scale, and nothing invented."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result as Done
from hypothesis import given, settings
from hypothesis import strategies as st

import simbatch as sb
from simbatch.answers.diagnose.signals import KEYS, NUMBERS

FALLING = [(2136.3, 247, 0.997), (1970.3, 241, 0.996), (2349.2, 233, 0.997), (2161.6, 226, 0.999), (2103.3, 219, 1.0)]
CASES: dict[str, tuple[Any, list[str], list[str], list[str]]] = {
    # signals, findings in their order, figures that are quoted, changes that would not help
    "D1": (
        {
            "engine": "vllm-v1",
            "series": [
                {"prompt_tok_s": 24000, "running": 10, "waiting": 90, "kv_usage": 0.19},
                {"prompt_tok_s": 24000, "running": 34, "waiting": 66, "kv_usage": 0.65},
            ],
            "generation_tok_s_per_gpu": {"normal": 100, "during": 1.5},
            "prefix_cache": False,
        },
        ["recompute-loop"],
        ["running + waiting = 100 in both lines", "24,000 prompt tokens/s", "from 100 to 1.50 tokens/s"],
        ["max_num_batched_tokens", "max_num_seqs"],
    ),
    "D2": (
        {
            "engine": "vllm-v1",
            "kv_tokens": 77088,
            "running": 72,
            "waiting": 184,
            "kv_usage": 1.00,
            "preemptions_total": 480,
            "requests_finished": 5000,
            "ttft_p50_s": 60,
            "client_concurrency": 256,
        },
        ["kv-bound"],
        ["72 running = 1,071 each", "184 of 256 in flight wait: about 72 %", "about 70 in flight", "480 preemptions"],
        ["max_num_seqs"],
    ),
    "D3": (
        {
            "engine": "vllm-v0",
            "workload": {"kind": "offline", "input_tokens": 40000},
            "chunked_prefill": True,
            "goal": "throughput",
        },
        ["token-budget"],
        ["79 at B = 512 (the default)", "5 at B = 8,192", "raise max_num_batched_tokens"],
        [" off", "disable"],
    ),
    "D4": (
        {"burst_requests": 1000, "service_rate_req_s": [2.3, 2.5], "ttft_last_s": 434},
        ["saturated"],
        ["1,000 requests / 2.3 requests/s = 435 s", "434 s", "rho", "4.8 requests/s need 3"],
        ["max_num", "chunked", "scheduler"],
    ),
    "D5": (
        {"model": "Llama-3-8B", "n_gpus": 8, "tensor_parallel": 8, "gpu_utilisation": "<0.5"},
        ["over-sharded"],
        ["15.0 GiB of weights", "8 replicas with tensor_parallel_size 1", "below 0.5"],
        ["gpu_memory_utilization"],
    ),
    "D6a": (
        {"running": 1, "waiting": 0, "kv_usage": "low"},
        ["demand-limited"],
        ["1 running and 0 waiting", "KV usage is low"],
        ["block", "prefix", "utilization"],
    ),
    "D6c": (
        {"prompt_tok_s": 6501.4, "generation_tok_s": 69.1, "running": 4, "waiting": 0, "kv_usage": 0.156},
        ["demand-limited", "prefill-dominated"],
        ["15.6 %", "94 prompt tokens for each generated token"],
        ["block", "prefix", "utilization"],
    ),
    "D7": (
        {
            "engine": "vllm-v0",
            "series": [
                {"t": 5 * i, "generation_tok_s": rate, "running": running, "waiting": 987 - running, "swapped": 0,
                 "kv_usage": usage}
                for i, (rate, running, usage) in enumerate(FALLING)
            ],
            "gpu_utilisation": 0.20,
        },
        ["kv-bound", "host-bound"],
        ["987 in all 5 lines", "28 requests were pushed back in 20 s, 1.4 preemptions/s", "8.6 tokens/s", "116 ms"],
        ["concurrency", "max_num_seqs", "more at once"],
    ),
    "D8": (
        {
            "engine": "vllm-v0",
            "gpu_total_gib": 23.58,
            "gpu_memory_utilization": 0.9,
            "weights_gib": 14.99,
            "non_torch_gib": 0.35,
            "runs": [
                {"max_model_len": 20000, "activation_gib": 2.07, "kv_gib": 3.81, "blocks": 1952,
                 "max_concurrency": 1.56},
                {"max_model_len": 29000, "activation_gib": 2.99, "kv_gib": 2.89, "blocks": 1478,
                 "max_concurrency": 0.82, "starts": False},
            ],
        },
        ["activation-of-a-prompt"],
        ["23.58 x 0.9 - 14.99 - 0.35 - 2.07 = 3.81 GiB", "1,478 blocks x 16 / 29,000 = 0.815", "chunked prefill on"],
        ["larger GPU", "GPU first"],
    ),
}  # fmt: skip


def scaled(value: Any, factor: float) -> Any:
    """Every number times *factor*, also those in texts such as <0.5."""
    if isinstance(value, dict):
        return {key: scaled(item, factor) for key, item in value.items()}
    if isinstance(value, list):
        return [scaled(item, factor) for item in value]
    if isinstance(value, str) and value.startswith("<"):
        return f"<{float(value[1:]) * factor:g}"
    return value if isinstance(value, bool | str) else value * factor


def ids(signals: Any) -> list[str]:
    return [finding.id for finding in sb.diagnose(signals).findings]


@pytest.mark.parametrize("case", CASES)
def test_a_real_case_gets_the_conclusion_that_was_reached(case: str) -> None:
    signals, expected, quoted, not_offered = CASES[case]
    found = sb.diagnose(signals)
    assert [finding.id for finding in found.findings] == expected
    text = " ".join(repr(found).split())
    for figure in quoted:
        assert figure in text, figure
    offered = " ".join(change for finding in found.findings for change in finding.change)
    for remedy in not_offered:
        assert remedy not in offered, remedy


@pytest.mark.parametrize("factor", [0.8, 0.9, 1.1, 1.2])
@pytest.mark.parametrize("case", CASES)
def test_a_conclusion_holds_for_numbers_a_fifth_larger_or_smaller(case: str, factor: float) -> None:
    signals, expected, _, _ = CASES[case]
    assert ids(scaled(signals, factor)) == expected


def test_two_looks_at_a_server_may_come_as_a_list() -> None:
    assert ids([CASES["D6a"][0], CASES["D6c"][0]]) == ["demand-limited", "prefill-dominated"]


# -- rules apart -----------------------------------------------------------------------------------


def test_full_and_nobody_waiting_is_fine() -> None:
    assert ids({"running": 200, "waiting": 0, "kv_usage": 0.99, "preemptions": 0}) == ["demand-limited"]
    assert ids({"running": 200, "waiting": 0, "kv_usage": 0.99, "preemptions": 30}) == ["kv-bound"]


def test_a_flat_batch_with_room_and_a_queue_is_a_limit_on_sequences() -> None:
    look = {"running": 64, "waiting": 90, "kv_usage": 0.3}
    assert ids([look, {**look, "waiting": 120}]) == ["sequence-capped"]
    assert ids({**look, "max_num_seqs": 64}) == ["sequence-capped"]
    told = sb.diagnose({**look, "max_num_seqs": 64}).findings[0]
    assert told.change[0] == "raise max_num_seqs: at this length the KV cache holds about 192 sequences"
    # One look cannot tell a limit from anything else, and says so.
    assert ids(look) == ["unknown"]
    assert "look twice" in " ".join(sb.diagnose(look).findings[0].change)


def test_more_arriving_than_served_is_saturated_and_says_how_many_replicas() -> None:
    found = sb.diagnose(
        {"arrival_rate_req_s": 6, "service_rate_req_s": 2.4, "running": 8, "waiting": 50, "kv_usage": 0.2}
    ).findings[0]
    assert found.id == "saturated"
    assert "rho = 6 arriving / 2.4 served requests/s = 2.50: above 1" in found.evidence
    assert found.change[0] == "add replicas: 6 requests/s need 4, at rho = 0.8 or less in each"


def test_a_model_that_does_not_fit_on_one_card_is_not_over_sharded() -> None:
    shared = {"n_gpus": 8, "tensor_parallel": 8, "gpu_utilisation": "<0.5"}
    assert ids({"model": "Llama-3.1-70B", **shared}) == ["unknown"]
    assert ids({"model": "Llama-3.1-70B", "gpu": "h200", **shared}) == ["unknown"], "131 GiB leave next to nothing"
    assert ids({"model": "nobody/knows-this", **shared}) == ["unknown"]
    assert ids({"model": "Llama-3-8B", "tensor_parallel": 1}) == ["unknown"]


def test_over_sharding_is_compared_where_the_gpu_is_known() -> None:
    effect = sb.diagnose({**CASES["D5"][0], "gpu": "A100-40"}).findings[0].effect
    assert effect is not None
    assert "8 replicas give" in effect
    assert "tensor parallelism over 8 gives" in effect
    assert "time to first token" in effect


def test_several_engines_are_judged_each_and_then_their_balance() -> None:
    full = {"engine_index": "0", "running": 60, "waiting": 100, "kv_usage": 0.99, "preemptions": 12}
    idle = {"engine_index": "1", "running": 5, "waiting": 0, "kv_usage": 0.02, "preemptions": 0}
    found = sb.diagnose({"engine": "vllm", "engines": [full, idle]})
    assert [finding.id for finding in found.findings] == ["kv-bound", "uneven-engines", "demand-limited"]
    assert found.findings[0].evidence[0].startswith("engine 0: KV usage 99 %")
    assert found.findings[1].evidence == ("engine 0 has 160, engine 1 has 5",)


# -- the three questions ---------------------------------------------------------------------------


def test_questions_say_what_the_input_says_and_no_more() -> None:
    answers = sb.diagnose(CASES["D4"][0]).questions
    assert [answer.answer for answer in answers] == ["the input does not say"] * 3
    assert [answer.value for answer in answers] == [None] * 3
    batch, memory, paged = sb.diagnose(CASES["D7"][0]).questions
    assert batch.value == pytest.approx(sum(running for _, running, _ in FALLING) / 5)
    assert memory.value["kv_memory_share"] is None
    assert paged.value is True


def test_the_share_of_gpu_memory_needs_model_and_gpu() -> None:
    signals = {"engine": "vllm", "kv_tokens": 77088, "running": 72, "waiting": 184, "kv_usage": 1.0}
    known = sb.diagnose({**signals, "model": "Qwen2.5-7B", "gpu": "A10G"}, effect=False)
    assert known.questions[1].value["kv_memory_share"] == pytest.approx(4.117 / 22.07, rel=1e-3)
    assert "4.12 GiB on each GPU, 57,344 bytes a token" in " ".join(known.findings[0].evidence)


# -- runs ------------------------------------------------------------------------------------------


def run(**more: Any) -> sb.Result:
    trace = sb.Trace.load("sharegpt").head(400).at_rate(60, seed=0)
    return sb.simulate(trace, sb.Deployment("llama-3.1-8b", gpu="h100", max_model_len=2048), **more)


def test_a_small_pool_and_a_limit_on_sequences_are_told_apart(tmp_path: Path, simbatch: Callable[..., Done]) -> None:
    """Both runs are saturated, both queue; one is out of memory, the other holds it back."""
    pool, capped = run(kv_tokens=20_000), run(max_num_seqs=32)
    for name, result in (("pool", pool), ("capped", capped)):
        result.save(tmp_path / name)
    assert ids(pool) == ["kv-bound"]
    assert ids(capped) == ["sequence-capped"]
    for name, expected in (("pool", "kv-bound"), ("capped", "sequence-capped")):
        done = simbatch("diagnose", tmp_path / name, "--json", "--no-effect")
        assert done.exit_code == 0
        assert json.loads(done.stdout)["findings"][0]["id"] == expected
    # Its batch, memory and paging are facts of the run.
    batch, memory, paged = sb.diagnose(capped, effect=False).questions
    assert batch.value == pytest.approx(32, rel=0.02)
    assert memory.value["kv_memory_share"] == pytest.approx(capped.metrics()["kv"]["gpu_memory_share"])
    assert paged.value is True


def test_the_change_is_simulated_on_the_runs_own_requests() -> None:
    """What is said to come of it is what comes of it."""
    capped = run(max_num_seqs=32)
    effect = sb.diagnose(capped).findings[0].effect
    after = run(max_num_seqs=64).metrics()["throughput"]["output_tokens_per_s"]
    before = capped.metrics()["throughput"]["output_tokens_per_s"]
    assert effect is not None
    assert f"with max_num_seqs 64, {before:,.0f} output tokens/s become {after:,.0f}," in effect


def test_a_policy_of_ones_own_is_not_repeated() -> None:
    class Mine(sb.Continuous):
        pass

    result = run(scheduler=Mine(), max_num_seqs=32)
    assert sb.diagnose(result).findings[0].effect is None


def test_reservations_are_named_as_such() -> None:
    result = run(system="static", kv_tokens=30_000)
    found = sb.diagnose(result)
    assert found.findings[0].id == "reserved-memory"
    assert found.questions[2].value is False
    assert "with the system vllm" in str(found.findings[0].effect)


def test_one_at_a_time_is_a_limit_of_one() -> None:
    found = sb.diagnose(run(system="naive"))
    assert found.findings[0].id == "sequence-capped"
    assert found.findings[0].change[0].startswith("serve more than one request at a time")
    assert "with the system vllm" in str(found.findings[0].effect)
    assert found.questions[0].answer == "1 sequence, of 1 that may run"


def test_a_light_load_is_healthy() -> None:
    trace = sb.Trace.load("sharegpt").head(100).at_rate(3, seed=0)
    result = sb.simulate(trace, sb.Deployment("llama-3.1-8b", gpu="h100"))
    assert ids(result) == ["demand-limited"]


# -- what cannot be --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("signals", "says"),
    [
        ({}, "there are no signals."),
        ([], "there are no signals."),
        ("running", "the signals are 'running'."),
        ({"kv_usage": 99}, "kv_usage is 99, but it is a share. Give a number from 0 to 1"),
        ({"running": -1}, "running is -1. Give a number of at least 0"),
        ({"running": float("nan")}, "running is nan."),
        ({"running": {"a": 1}}, "running is {'a': 1}."),
        ({"paged": "yes"}, "paged is 'yes'. Give true or false."),
        ({"series": [3]}, "series is [3]. Give a list of dicts."),
        ({"series": [{"running": True}]}, "running is True."),
        ({"workload": "offline"}, "workload is 'offline'. Give a dict."),
    ],
)
def test_signals_that_are_none(signals: Any, says: str) -> None:
    with pytest.raises(sb.UsageError) as caught:
        sb.diagnose(signals)
    assert says in str(caught.value)


def test_keys_that_nothing_knows_are_named_and_not_guessed() -> None:
    found = sb.diagnose({"running": 4, "waiting": 0, "wating": 70})
    assert found.ignored == ("wating",)
    assert "ignored     signals that nothing here knows: wating" in repr(found)


values = st.one_of(st.floats(0, 1.4), st.integers(0, 10**6), st.just("low"), st.just("<0.5"), st.none())
observed = st.dictionaries(st.sampled_from(["running", "waiting", "kv_usage", "t", "swapped"]), st.floats(0, 1.4))


@settings(max_examples=150, deadline=None)
@given(
    signals=st.dictionaries(st.sampled_from(sorted(NUMBERS)), values, min_size=1),
    looks=st.lists(observed),
)
def test_whatever_is_said_gets_an_answer_or_a_clear_error(signals: dict[str, Any], looks: list[dict[str, Any]]) -> None:
    refused = ""
    try:
        found = sb.diagnose({**signals, "series": looks} if looks else signals, effect=False)
    except sb.UsageError as error:
        refused = str(error)
    if refused:
        assert refused.startswith("the signal ")
        return
    assert found.findings
    json.dumps(found.metrics(), allow_nan=False)
    assert max(map(len, repr(found).splitlines())) <= 100


def test_every_key_is_in_the_document() -> None:
    text = (Path(__file__).resolve().parent.parent / "docs" / "diagnose.md").read_text(encoding="utf-8")
    assert [key for key in sorted(KEYS) if f"`{key}`" not in text] == []
