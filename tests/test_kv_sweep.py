"""Counters of a real engine: 63 runs of vLLM 0.5.0 on an H100, with KV memory as the only thing that binds.

Preemptions and recomputed tokens depend on the rules of scheduler and block manager alone when
all requests arrive at once and are alike, so there is nothing to fit: no timing, no tolerance.
`docs/fidelity.md` has the table of all runs and says where they come from.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import simbatch as sb
from simbatch.scheduler import VllmV0
from simbatch.scheduler.plan import Plan

DOC = Path(__file__).resolve().parent.parent / "docs" / "fidelity.md"
CLIENT_OUTPUTS = {27: 27, 230: 231, 357: 358}
"""What the client asked for, by what the engine made of it: its counters show one token less of the longer ones."""
TRUE_OUTPUTS = {asked: made for made, asked in CLIENT_OUTPUTS.items()}


@dataclass(frozen=True)
class Run:
    """One run of the sweep. Lengths in tokens."""

    rank: int
    slots: int
    requests: int
    prompt: int
    output: int
    blocks: int
    preemptions: int
    recomputed: int

    def replay(self, **options: Any) -> tuple[int, int]:
        """(preemptions, recomputed tokens) of the simulator."""
        output = options.pop("output", self.output)
        trace = sb.Trace.from_lengths([self.prompt] * self.requests, [output] * self.requests)
        options = {
            "system": "vllm-v0",
            "num_gpu_blocks": self.blocks,
            "max_model_len": 4096,
            "max_num_seqs": 4096,
            "max_num_batched_tokens": 4096,
            "timing": "linear:base_ms=1",
            **options,
        }
        counts = sb.simulate(trace, **options).metrics()["requests"]
        assert counts["finished"] == self.requests
        return counts["preemptions"], counts["recomputed_tokens"]

    def equal(self, **options: Any) -> bool:
        return self.replay(**options) == (self.preemptions, self.recomputed)


@pytest.fixture(scope="module")
def runs(shared: Path) -> list[Run]:
    """What the engine counted, sorted for readers: by adapter rank, length, memory."""
    path = shared / "data" / "measured" / "h100_64gb_kv_sweep" / "runs.csv"
    with path.open(encoding="utf-8") as lines:
        found = [
            Run(
                rank=int(row["lora_rank"]),
                slots=int(row["lora_slots_reserved"]),
                requests=int(row["n_requests"]),
                prompt=int(row["prompt_tokens"]),
                output=TRUE_OUTPUTS[int(row["output_tokens"])],
                blocks=int(row["gpu_kv_blocks"]),
                preemptions=int(row["preemptions_total"]),
                recomputed=int(row["recomputed_tokens_total"]),
            )
            for row in csv.DictReader(lines)
        ]
    assert len(found) == 63
    return sorted(found, key=lambda run: (run.rank, run.prompt, -run.blocks))


def documented() -> list[Run]:
    """The runs as the document tells them, the simulator's own columns left out."""
    told = DOC.read_text(encoding="utf-8").split("<!-- table: kv-sweep -->\n")[1].split("\n\n")[0]
    rows = [[cell.replace(",", "") for cell in line.strip("| ").split(" | ")] for line in told.splitlines()[2:]]
    return [Run(*map(int, [*row[:7], row[8]])) for row in rows]


def test_every_run_of_every_rank(runs: list[Run], doc_table: Callable[..., None]) -> None:
    rows = []
    for run in runs:
        preemptions, recomputed = run.replay()
        rows.append(
            [
                *map(str, (run.rank, run.slots, run.requests, run.prompt, run.output, run.blocks)),
                *(f"{count:,}" for count in (run.preemptions, preemptions, run.recomputed, recomputed)),
            ]
        )
        assert (preemptions, recomputed) == (run.preemptions, run.recomputed), run
    doc_table("fidelity.md", "kv-sweep", rows)


def test_the_document_has_what_the_engine_counted() -> None:
    """Needs no data from outside: a sample of the document's own rows, replayed."""
    assert len(documented()) == 63
    for run in documented()[::6]:
        assert run.equal(), run


def test_timing_does_not_matter(runs: list[Run]) -> None:
    slow = "linear:base_ms=25.6,sequence_us=447,prefill_token_us=170,context_ns=100"
    assert all(run.equal(timing=slow) for run in runs[::9])


class ExactRoom(VllmV0):
    """V0 with room judged by what is really needed, as V1 does."""

    def _decode(self, plan: Plan) -> None:
        while plan.running.decoding and not plan.decode():
            self._preempt(plan, plan.running.newest())


def test_what_the_agreement_rests_on(runs: list[Run], doc_table: Callable[..., None]) -> None:
    """Each rule changed alone: hardly a run is equal then, so the counters do tell the rules apart."""
    changes: dict[str, Callable[[Run], dict[str, Any]]] = {
        "none": lambda run: {},
        "2,048 prompt tokens an iteration instead of 4,096": lambda run: {"max_num_batched_tokens": 2048},
        "the client's output lengths, 231 and 358": lambda run: {"output": CLIENT_OUTPUTS[run.output]},
        "a decode wants a block only where it needs one": lambda run: {"scheduler": ExactRoom()},
        "no watermark": lambda run: {"watermark": 0.0},
        "one block less (V1's null block)": lambda run: {"num_gpu_blocks": run.blocks - 1},
        "swapping instead of recomputation": lambda run: {"preemption_mode": "swap"},
        "V0's chunked prefill": lambda run: {"system": "sarathi"},
        "the rules of V1": lambda run: {"system": "vllm"},
    }
    sample = runs[::6]
    equal = {change: sum(run.equal(**options(run)) for run in sample) for change, options in changes.items()}
    doc_table("fidelity.md", "kv-sweep-rules", [[change, f"{n} of {len(sample)}"] for change, n in equal.items()])
    first, second, *others = equal.values()
    assert first == second == len(sample)
    assert max(others) < len(sample) / 2
