"""A real card as `measure` and `replay` use it: the model on it, its caches, and timed runs of each kind of job.

On a CPU the same lines run under Triton's interpreter with the clock of the machine, for tests.
"""

from __future__ import annotations

import gc
import random
import time
from statistics import median
from typing import Any

import torch

from validation.executor import ModelExecutor
from validation.jobs import REPEATS, WARMUPS, Job, attention_bytes, product_bytes
from validation.kernels.configs import find_config
from validation.kernels.decode import DecodeAttention
from validation.kv import Cache, ContiguousCache, PagedCache
from validation.measure import Timed
from validation.model import Model
from validation.shape import Shape
from validation.sweep import Point
from validation.work import Row, Work

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
COPY_BYTES = 2 << 30
_HOST_RUNS = 3


class Card:
    """*shape* on *device* with room for *kv_tokens*; made once, since weights take seconds.

    `executor` gives the loop on a fresh cache; `time` runs a job of `measure` on a paged one.
    """

    def __init__(
        self,
        shape: Shape,
        *,
        dtype: str = "float16",
        device: str = "cuda",
        kv_tokens: int,
        page_tokens: int = 16,
        longest_tokens: int = 8192,
        most_tokens: int = 8192,
        graphs: bool = True,
        seed: int = 0,
    ) -> None:
        self.shape = shape
        self.dtype = DTYPES[dtype]
        self.device = device
        self.on_card = device.startswith("cuda")
        self.kv_tokens = kv_tokens
        self.page_tokens = page_tokens
        self.most_tokens = most_tokens
        self.graphs = graphs
        self.processors = torch.cuda.get_device_properties(device).multi_processor_count if self.on_card else 4
        torch.manual_seed(seed)
        self.model = Model(shape, self.dtype, device, longest_tokens, seed)
        self._random = random.Random(seed)
        self._executor: ModelExecutor | None = None
        self._runs = (WARMUPS, REPEATS) if self.on_card else (1, 2)

    # -- loops -----------------------------------------------------------------------------------

    def executor(
        self, *, contiguous: bool = False, most_rows: int = 256, most_tokens: int | None = None
    ) -> ModelExecutor:
        """The loop on an empty cache; the cache of the one before is given back first."""
        self._executor = None
        gc.collect()
        if self.on_card:
            torch.cuda.empty_cache()
        if contiguous:
            cache: Cache = ContiguousCache(self.shape, self.kv_tokens, self.dtype, self.device)
        else:
            pages = self.kv_tokens // self.page_tokens
            cache = PagedCache(self.shape, pages, self.page_tokens, self.dtype, self.device)
        self._executor = ModelExecutor(
            self.model,
            cache,
            most_rows=most_rows,
            most_tokens=most_tokens or self.most_tokens,
            processors=self.processors,
            graphs=self.graphs,
        )
        return self._executor

    def _loop(self) -> ModelExecutor:
        return self._executor if self._executor is not None else self.executor()

    def load(self, seconds: float) -> None:
        """Keep the card busy, so that its clocks are those of work."""
        if not self.on_card:
            return
        weight = self.model.layers[0].gate_up
        x = torch.randn(4096, weight.shape[1], dtype=self.dtype, device=self.device)
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            for _ in range(20):
                torch.nn.functional.linear(x, weight)
            torch.cuda.synchronize()

    def warm(self) -> None:
        """Compile what every iteration needs, and let the clocks rise, before anything is timed."""
        loop = self._loop()
        for point in (Point((300,)), Point((300,) * 40), Point((64,), ((64, 0),)), Point((), ((64, 64),))):
            loop.run(self.work(point))
        self.load(2.0)

    # -- jobs ------------------------------------------------------------------------------------

    def time(self, job: Job) -> Timed:
        if job.point is not None:
            return self._step(job.point)
        if job.stage == "copy":
            return self._copy()
        if job.stage == "attention":
            return self._attention(job)
        return self._product(job)

    def _step(self, point: Point) -> Timed:
        times, hosts = self._loop().repeat(self.work(point), *self._runs, whole=_HOST_RUNS)
        return Timed(times, host_s=max(0.0, median(hosts)))

    def work(self, point: Point) -> Work:
        """An iteration of *point* on pages drawn anywhere from the whole cache."""
        pages: list[int] = []

        def page() -> int:
            if not pages:  # used up: rows share pages from here on, which is for timing only
                pages.extend(
                    self._random.sample(range(self.kv_tokens // self.page_tokens), self.kv_tokens // self.page_tokens)
                )
            return pages.pop()

        def row(new: int, cached: int) -> Row:
            tokens = [self._random.randrange(self.shape.vocab) for _ in range(new)]
            return Row(tokens, cached, [page() for _ in range(-(-(new + cached) // self.page_tokens))])

        return Work([row(1, n - 1) for n in point.lens], [row(new, cached) for new, cached in point.chunks])

    def _copy(self) -> Timed:
        size = COPY_BYTES if self.on_card else 1 << 20
        source = torch.empty(size // 2, dtype=torch.float16, device=self.device).normal_()
        target = torch.empty_like(source)
        times = self._timed(lambda: target.copy_(source))
        return Timed(times, 2 * size)

    def _attention(self, job: Job) -> Timed:
        """Every layer's attention in one go, each on its own part of the cache; the time of one is returned."""
        loop, shape = self._loop(), self.shape
        layout = loop.upload(self.work(Point((job.context_tokens,) * job.rows)))
        rows = layout[0]
        attend = DecodeAttention(
            rows,
            shape.heads,
            shape.kv_heads,
            shape.head_dim,
            self.page_tokens,
            device=self.device,
            processors=self.processors,
            config=find_config(job.config),
        )
        q = torch.randn(rows, shape.heads, shape.head_dim, device=self.device).to(self.dtype)
        out = torch.empty_like(q)
        inputs, cache = loop.inputs, loop.cache

        def run() -> None:
            attend.plan(inputs.lens)
            for layer in range(shape.layers):
                attend(q, cache.k[layer], cache.v[layer], inputs.tables, inputs.lens, out)

        times = [t / shape.layers for t in self._timed(run, captured=True)]
        return Timed(times, attention_bytes(shape, job.rows, job.context_tokens))

    def _product(self, job: Job) -> Timed:
        """The same product of up to eight layers in a row, so that none finds its weights in the L2 cache."""
        weights = [getattr(layer, job.product) for layer in self.model.layers[:8]]
        x = torch.randn(job.tokens, weights[0].shape[1], device=self.device).to(self.dtype)

        def run() -> None:
            for weight in weights:
                torch.nn.functional.linear(x, weight)

        times = [t / len(weights) for t in self._timed(run, captured=True)]
        return Timed(times, product_bytes(self.shape, job.product, job.tokens))

    def _timed(self, run: Any, captured: bool = False) -> list[float]:
        """Seconds of each of ten runs after three; *captured*: as a CUDA graph, launches left out."""
        warmups, repeats = self._runs
        times = []
        if not self.on_card:
            for _ in range(warmups + repeats):
                started = time.perf_counter()
                run()
                times.append(time.perf_counter() - started)
            return times[warmups:]
        if captured:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                run()
                run()
            torch.cuda.current_stream().wait_stream(side)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                run()
            run = graph.replay
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for _ in range(warmups + repeats):
            start.record()
            run()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end) / 1e3)
        return times[warmups:]
