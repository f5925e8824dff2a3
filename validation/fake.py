"""`FakeGPU`: stands in for a card, so that everything but the card itself runs in tests.

Its truth is the formula of `validation.form` with known coefficients, noise on every run, and a kink:
iterations above 512 tokens cost a little more, as where a real engine leaves its captured graphs. What
it returns is marked fake in every file, and is no measurement.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from simbatch.deployment import GPU
from validation.form import Coefficients, features
from validation.jobs import REPEATS, WARMUPS, Job, attention_bytes, product_bytes
from validation.measure import Timed
from validation.shape import Shape
from validation.work import Counts, Work

KINK_TOKENS = 512
COPY_EFFICIENCY = 0.9
PRODUCT_LATENCY_S = 3.5e-6
HOST_S = 6e-4


@dataclass(frozen=True)
class FakeRan:
    gpu_s: float
    tokens: list[int]


class FakeGPU:
    """*card* running *shape*; *noise* is the relative spread of a run, *kink* what is added above 512 tokens."""

    virtual = True

    def __init__(
        self,
        shape: Shape,
        card: GPU,
        *,
        truth: Coefficients | None = None,
        noise: float = 0.005,
        kink: float = 0.03,
        seed: int = 0,
    ) -> None:
        self.shape = shape
        self.card = card
        self.truth = truth or Coefficients()
        self.noise = noise
        self.kink = kink
        self._random = random.Random(seed)

    def seconds(self, counts: Counts) -> float:
        """Without noise."""
        seconds = float(features([counts], self.shape, self.card).seconds(self.truth)[0])
        return seconds * (1 + self.kink * (counts.tokens > KINK_TOKENS))

    def timed(self, counts: Counts) -> float:
        """One run: a little different each time, and slow now and then as real runs are."""
        slow = 4 * self.noise * (self._random.random() < 0.02)
        return self.seconds(counts) * (1 + abs(self._random.gauss(0, self.noise)) + slow)

    def run(self, work: Work) -> FakeRan:
        counts = work.counts()
        return FakeRan(self.timed(counts), [0] * counts.sequences)

    # -- what `measure` asks of a card -------------------------------------------------------------

    def time(self, job: Job) -> Timed:
        """Runs of *job*. The copy reaches 90 % of the peak, attention 95 % after 17 µs and 34 ns for each row."""
        bandwidth = self.card.bandwidth_bytes_per_s
        if job.point is not None:
            counts = job.point.counts
            times = [self.timed(counts) for _ in range(WARMUPS + REPEATS)][WARMUPS:]
            return Timed(times, host_s=HOST_S * (1 + abs(self._random.gauss(0, 0.1))))
        if job.stage == "copy":
            size = 4 << 30
            seconds = size / (COPY_EFFICIENCY * bandwidth)
        elif job.stage == "attention":
            size = attention_bytes(self.shape, job.rows, job.context_tokens)
            seconds = 17e-6 + 0.034e-6 * job.rows + size / (0.95 * bandwidth)
            seconds *= 1.1 if "x2" in job.config else 1.0
        else:
            size = product_bytes(self.shape, job.product, job.tokens)
            seconds = PRODUCT_LATENCY_S + size / (self.truth.weight_efficiency * bandwidth)
        return Timed([seconds * (1 + abs(self._random.gauss(0, self.noise))) for _ in range(REPEATS)], size)
