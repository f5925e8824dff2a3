"""Runs an iteration on a device: uploads it, launches it (as a CUDA graph where there is one), times it.

On a card, time is that of CUDA events around the launches; on a CPU, under Triton's interpreter, it is
the clock's, good for nothing but to see that every line runs.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from simbatch.errors import UsageError
from validation.kernels.configs import Config
from validation.kernels.decode import DecodeAttention
from validation.kv import Cache
from validation.model import Chunk, Inputs, Model
from validation.work import BUCKETS, Row, Work

Layout = tuple[int, tuple[Chunk, ...]]
"""What a graph is captured for: padded rows, and the chunks."""


class Ran(NamedTuple):
    """One iteration that was run."""

    gpu_s: float
    tokens: list[int]
    """Sampled: of the decoding rows, then of the chunks."""


class ModelExecutor:
    """*model* on *cache*, up to *most_rows* decoding rows and *most_tokens* tokens in an iteration.

    With *graphs* (cards only) decode iterations of each bucket are captured when `capture` is called.
    """

    virtual = False

    def __init__(
        self,
        model: Model,
        cache: Cache,
        *,
        most_rows: int = 256,
        most_tokens: int = 8192,
        most_chunks: int = 64,
        processors: int = 132,
        config: Config | None = None,
        graphs: bool = True,
    ) -> None:
        self.model = model
        self.cache = cache
        self.config = config
        self.processors = processors
        self.on_card = torch.device(model.device).type == "cuda"
        self.use_graphs = graphs and self.on_card
        self.most_rows = next((b for b in BUCKETS if b >= most_rows), most_rows)
        self.most_tokens = most_tokens + self.most_rows
        self.columns = cache.columns(model.longest_tokens)
        self._host, self._uploads, self.inputs = self._buffers(self.most_rows + most_chunks)
        self._attention: dict[int, DecodeAttention] = {}
        self._graphs: dict[Layout, tuple[torch.cuda.CUDAGraph, torch.Tensor]] = {}
        self._pool: Any = None
        if self.on_card:
            self._start, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def _buffers(self, rows: int) -> tuple[dict[str, np.ndarray], list[tuple[torch.Tensor, torch.Tensor]], Inputs]:
        """(views to write, pairs to copy, device buffers): pinned here for each one there, in the order of `Inputs`."""
        paged = self.cache.page_tokens > 0
        tokens = torch.zeros(self.most_tokens, dtype=torch.int64)
        host = Inputs(
            tokens=tokens,
            positions=tokens.clone(),
            slots=tokens.clone().fill_(-1),
            lens=torch.zeros(rows, dtype=torch.int32),
            tables=torch.zeros((rows, self.columns) if paged else (rows,), dtype=torch.int32 if paged else torch.int64),
        )
        if self.on_card:
            host = Inputs(*(buffer.pin_memory() for buffer in host))
        device = Inputs(*(buffer.to(self.model.device, copy=True) for buffer in host))
        views = {name: buffer.numpy() for name, buffer in zip(Inputs._fields, host, strict=True)}
        return views, list(zip(device, host, strict=True)), device

    # -- one iteration ---------------------------------------------------------------------------

    def run(self, work: Work) -> Ran:
        """Upload, launch, wait, read the sampled tokens back."""
        layout = self.upload(work)
        gpu_s, logits_or_tokens = self._timed(layout)
        sampled = logits_or_tokens.tolist()
        rows = layout[0]
        return Ran(gpu_s, sampled[: len(work.decodes)] + sampled[rows:])

    def repeat(self, work: Work, warmups: int, repeats: int, whole: int = 0) -> tuple[list[float], list[float]]:
        """Runs of the same iteration, captured first where possible: (GPU seconds, host seconds).

        *repeats* launches after *warmups*, and then *whole* runs with upload and read-back, of which
        the second list has what they took beside the GPU's time.
        """
        layout = self.upload(work)
        captured = self.use_graphs and layout not in self._graphs
        if captured:
            self._capture(layout, None)
        times = [self._timed(layout)[0] for _ in range(warmups + repeats)][warmups:]
        hosts = []
        for _ in range(whole):
            started = time.perf_counter()
            ran = self.run(work)
            hosts.append(time.perf_counter() - started - ran.gpu_s)
        if captured:
            del self._graphs[layout]
        return times, hosts

    def logits(self, work: Work) -> torch.Tensor:
        """Of *work*'s rows and chunks, padding left out. For comparisons."""
        rows, chunks = self.upload(work)
        logits = self.model.logits(self.inputs, rows, chunks, self.cache, self._attend(rows))
        return torch.cat([logits[: len(work.decodes)], logits[rows:]])

    def _timed(self, layout: Layout) -> tuple[float, torch.Tensor]:
        if self.on_card:
            self._start.record()
            sampled = self._launch(layout)
            self._end.record()
            self._end.synchronize()
            return self._start.elapsed_time(self._end) / 1e3, sampled
        started = time.perf_counter()
        sampled = self._launch(layout)
        return time.perf_counter() - started, sampled

    def _launch(self, layout: Layout) -> torch.Tensor:
        """Sampled tokens of the padded rows and the chunks."""
        known = self._graphs.get(layout)
        if known is not None:
            known[0].replay()
            return known[1]
        return self._forward(layout)

    def _forward(self, layout: Layout) -> torch.Tensor:
        rows, chunks = layout
        return self.model.logits(self.inputs, rows, chunks, self.cache, self._attend(rows)).argmax(-1)

    def _attend(self, rows: int) -> DecodeAttention | None:
        if rows and rows not in self._attention:
            shape = self.model.shape
            self._attention[rows] = DecodeAttention(
                rows,
                shape.heads,
                shape.kv_heads,
                shape.head_dim,
                self.cache.page_tokens,
                device=self.model.device,
                processors=self.processors,
                config=self.config,
            )
        return self._attention.get(rows)

    # -- graphs ------------------------------------------------------------------------------------

    def capture(self) -> None:
        """Capture the decode iteration of every bucket, the largest first, in one pool of memory."""
        if not self.use_graphs:
            return
        for rows in reversed([bucket for bucket in BUCKETS if bucket <= self.most_rows]):
            self.upload(Work())
            self._host["lens"][:rows] = 1
            self._copy(rows, rows)
            self._pool = self._capture((rows, ()), self._pool)

    def _capture(self, layout: Layout, pool: Any) -> Any:
        """Capture *layout* in *pool* (None: one of its own) and return the pool, which lives as long as its graphs."""
        # Run once outside, so that kernels are compiled and the products' workspaces exist.
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self._forward(layout)
            self._forward(layout)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            sampled = self._forward(layout)
        self._graphs[layout] = graph, sampled
        return graph.pool()

    # -- upload ------------------------------------------------------------------------------------

    def upload(self, work: Work) -> Layout:
        """Write *work* into the buffers of the device."""
        host, cache = self._host, self.cache
        rows = work.bucket
        if work.tokens + rows > self.most_tokens or rows > self.most_rows:
            raise UsageError(
                f"an iteration of {work.tokens} tokens with {len(work.decodes)} decoding rows is more than the "
                f"{self.most_tokens} tokens and {self.most_rows} rows prepared for. "
                "Lower --max-num-seqs or --max-num-batched-tokens."
            )
        slots, lens = host["slots"], host["lens"]
        slots[:rows] = -1
        lens[:rows] = 0
        host["tokens"][:rows] = 0
        host["positions"][:rows] = 0
        for i, row in enumerate(work.decodes):
            room = cache.room(row.place)
            host["tokens"][i] = row.tokens[0]
            host["positions"][i] = min(row.context_tokens, self.model.longest_tokens - 1)
            # A member of a static batch that has ended computes on, and may run out of its piece.
            slots[i] = cache.slot(row.place, row.context_tokens) if row.context_tokens < room else -1
            lens[i] = min(row.context_tokens + 1, room)
            self._table(i, row)
        start, chunks = rows, []
        for i, row in enumerate(work.chunks):
            chunks.append(self._chunk(start, rows + i, row))
            start += len(row.tokens)
        self._copy(start, rows + len(chunks))
        return rows, tuple(chunks)

    def _copy(self, tokens: int, rows: int) -> None:
        """Send what an iteration of *tokens* and *rows* uses."""
        for (device, host), used in zip(self._uploads, (tokens, tokens, tokens, rows, rows), strict=True):
            device[:used].copy_(host[:used], non_blocking=True)

    def _chunk(self, start: int, table_row: int, row: Row) -> Chunk:
        host, new, cached = self._host, len(row.tokens), row.context_tokens
        mine = slice(start, start + new)
        where = np.arange(cached, cached + new)
        host["tokens"][mine] = row.tokens
        host["positions"][mine] = where
        if self.cache.page_tokens:
            size = self.cache.page_tokens
            host["slots"][mine] = np.asarray(row.place)[where // size] * size + where % size
            place: tuple[int, ...] = ()
        else:
            host["slots"][mine] = row.place[0] + where
            place = tuple(row.place)
        self._table(table_row, row)
        return Chunk(start, new, cached, table_row, place)

    def _table(self, row: int, of: Row) -> None:
        entry: Sequence[int] = self.cache.entry(of.place)
        if self.cache.page_tokens:
            self._host["tables"][row, : len(entry)] = entry
        else:
            self._host["tables"][row] = entry[0] if entry else 0
