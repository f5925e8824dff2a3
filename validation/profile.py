"""A profile card: a readable file with what was fitted, from what, and how good it is; and the timing it stands for."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from simbatch.deployment import GPU, find_gpu
from simbatch.errors import UsageError
from simbatch.timing import Iteration
from simbatch.units import to_ps
from validation.fit import Fit, Piecewise
from validation.form import Coefficients, features
from validation.shape import Shape, find_shape
from validation.work import Load, Sums, bucket_of

FORMAT = "simbatch-validation-profile-1"
FORMS = ("piecewise", "formula")
_UNITS = {
    "overhead_us": "µs an iteration",
    "layer_us": "µs a layer",
    "weight_efficiency": "share of bandwidth",
    "flop_efficiency": "share of the dense peak",
    "kv_efficiency": "share of bandwidth",
    "row_ns": "ns a decoding row and layer, padding included",
    "pair_efficiency": "share of the dense peak",
    "smooth_power": "exponent of the smooth maximum",
}


def card_of(fit: Fit, shape: Shape, machine: dict[str, Any]) -> dict[str, Any]:
    """The card of *fit*, ready for JSON. Says `fake` where a stand-in was measured."""
    return {
        "format": FORMAT,
        "kind": "fake" if machine.get("fake") else "measured",
        "gpu": machine["gpu"],
        "model": shape.name,
        "layers": shape.layers,
        "full_layers": shape.full_layers,
        "machine": machine,
        "source": f"python -m validation measure on {machine['device']}: {fit.n} iterations",
        "formula": fit.coefficients.describe(),
        "units": _UNITS,
        "pinned": fit.pinned,
        "piecewise": asdict(fit.piecewise),
        "host_ms": fit.host_s * 1e3,
        "error": {"fitted": _errors(fit.fitted), "held_back": _errors(fit.held_back)},
        "range": {name: list(span) for name, span in fit.range.items()},
        "n": fit.n,
    }


def _errors(by_form: dict[str, Any]) -> dict[str, Any]:
    return {form: asdict(errors) for form, errors in by_form.items()}


def write_card(card: dict[str, Any], path: Path) -> None:
    path.write_text(json.dumps(card, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


class Profile:
    """A timing of simbatch from a *card*: its *form* is ``piecewise`` (this card) or ``formula`` (moves).

    *host_ms* is added to every iteration; the card's own host time is not part of it unless asked for.
    """

    def __init__(self, card: dict[str, Any], form: str = "piecewise", *, host_ms: float = 0.0) -> None:
        if card.get("format") != FORMAT:
            raise UsageError(f"this is no profile of format {FORMAT}. Make one with python -m validation fit.")
        if form not in FORMS:
            raise UsageError(f"a profile has no form {form!r}. Known: {', '.join(FORMS)}.")
        self.card = card
        self.form = form
        self.host_ms = host_ms
        self.shape: Shape = find_shape(card["model"], card["layers"])
        self.gpu: GPU = find_gpu(card["gpu"])
        self.coefficients = Coefficients(**card["formula"])
        table = card["piecewise"]
        self.piecewise = Piecewise(
            tuple(table["knots_tokens"]), tuple(table["base_s"]), table["context_s"], table["pair_s"]
        )

    @classmethod
    def load(cls, path: Path, form: str = "piecewise") -> Profile:
        """Raises UsageError where *path* holds no profile."""
        try:
            return cls(json.loads(path.read_text(encoding="utf-8")), form)
        except (OSError, ValueError) as error:
            raise UsageError(
                f"{path} cannot be read as a profile ({error}). Make one with python -m validation fit."
            ) from error

    def seconds(self, load: Load) -> float:
        """Of one iteration, host time left out."""
        if self.form == "piecewise":
            return float(self.piecewise.seconds([load])[0])
        return float(features([load], self.shape, self.gpu).seconds(self.coefficients)[0])

    def progression(self, iteration: Iteration) -> tuple[int, int, int]:
        return max(1, to_ps(self.seconds(sums_of(iteration)) + self.host_ms / 1e3)), 0, 1

    def describe(self) -> dict[str, Any]:
        return {"kind": self.card["kind"], "name": "validation-profile", "form": self.form, "host_ms": self.host_ms}


def sums_of(iteration: Iteration) -> Sums:
    """What the engine tells a timing, with the batch padded as the loop pads it."""
    return Sums(
        tokens=iteration.tokens,
        bucket=bucket_of(iteration.sequences - iteration.prefill_sequences),
        context_tokens=iteration.context_tokens - iteration.prefill_context_tokens,
        prefill_tokens=iteration.prefill_tokens,
        prefill_sequences=iteration.prefill_sequences,
        pairs=iteration.prefill_pairs,
    )
