"""The coefficients of the formula that iteration times are fitted with: what each one is, and in which unit.

Efficiencies are shares of a peak that are reached, so they move to another model or card; the
others are times that no peak explains: launching kernels, and the host's work. All are at least 0, so
every one of them makes an iteration with more to do longer or leaves it alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from simbatch.errors import UsageError, unknown


def _named(default: float, unit: str, about: str) -> Any:
    return field(default=default, metadata={"unit": unit, "about": about})


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficients:
    """Raises UsageError for a negative number and for an efficiency outside (0, 1.5]."""

    step_us: float = _named(0.0, "µs", "every iteration: host and launch")
    layer_us: float = _named(0.0, "µs a layer", "launch gaps and small kernels of every layer")
    eager_layer_us: float = _named(0.0, "µs a layer", "the same on top where graph_tokens is passed")
    weight_efficiency: float = _named(0.85, "share of bandwidth", "reached when weights are read")
    compute_efficiency: float = _named(0.7, "share of dense peak", "reached by matrix products")
    roof_power: float = _named(2.0, "1", "how sharply reading turns into arithmetic: (r^p + m^p)^(1/p)")
    kv_efficiency: float = _named(0.9, "share of bandwidth", "reached when decodes read the cache, many KV heads")
    kv_half_heads: float = _named(0.0, "KV heads a GPU", "at which half of kv_efficiency is left: h / (h + this)")
    kv_floor_tokens: float = _named(0.0, "tokens a sequence", "a shorter context costs as much as this one")
    kv_sequence_tokens: float = _named(
        0.0, "tokens a sequence", "each decode reads as if its context were so much longer"
    )
    mixed_kv_share: float = _named(0.0, "1", "by how much decodes take longer beside a prompt")
    prefill_efficiency: float = _named(0.5, "share of dense peak", "reached by attention of prompts")
    sequence_us: float = _named(0.0, "µs a sequence", "host and sampling")
    crowding_ns: float = _named(
        0.0, "ns a sequence, for each of them", "host work that grows with the square of the batch"
    )
    prompt_us: float = _named(0.0, "µs a prompt", "host, for each prompt or chunk in the iteration")
    waiting_ns: float = _named(0.0, "ns a waiting request", "host")
    all_reduce_us: float = _named(5.0, "µs an exchange", "between GPUs, whatever its size")
    link_efficiency: float = _named(0.55, "share of the link", "reached by an exchange")
    graph_tokens: float = _named(512.0, "tokens", "largest batch that runs as a recorded graph")

    def __post_init__(self) -> None:
        for name, value in self.as_dict().items():
            share = name.endswith("_efficiency")
            if share and not 0 < value <= 1.5:
                raise UsageError(f"timing coefficient {name} is {value}. It is a share of a peak: above 0, up to 1.5.")
            if name == "roof_power" and not value >= 1:
                raise UsageError(
                    f"timing coefficient roof_power is {value}. Give 1 (a sum) or more (towards a maximum)."
                )
            if not 0 <= value < math.inf:
                raise UsageError(f"timing coefficient {name} is {value}. Give a number, 0 or more.")

    def as_dict(self) -> dict[str, float]:
        return {item.name: getattr(self, item.name) for item in fields(self)}

    @classmethod
    def of(cls, given: Mapping[str, float]) -> Coefficients:
        """From names and numbers; what is left out keeps its default. Raises UsageError for an unknown name."""
        for name in given:
            if name not in UNITS:
                raise unknown("timing coefficient", name, UNITS)
        return cls(**given)


UNITS = {item.name: str(item.metadata["unit"]) for item in fields(Coefficients)}
ABOUT = {item.name: str(item.metadata["about"]) for item in fields(Coefficients)}
