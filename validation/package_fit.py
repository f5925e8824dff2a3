"""The same measurements through the package's own fit: a card that ``simbatch run --timing FILE`` takes.

`validation.fit` judges the job itself, with the loop's padding and the forms of its own; this hands the rows over.
The model is told with the layers that were run, so a cut model is a small model and not a slow large one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from simbatch.deployment import Deployment, ModelShape
from simbatch.deployment.catalogue import find_model
from validation.measurements import Row
from validation.shape import Shape


def columns(rows: Sequence[Row]) -> dict[str, list[float]]:
    """Steps among *rows* that a fit may see, by the names under which a timing of simbatch sees an iteration."""
    steps = [row for row in rows if row.stage == "step" and not row.held_back]
    counts = [row.counts for row in steps]
    new = [c.prefill_tokens for c in counts]
    cached = [sum(n for _, n in c.chunks) for c in counts]
    return {
        "tokens": [c.tokens for c in counts],
        "sequences": [c.sequences for c in counts],
        "prefill_tokens": [*new],
        "prefill_sequences": [c.prefill_sequences for c in counts],
        "context_tokens": [c.context_tokens + n + k for c, n, k in zip(counts, new, cached, strict=True)],
        "prefill_context_tokens": [n + k for n, k in zip(new, cached, strict=True)],
        "prefill_pairs": [c.pairs for c in counts],
        "duration_s": [row.duration_s for row in steps],
    }


def model_as_run(shape: Shape) -> ModelShape:
    """The model of simbatch's table with the layers that were run."""
    whole = find_model(shape.name)
    if shape.layers == whole.layers:
        return whole
    missing = (whole.layers - shape.layers) * shape.layer_params
    return replace(
        whole,
        name=f"{whole.name}, {shape.layers} layers",
        layers=shape.layers,
        kv_layers=shape.layers,
        params=whole.params - missing,
    )


def package_fit(rows: Sequence[Row], shape: Shape, machine: dict[str, Any], weight_efficiency: float) -> Any:
    """What `simbatch.answers.fit.fit` makes of *rows*: an object with `card` and `save`.

    Raises UsageError where the rows cannot be fitted.
    """
    import pandas as pd

    from simbatch.answers.fit import fit

    fake = bool(machine.get("fake"))
    versions = ", ".join(f"{name} {machine[name]}" for name in ("torch", "triton", "cuda") if machine.get(name))
    return fit(
        pd.DataFrame(columns(rows)),
        Deployment(model_as_run(shape), gpu=machine["gpu"], kv_tokens=machine.get("kv_tokens")),
        pins={"weight_efficiency": weight_efficiency},
        about={
            "kind": "estimated" if fake else "measured",
            "about": f"{'FAKE, nothing was measured: ' if fake else ''}the validation loop, one iteration at a time",
            "engine": f"simbatch validation loop ({versions or 'stand-in'})",
            "source": f"python -m validation measure on {machine['device']}",
        },
    )
