"""Fits to kernel and layer tables: tables made with known shares of the peaks, and those shares found again."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pandas as pd
import pytest

from simbatch.answers.fit import fit
from simbatch.answers.fit.tables import built, kernels_of, layers_of, parts_of, read_tables
from simbatch.deployment import Deployment
from simbatch.errors import UsageError
from simbatch.timing import Iteration
from simbatch.timing.parts import KernelParts, PartsTiming

HERE = Deployment("llama-3.1-8b", gpu="h100")
BANDWIDTH, PEAK = HERE.card.bandwidth_bytes_per_s, HERE.card.bf16_flop_per_s
WEIGHTS, COMPUTE, KV, PROMPTS = 0.8, 0.6, 0.75, 0.4
"""Shares of the peaks that the made-up kernels reach."""
LAUNCH_US = 2.0
TOKENS = [2**power for power in range(15)]


def products() -> pd.DataFrame:
    """Matrix products: the longer of reading and computing."""
    rows = [
        (m, n, k, LAUNCH_US + max(2 * n * k / BANDWIDTH / WEIGHTS, 2 * m * n * k / PEAK / COMPUTE) * 1e6)
        for m, n, k in product(TOKENS, [2**power for power in range(10, 19)], [2**power for power in range(10, 16)])
    ]
    return pd.DataFrame(rows, columns=["m", "n", "k", "us"])


def decodes(heads: tuple[int, int] = (32, 8)) -> pd.DataFrame:
    rows = [
        (batch, *heads, context, LAUNCH_US + batch * context * heads[1] * 128 * 4 / BANDWIDTH / KV * 1e6)
        for batch, context in product([2**power for power in range(11)], [2**power for power in range(17)])
    ]
    return pd.DataFrame(rows, columns=["batch", "q_heads", "kv_heads", "context", "us"])


def prompts(heads: tuple[int, int] = (32, 8)) -> pd.DataFrame:
    rows = [
        (batch, tokens, *heads, LAUNCH_US + batch * tokens**2 / 2 * 4 * heads[0] * 128 / PEAK / PROMPTS * 1e6)
        for batch, tokens in product((1, 2, 4, 8), TOKENS)
    ]
    return pd.DataFrame(rows, columns=["batch", "new_tokens_each", "q_heads", "kv_heads", "us"])


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    found = {}
    for name, frame in (("products", products()), ("decodes", decodes()), ("prompts", prompts())):
        found[name] = tmp_path / f"{name}.csv"
        frame.to_csv(found[name], index=False)
    return found


def one_decode(sequences: int, context: int) -> Iteration:
    one = Iteration()
    one.tokens = one.sequences = sequences
    one.context_tokens = sequences * context
    return one


def test_shares_of_the_peaks_come_out(files: dict[str, Path]) -> None:
    pins = {"weight_efficiency": WEIGHTS, "step_us": 25.0, "sequence_us": 0.35}
    found = fit(list(files.values()), HERE, pins=pins, resamples=0)
    values = found.card.values()
    assert values.kv_efficiency * 8 / (8 + values.kv_half_heads) == pytest.approx(KV, rel=0.05)
    assert values.compute_efficiency == pytest.approx(COMPUTE, rel=0.08)
    assert values.prefill_efficiency == pytest.approx(PROMPTS, rel=0.15)
    assert found.card.error.median < 0.03
    assert "weight_efficiency: 0.8, as asked" in found.card.notes


def test_what_tables_of_kernels_cannot_tell_is_said(files: dict[str, Path]) -> None:
    """Nobody waits and no GPU is exchanged with in them; one model cannot part its weights from a constant."""
    found = fit(list(files.values()), HERE, resamples=0)
    assert found.told is not None
    assert {"waiting_ns", "link_efficiency", "all_reduce_us"} <= set(found.told.absent)
    assert "weight_efficiency" in found.told.pinned
    assert found.card.coefficients["waiting_ns"].origin == "absent"


def test_an_iteration_is_the_sum_of_its_parts(files: dict[str, Path]) -> None:
    """Between sizes that were timed: within what a line on logarithms bends."""
    parts = KernelParts(kernels_of(read_tables(list(files.values()))), HERE)
    sequences, context = 48, 3000
    attention_us = 32 * (LAUNCH_US + sequences * context * 8 * 128 * 4 / BANDWIDTH / KV * 1e6)
    assert parts.decodes_us(sequences, context) == pytest.approx(attention_us, rel=0.02)
    timing = PartsTiming(HERE, parts)
    whole_us = timing.progression(one_decode(sequences, context))[0] / 1e6
    sum_us = parts.tokens_us(sequences) + parts.sequences_us(sequences) + parts.decodes_us(sequences, context)
    assert whole_us == pytest.approx(sum_us, rel=0.01)


def test_sizes_beyond_the_tables_grow_in_proportion(files: dict[str, Path]) -> None:
    parts = KernelParts(kernels_of(read_tables(list(files.values()))), HERE)
    assert parts.decodes_us(2048, 65536) == pytest.approx(2 * parts.decodes_us(1024, 65536))


def test_heads_that_were_not_timed_are_taken_in_parts() -> None:
    """64 query heads over 8 KV heads are two times 32 over 4: as many sequences again."""
    tables = {"products": products(), "decodes": decodes((32, 4)), "prompts": prompts((32, 4))}
    kernels = kernels_of(tables)
    assert kernels.decodes_us(64, 8, 16, 1024) == pytest.approx(kernels.decodes_us(32, 4, 32, 1024))


def test_exchange_between_gpus_is_read_by_their_number(tmp_path: Path, files: dict[str, Path]) -> None:
    """Only what was timed inside a recorded graph counts, and each layer exchanges twice."""
    sizes = [2**power for power in range(7, 27)]
    rows = [(2, size, us * (1 + size / 1e6), kind) for size in sizes for kind, us in (("graph", 5.0), ("eager", 20.0))]
    path = tmp_path / "exchange.csv"
    pd.DataFrame(rows, columns=["gpus", "elements_or_bytes", "us", "kernel"]).to_csv(path, index=False)
    tables = read_tables([*files.values(), path])
    assert kernels_of(tables).exchange_us(2, 4096) == pytest.approx(5.0, rel=0.01)
    two = Deployment("llama-3.1-8b", gpu="h100", tensor_parallel_size=2)
    with_it, without = (KernelParts(kernels_of({**tables, "exchange": t}), two) for t in (tables["exchange"], free()))
    assert with_it.tokens_us(1) - without.tokens_us(1) == pytest.approx(32 * 2 * 5.0, rel=0.02)


def free() -> pd.DataFrame:
    """Exchanges that cost next to nothing."""
    return pd.DataFrame(
        {"gpus": [2, 2], "elements_or_bytes": [128, 2**26], "us": [1e-6, 2e-6], "kernel": ["graph"] * 2}
    )


KV_US = 8 * 128 * 4 / BANDWIDTH / KV * 1e6
"""One layer's cache of one token, read."""
PAIR_US = 4 * 4096 / PEAK / PROMPTS * 1e6


def layer_tables() -> dict[str, pd.DataFrame]:
    """Layers of a made-up profile; decodes beside a prompt take twice what they take alone."""
    chunks, pasts, rows, contexts = (128, 512, 2048), (0, 1024, 4096), (1, 8, 64, 128), (128, 1024, 8192)

    def decodes_us(sequences: int, context: int) -> float:
        return LAUNCH_US + sequences * context * KV_US

    def prompt_us(chunk: int, past: int) -> float:
        return LAUNCH_US + chunk * (chunk / 2 + past) * PAIR_US

    attention = [
        (0, 0, sequences, context, decodes_us(sequences, context)) for sequences, context in product(rows, contexts)
    ]
    attention += [(chunk, past, 0, 0, prompt_us(chunk, past)) for chunk, past in product(chunks, pasts)]
    attention += [
        (chunk, 0, sequences, context, prompt_us(chunk, 0) + 2 * decodes_us(sequences, context))
        for chunk, sequences, context in product(chunks, rows, contexts)
    ]
    # The weights of a layer of 8B, in two halves.
    half = 218e6 / 2
    dense = [
        (layer, tokens, max(2 * half / BANDWIDTH / WEIGHTS, 2 * tokens * half / PEAK / COMPUTE) * 1e6)
        for layer in ("qkv_proj", "down_proj")
        for tokens in TOKENS
    ]
    head = [("lm_head", sequences, 30 + 0.1 * sequences) for sequences in (1, 8, 64, 512)]
    return {
        "attention": pd.DataFrame(
            attention, columns=["prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "time_us"]
        ),
        "dense": pd.DataFrame(dense, columns=["layer", "tokens", "time_us"]),
        "head": pd.DataFrame(head, columns=["layer", "sequences", "time_us"]),
    }


def test_decodes_beside_a_prompt_are_what_was_timed_together() -> None:
    parts = parts_of(layer_tables(), HERE)
    alone, beside = parts.decodes_us(64, 1024), parts.mixed_us(512, 64, 1024)
    assert alone == pytest.approx(32 * (LAUNCH_US + 64 * 1024 * KV_US), rel=0.01)
    assert beside == pytest.approx(2 * alone, rel=0.01)


def test_what_they_take_longer_comes_out_of_a_fit() -> None:
    steps = built(parts_of(layer_tables(), HERE), HERE)
    found = fit(steps, pins={"step_us": 25.0, "weight_efficiency": WEIGHTS}, resamples=0)
    assert found.card.values().mixed_kv_share == pytest.approx(1.0, rel=0.25)


def test_ragged_batches_take_longer_by_what_was_timed() -> None:
    even = layers_of(layer_tables())
    ragged = pd.DataFrame({"t_mean_us": [10.0, 20.0], "t_skew_us": [10.7, 21.4], "regime": ["pure", "pure"]})
    uneven = layers_of({**layer_tables(), "ragged": ragged})
    assert (even.ragged, uneven.ragged) == (1.0, pytest.approx(1.07))


def test_tables_that_cannot_be_used(tmp_path: Path, files: dict[str, Path]) -> None:
    with pytest.raises(UsageError, match="no table of products, prompts"):
        fit(files["decodes"], HERE)
    with pytest.raises(UsageError, match="which model to build"):
        fit(list(files.values()))
    again = tmp_path / "again.csv"
    decodes().to_csv(again, index=False)
    with pytest.raises(UsageError, match="a second table of decodes"):
        fit([*files.values(), again], HERE)
    with pytest.raises(UsageError, match="no table of dense, head"):
        parts_of({"attention": layer_tables()["attention"]}, HERE)
