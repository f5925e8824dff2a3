"""`OnGPU`: a timing of simbatch that runs the plan it is asked about, and returns what it measured.

One scheduler, two executors: the engine, the policy and the memory are those of a simulation, taken
step by step. The clock of the run is the sum of the measured iterations, and it jumps to the next
arrival when the engine is idle, so a trace at low load costs no waiting.
"""

from __future__ import annotations

import time
from typing import Any, Protocol

from simbatch.errors import UsageError
from simbatch.memory import ContiguousMemory
from simbatch.request import Sequence
from simbatch.timing import Iteration
from simbatch.units import to_ps
from validation.tables import BlockTables
from validation.work import Counts, Row, Work, show_chunks


class Executor(Protocol):
    """A GPU, or what stands in for one: `validation.executor.ModelExecutor`, `validation.fake.FakeGPU`."""

    virtual: bool
    """Does its time pass on paper only, and not on the clock of the host?"""

    def run(self, work: Work) -> Any:
        """Something with `gpu_s`, and `tokens` sampled for the decoding rows and then the chunks."""
        ...


class OnGPU:
    """Runs on *executor*; give it to `simulate` with ``step=True`` and a memory that names places.

    *host_in_time* adds the time that passes on the host between iterations; by default the iteration
    lasts as long as the GPU works, and host time is only written down. `log` has a row for each iteration.
    """

    def __init__(self, executor: Executor, vocab: int, *, host_in_time: bool = False) -> None:
        self.executor = executor
        self.vocab = vocab
        self.host_in_time = host_in_time
        self.log: list[dict[str, Any]] = []
        self.counts: list[Counts] = []
        self.outputs: dict[str, list[int]] = {}
        """Tokens sampled for each request, padding and what a request computes after its end included."""
        self._tokens: dict[Sequence, list[int]] = {}
        self._returned_s: float | None = None

    def progression(self, iteration: Iteration) -> tuple[int, int, int]:
        if iteration.plan is None:
            raise UsageError("OnGPU was asked without a plan to run. Use it in simulate(..., step=True) only.")
        work, samplers = self.work(iteration)
        ran = self.executor.run(work)
        for sequence, token in zip(samplers, ran.tokens, strict=True):
            if sequence is not None:
                self._tokens[sequence].append(token)
                self.outputs.setdefault(sequence.id, []).append(token)
        now_s = time.perf_counter()
        # Everything since the last iteration came back, the engine's own bookkeeping included.
        waited_s = 0.0 if self.executor.virtual else ran.gpu_s
        host_s = max(0.0, now_s - self._returned_s - waited_s) if self._returned_s is not None else 0.0
        counts = work.counts()
        self.counts.append(counts)
        self.log.append(
            {
                "i": len(self.log),
                "T": counts.tokens,
                "B": counts.rows,
                "K": counts.context_tokens,
                "chunks": show_chunks(counts.chunks),
                "bucket": counts.bucket,
                "gpu_ms": ran.gpu_s * 1e3,
                "host_ms": host_s * 1e3,
            }
        )
        self._returned_s = time.perf_counter()
        return max(1, to_ps(ran.gpu_s + host_s * self.host_in_time)), 0, 1

    def work(self, iteration: Iteration) -> tuple[Work, list[Sequence | None]]:
        """What the plan of *iteration* runs, and for each sampled token whose next one it is (None: nobody's)."""
        plan, batch = iteration.plan, iteration.batch
        places = _places(plan.memory)
        work = Work()
        samplers: list[Sequence | None] = []
        late: list[Sequence | None] = []
        if plan.decodes:
            for sequence in batch.members:
                if sequence not in batch.partial:
                    context = batch.computed(sequence)
                    work.decodes.append(self._row(sequence, context, 1, places))
                    samplers.append(sequence)
        for sequence, count in plan.chunks.items():
            before = sequence.computed
            row = self._row(sequence, before, count, places)
            sampler = sequence if before + count == sequence.known else None
            if sequence.known - before > 1:
                work.chunks.append(row)
                late.append(sampler)
            else:
                work.decodes.append(row)
                samplers.append(sampler)
        return work, samplers + late

    def _row(self, sequence: Sequence, context: int, count: int, places: Any) -> Row:
        known = self._tokens.get(sequence)
        if known is None or len(known) < context + count:
            known = self._prompt(sequence)
        return Row(known[context : context + count], context, places(sequence), sequence)

    def _prompt(self, sequence: Sequence) -> list[int]:
        """Token ids of the prompt: any will do, but the same ones for the same request."""
        length = sequence.prompt_tokens + sequence.padding_tokens
        tokens = [(7919 * (sequence.index + 1) + 104_729 * i + i * i) % self.vocab for i in range(length)]
        # Padding may change when a batch is formed again: then the sequence begins anew.
        self._tokens[sequence] = tokens + self.outputs.get(sequence.id, [])
        return self._tokens[sequence]

    def describe(self) -> dict[str, Any]:
        return {"kind": "measured", "name": "on-gpu", "executor": type(self.executor).__name__}


def _places(memory: Any) -> Any:
    """From a sequence to where its cache lies; raises UsageError for a memory that cannot say."""
    if isinstance(memory, BlockTables):
        return memory.place
    if isinstance(memory, ContiguousMemory):
        pieces = {holder: (start, holder.held) for start, _, holder in memory.pieces() if holder is not None}
        return lambda sequence: pieces.get(sequence, (0, 0))
    raise UsageError(
        f"{type(memory).__name__} counts what is held and does not say where it lies. "
        "Replay with validation.tables.BlockTables or a contiguous memory."
    )
