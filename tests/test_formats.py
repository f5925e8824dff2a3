"""Files of other origins, told by what they hold: whole public ones by their statistics, small ones cell by cell."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simbatch.errors import UsageError
from simbatch.trace import Trace
from simbatch.units import PS_PER_S


def load(folder: Path, content: str, name: str = "some.file", **options: Any) -> Trace:
    path = folder / name
    path.write_text(content, encoding="utf-8")
    return Trace.load(path, **options)


def refusal(folder: Path, content: str, name: str = "some.file", **options: Any) -> str:
    with pytest.raises(UsageError) as error:
        load(folder, content, name, **options)
    return str(error.value)


def seconds(trace: Trace) -> list[float]:
    assert trace.arrival_ps is not None
    return [time / PS_PER_S for time in trace.arrival_ps.tolist()]


def lengths(trace: Trace) -> list[tuple[int, int]]:
    return list(zip(trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), strict=True))


def lines(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


# -- whole files -----------------------------------------------------------------------------------

WHOLE = [
    ("vidur/trace_azure_conv_2023.csv.gz", 19_366, 1154.7, 211.1),
    ("vidur/trace_azure_code_2023.csv.gz", 8_819, 2047.8, 27.9),
    ("vidur/lengths_sharegpt_8k.csv.gz", 30_731, 2340.0, 438.7),
    ("traces/azure/AzureLLMInferenceTrace_conv_2023_first60pct.csv.gz", 11_619, 1263.5, 206.4),
    ("traces/azure/AzureLLMInferenceTrace_code_2023_first60pct.csv.gz", 5_291, 2033.8, 27.4),
    ("traces/mooncake/conversation_trace_first6000.jsonl.gz", 6_000, 12773.9, 347.0),
    ("traces/mooncake/synthetic_trace_first2000.jsonl.gz", 2_000, 12366.4, 191.5),
]


@pytest.mark.parametrize(("file", "rows", "prompt", "output"), WHOLE)
def test_public_files_have_their_published_means(
    shared: Path, file: str, rows: int, prompt: float, output: float
) -> None:
    trace = Trace.load(shared / "data" / file)
    assert len(trace) == rows
    assert round(float(trace.prompt_tokens.mean()), 1) == prompt
    assert round(float(trace.output_tokens.mean()), 1) == output
    assert trace.dropped == 0


@pytest.mark.parametrize(("kind", "rate", "cv"), [("conv", 5.53, 1.09), ("code", 2.57, 13.15)])
def test_azure_arrivals_have_their_published_rate_and_variation(
    shared: Path, kind: str, rate: float, cv: float
) -> None:
    trace = Trace.load(shared / "data" / "vidur" / f"trace_azure_{kind}_2023.csv.gz")
    assert trace.arrival_ps is not None
    gaps = np.diff(trace.arrival_ps) / PS_PER_S
    assert round(float(1 / gaps.mean()), 2) == rate
    assert round(float(gaps.std() / gaps.mean()), 2) == cv


def test_the_azure_original_and_the_copy_in_another_shape_agree(shared: Path) -> None:
    for kind in ("conv", "code"):
        original = Trace.load(
            shared / "data" / "traces" / "azure" / f"AzureLLMInferenceTrace_{kind}_2023_first60pct.csv.gz"
        )
        copy = Trace.load(shared / "data" / "vidur" / f"trace_azure_{kind}_2023.csv.gz").head(len(original))
        assert lengths(original) == lengths(copy)
        assert original.arrival_ps is not None
        assert copy.arrival_ps is not None
        # The copy went through floats; the original has seven digits.
        assert int(abs(original.arrival_ps - copy.arrival_ps).max()) < 1_000_000


def test_ragpulse_wraps_and_says_what_it_cannot_tell(shared: Path) -> None:
    path = shared / "data" / "traces" / "ragpulse" / "ragpulse_first4000.jsonl.gz"
    with pytest.raises(UsageError) as error:
        Trace.load(path)
    assert str(error.value) == (
        "ragpulse_first4000.jsonl.gz line 3801: arrival_s is -82, but the row before has 604371: times cannot go back. "
        "One row like this; --sort puts it in order; --wrap PERIOD, such as 7d, lets the clock start again there."
    )
    trace = Trace.load(path, wrap_s=604_800)
    assert len(trace) == 4_000
    assert (round(float(trace.prompt_tokens.mean()), 1), round(float(trace.output_tokens.mean()), 1)) == (3004.5, 256.9)
    assert seconds(trace)[3799:3801] == [604_371, 604_718]
    assert trace.segments(0) is None
    assert any("pieces of a prompt without their lengths" in warning for warning in trace.warnings)


def test_burstgpt_counts_its_failures_and_finds_its_new_columns(shared: Path) -> None:
    folder = shared / "data" / "traces" / "burstgpt"
    trace = Trace.load(folder / "BurstGPT_1_rows1-240.csv", drop_bad=True)
    assert (len(trace), trace.dropped) == (231, 9)
    assert trace.why_dropped == (("prompt_tokens is 0, but a request has at least 1", 9, 22),)
    third = Trace.load(folder / "BurstGPT_3_rows1-66.csv")
    assert len(third) == 66
    assert lengths(third)[0] == (906, 446)
    assert third.session is not None
    assert third.session[:5] == ("s001", "s002", "s003", "s004", "s001")
    assert seconds(third)[:2] == [0, 51]


def test_a_servegen_client_is_drawn_at_its_rates(shared: Path) -> None:
    folder = shared / "data" / "traces" / "servegen"
    path = folder / "language_m-small_chunk-15-trace.csv.gz"
    trace = Trace.load(path, seed=3)
    windows = [line.split(",") for line in gzip.decompress(path.read_bytes()).decode().splitlines()]
    expected = sum(600 * float(window[1]) for window in windows)
    # Counts of bursty windows vary more than Poisson; 2 % of 117,000 is about 7 standard deviations of it.
    assert abs(len(trace) / expected - 1) < 0.02
    assert trace == Trace.load(path, seed=3)
    assert trace != Trace.load(path, seed=4)
    assert trace.transforms == ("load(format=ServeGen client, seed=3)",)
    assert any("drawn from rates and lengths" in warning for warning in trace.warnings)


# -- small ones ------------------------------------------------------------------------------------


def test_azure_stamps_with_and_without_fraction_or_zone(tmp_path: Path) -> None:
    content = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
        "2024-05-10 00:00:00.0099300+00:00,2162,5\r\n"
        "2024-05-10 00:00:01+00:00,2399,6\r\n"
        "2024-05-10T00:00:01.5Z,76,15\r\n"
        "2024-05-10 00:00:02.1234567,10,1\r\n"
    )
    trace = load(tmp_path, "\ufeff" + content)
    assert trace.arrival_ps is not None
    assert trace.arrival_ps.tolist() == [0, 990_070_000_000, 1_490_070_000_000, 2_113_526_700_000]
    assert lengths(trace) == [(2162, 5), (2399, 6), (76, 15), (10, 1)]


def test_zones_are_counted_and_a_mixture_that_cannot_be_told_is_refused(tmp_path: Path) -> None:
    head = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    zones = head + "2024-03-31 01:59:59+01:00,1,1\n2024-03-31 03:00:00+02:00,1,1\n2024-03-31 01:00:01Z,1,1\n"
    assert seconds(load(tmp_path, zones)) == [0, 1, 2]
    mixed = head + "2024-05-10 02:00:00+02:00,1,1\n2024-05-10 02:00:01,1,1\n"
    assert refusal(tmp_path, mixed) == (
        "some.file line 3: arrival_s is a date without a zone, but on line 2 it is a date in another zone. "
        "Write all of them alike."
    )
    numbers = head + "2024-05-10 02:00:00,1,1\n5.5,1,1\n"
    assert refusal(tmp_path, numbers).startswith("some.file line 3: arrival_s is a number, but on line 2 it is a date")


def test_mooncake_counts_milliseconds_and_blocks_of_512(tmp_path: Path) -> None:
    row = {"timestamp": 3000, "input_length": 655, "output_length": 52, "hash_ids": [46, 47]}
    later = {"timestamp": 3500, "input_length": 512, "output_length": 1, "hash_ids": [46]}
    trace = load(tmp_path, lines(row, later))
    assert seconds(trace) == [0, 0.5]
    assert trace.segments(0) == (("h:46", 0, 512), ("h:47", 0, 143))
    assert trace.segments(1) == (("h:46", 0, 512),)


def test_hash_ids_that_do_not_fit_512_are_refused_or_given_another_size(tmp_path: Path) -> None:
    row = {"timestamp": 0, "input_length": 40, "output_length": 5, "hash_ids": [1, 2, 3]}
    assert refusal(tmp_path, lines(row)) == (
        "some.file line 1: there are 3 hash_ids, but a prompt of 40 tokens has 1 block of 512. "
        "One row like this; --drop-bad leaves it out."
    )
    trace = load(tmp_path, lines(row), hash_block_tokens=16)
    assert trace.segments(0) == (("h:1", 0, 16), ("h:2", 0, 16), ("h:3", 0, 8))
    plain = lines({"timestamp": 0, "input_length": 40, "output_length": 5})
    assert refusal(tmp_path, plain, hash_block_tokens=16) == (
        "some.file has no hash_ids, so a size for their blocks has no use. Leave it out."
    )


def test_fractions_of_milliseconds_are_refused_until_the_unit_is_said(tmp_path: Path) -> None:
    content = lines(
        {"timestamp": 0, "input_length": 4, "output_length": 5},
        {"timestamp": 12.4, "input_length": 4, "output_length": 5},
    )
    assert refusal(tmp_path, content) == (
        "some.file line 2: the time is 12.4, but Mooncake counts whole milliseconds. "
        "Say what these are: --time-unit s or --time-unit ms."
    )
    assert seconds(load(tmp_path, content, time_unit="s")) == [0, 12.4]
    assert seconds(load(tmp_path, content, time_unit="ms")) == [0, 0.0124]


def test_aiperf_sessions_gather_their_history(tmp_path: Path) -> None:
    content = lines(
        {"session_id": "a", "timestamp": 0, "input_length": 100, "output_length": 10},
        {"session_id": "b", "timestamp": 1000, "input_length": 7, "output_length": 2},
        {"session_id": "a", "delay": 2500, "input_length": 30, "output_length": 5},
    )
    trace = load(tmp_path, content)
    assert trace.session == ("a", "a", "b")
    assert seconds(trace) == [0, 0, 1]
    assert trace.think_ps is not None
    assert trace.think_ps.tolist() == [0, 2_500_000_000_000, 0]
    assert lengths(trace) == [(100, 10), (140, 5), (7, 2)]
    assert trace.ids == ("0", "2", "1")
    assert trace.segments(1) == (("r:0", 0, 100), ("o0", 0, 10), ("r:2", 0, 30))
    assert any("history is added" in warning for warning in trace.warnings)
    without = content.replace('"timestamp": 1000, ', "")
    assert refusal(tmp_path, without) == (
        "some.file line 2: the first turn of a session has no timestamp, but others have. "
        "Give it one, or take all of them out."
    )


def test_bailian_counts_seconds_and_names_the_turn_before(tmp_path: Path) -> None:
    row = {"input_length": 20, "output_length": 132, "type": "text"}
    content = lines(
        {**row, "chat_id": 159, "parent_chat_id": -1, "timestamp": 61.25, "turn": 1, "hash_ids": [1089, 1090]},
        {**row, "chat_id": 160, "parent_chat_id": -1, "timestamp": 61.5, "turn": 1, "hash_ids": []},
        {**row, "chat_id": 161, "parent_chat_id": 159, "timestamp": 70, "turn": 2, "hash_ids": [1089, 7]},
        {**row, "chat_id": 162, "parent_chat_id": 161, "timestamp": 80, "turn": 3, "hash_ids": []},
    )
    trace = load(tmp_path, content)
    assert seconds(trace) == [0, 0.25, 8.75, 18.75]
    assert trace.ids == ("159", "160", "161", "162")
    assert trace.session == ("159", "160", "159", "159")
    assert trace.turn is not None
    assert trace.turn.tolist() == [0, 0, 1, 2]
    assert trace.segments(2) == (("h:1089", 0, 16), ("h:7", 0, 4))
    assert trace.ignored_columns == ("type",)


def test_llmservingsim_counts_nanoseconds_and_compares_token_ids(tmp_path: Path) -> None:
    tsv = "input_toks\toutput_toks\tarrival_time_ns\n10\t70\t46926808\n22\t104\t347938952\n"
    trace = load(tmp_path, tsv)
    assert trace.arrival_ps is not None
    assert trace.arrival_ps.tolist() == [0, 301_012_144_000]
    shared_part = list(range(20))
    rows = [shared_part + [100 + k] * 20 for k in range(2)]
    content = lines(
        *(
            {"input_toks": 40, "output_toks": 2, "arrival_time_ns": k, "input_tok_ids": ids, "output_tok_ids": [1, 2]}
            for k, ids in enumerate(rows)
        )
    )
    trace = load(tmp_path, content)
    first, second = (trace.segments(row) for row in range(2))
    assert first is not None
    assert second is not None
    assert [length for _, _, length in first] == [16, 16, 8]
    assert first[0] == second[0]
    assert first[1] != second[1]
    assert refusal(tmp_path, lines({"input_toks": 40, "output_toks": 2, "input_tok_ids": [1]})) == (
        "some.file line 1: input_tok_ids holds 1 tokens, but input_toks is 40. "
        "One row like this; --drop-bad leaves it out."
    )


def test_splitwise_and_vidur_are_told_by_their_columns(tmp_path: Path) -> None:
    splitwise = "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size\n"
    assert lengths(load(tmp_path, splitwise + "0,2,0,1.5,1,374,44\n")) == [(374, 44)]
    vidur = "arrived_at,num_prefill_tokens,num_decode_tokens,pd_ratio\n1.5,3,4,0.75\n2,5,6,1\n"
    trace = load(tmp_path, vidur)
    assert (seconds(trace), lengths(trace)) == ([0, 0.5], [(3, 4), (5, 6)])
    assert trace.ignored_columns == ("pd_ratio",)


def test_aiperf_records_leave_failed_requests_out_only_when_asked(tmp_path: Path) -> None:
    def record(start_ns: int, error: object = None) -> dict[str, object]:
        value = {"value": 550, "unit": "tokens"}
        return {
            "metadata": {"x_request_id": f"r{start_ns}", "request_start_ns": start_ns, "was_cancelled": bool(error)},
            "metrics": {} if error else {"input_sequence_length": value, "output_sequence_length": {"value": 9}},
            "error": error,
        }

    content = lines(
        record(1_759_813_207_532_900_363), record(2, {"type": "TimeoutError"}), record(1_759_813_207_532_900_463)
    )
    assert refusal(tmp_path, content) == (
        "some.file line 2: this request failed (TimeoutError). One row like this; --drop-bad leaves it out."
    )
    trace = load(tmp_path, content, drop_bad=True)
    assert lengths(trace) == [(550, 9), (550, 9)]
    assert trace.arrival_ps is not None
    assert trace.arrival_ps.tolist() == [0, 100_000]
    assert trace.ids == ("r1759813207532900363", "r1759813207532900463")


def test_a_result_of_vllm_bench_is_one_run_on_one_line_or_many(tmp_path: Path) -> None:
    run = {
        "date": "20261101-120000",
        "completed": 2,
        "input_lens": [10, 20, 30],
        "output_lens": [3, 0, 5],
        "start_times": [100.5, 101.0, 101.25],
        "errors": ["", "timeout", ""],
    }
    for content in (json.dumps(run), json.dumps(run, indent=2)):
        assert refusal(tmp_path, content) == (
            "some.file line 1: this request failed (timeout). One row like this; --drop-bad leaves it out."
        )
        trace = load(tmp_path, content, drop_bad=True)
        assert (lengths(trace), seconds(trace)) == ([(10, 3), (30, 5)], [0, 0.75])
    assert refusal(tmp_path, lines(run, run)) == (
        "some.file holds 2 runs, one a line. Keep the line of one run in a file of its own."
    )
    assert refusal(tmp_path, lines({"input_lens": [1, 2], "output_lens": [3]})) == (
        "some.file line 1: the lists differ in length (input_lens 2, output_lens 1). "
        "Give a file with both, of the same run."
    )


def test_anything_else_is_mapped_and_its_times_count_from_the_first_row(tmp_path: Path) -> None:
    names = {"arrival_s": "when", "prompt_tokens": "in", "output_tokens": "out"}
    head = "when,in,out\n"
    dates = head + "2023-11-16 18:15:46.6805900,1,2\n2023-11-16 18:15:47,3,4\n"
    assert seconds(load(tmp_path, dates, columns=names)) == [0, 0.31941]
    epoch = head + "1700000000.5,1,2\n1700000002,3,4\n"
    assert seconds(load(tmp_path, epoch, columns=names)) == [0, 1.5]
    epoch_ms = head + "1700000000500,1,2\n1700000002000,3,4\n"
    assert refusal(tmp_path, epoch_ms, columns=names) == (
        "some.file line 2: the first time is 1700000000500, which makes no sense in s but is a time since 1970 in ms. "
        "Say so: --time-unit ms."
    )
    assert seconds(load(tmp_path, epoch_ms, columns=names, time_unit="ms")) == [0, 1.5]
    with pytest.raises(UsageError, match="unknown unit of time 'minutes'"):
        load(tmp_path, epoch_ms, columns=names, time_unit="minutes")


def test_rows_out_of_order_before_the_first_are_counted_from_the_earliest_once_sorted(tmp_path: Path) -> None:
    content = "Timestamp,Request tokens,Response tokens\n100,1,1\n40,2,2\n130,3,3\n"
    assert refusal(tmp_path, content).startswith("some.file line 3: arrival_s is -60, but the row before has 0: ")
    trace = load(tmp_path, content, sort=True)
    assert (seconds(trace), lengths(trace)) == ([0, 60, 90], [(2, 2), (1, 1), (3, 3)])


def test_what_is_read_can_be_kept_in_our_format(shared: Path, tmp_path: Path) -> None:
    mooncake = Trace.load(shared / "data" / "traces" / "mooncake" / "synthetic_trace_first2000.jsonl.gz").head(50)
    burst = Trace.load(shared / "data" / "traces" / "burstgpt" / "BurstGPT_3_rows1-66.csv")
    for trace in (mooncake, burst):
        for name in ("t.csv.gz", "t.jsonl"):
            trace.save(tmp_path / name)
            back = Trace.load(tmp_path / name)
            assert back == trace
            assert [back.segments(row) for row in range(len(back))] == [
                trace.segments(row) for row in range(len(trace))
            ]
            assert back.session == trace.session


def test_rows_that_move_keep_the_names_that_segments_quote(tmp_path: Path) -> None:
    content = lines(
        {"arrival_s": 5, "prompt_tokens": 4, "output_tokens": 3},
        {"arrival_s": 1, "prompt_tokens": 0, "output_tokens": 3},
        {"arrival_s": 2, "prompt_tokens": 7, "output_tokens": 3, "segments": [["r:0", 0, 4], ["o0", 0, 3]]},
    )
    trace = load(tmp_path, content, drop_bad=True, sort=True)
    assert trace.ids == ("2", "0")
    assert trace.segments(0) == (("r:0", 0, 4), ("o0", 0, 3))
