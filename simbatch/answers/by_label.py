"""What fits by the label of the box: (memory - weights) ÷ one sequence's KV cache, in GB of 10^9 bytes.

The arithmetic that people do before they rent. It leaves out what an engine needs besides and takes
every sequence to hold its full length; `simbatch.answers.capacity` sets what an engine gets beside it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from simbatch.deployment import Deployment

GB = 10**9


@dataclass(frozen=True)
class Division:
    """One way to do it. All of a replica's GPUs together."""

    about: str
    memory_gb: float
    weights_gb: float
    sequence_gb: float
    is_exact: bool = True
    """Or are weights and sequence rounded to two digits?"""

    @property
    def quotient(self) -> float:
        return (self.memory_gb - self.weights_gb) / self.sequence_gb

    @property
    def sequences(self) -> int:
        """Whole sequences; none where the weights alone are too large."""
        return max(0, math.floor(self.quotient))


def sequence_bytes(deployment: Deployment, length_tokens: int) -> int:
    """KV cache of a sequence of *length_tokens* on all GPUs together, copies counted."""
    return length_tokens * deployment.kv_bytes_per_token_per_gpu * deployment.tensor_parallel_size


def divisions(deployment: Deployment, length_tokens: int) -> tuple[Division, Division, Division]:
    """With weights and sequence rounded as people round them, exactly, and with the share that the engine may use."""
    label_gb = float(deployment.card.memory_nominal_gb * deployment.tensor_parallel_size)
    weights_gb = deployment.weights_bytes / GB
    sequence_gb = sequence_bytes(deployment, length_tokens) / GB
    share = deployment.engine_share
    return (
        Division("rounded", label_gb, _two_digits(weights_gb), _two_digits(sequence_gb), is_exact=False),
        Division("exact", label_gb, weights_gb, sequence_gb),
        Division(f"exact, {share:g} of the memory", share * label_gb, weights_gb, sequence_gb),
    )


def _two_digits(value: float) -> float:
    return float(f"{value:.2g}")
