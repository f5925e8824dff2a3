"""A profile card: what was fitted, from what, and how far off it is.

Cards are TOML that people read: every coefficient with its unit, interval and origin; the range of
every input that was measured; errors on runs that the fit had not seen. What a card says is never
more than what it was made from: used outside its range, or for another model or GPU, it says so.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from simbatch.checks import real, shown, text, whole
from simbatch.errors import UsageError, unknown
from simbatch.timing.coefficients import ABOUT, UNITS, Coefficients

ORIGINS = ("fitted", "pinned", "absent")
"""*fitted* to the data; *pinned*: the data cannot tell it, so it is taken from elsewhere; *absent*: nothing in
the data depends on it, so it has the usual value."""
KINDS = ("measured", "estimated")
RANGES = ("tokens", "sequences", "context_tokens", "prefill_tokens", "waiting")
"""Inputs whose measured range a card states."""
_RECKONED = ("step", "moved", "moved_gpu")
_ERRORS = ("median", "p95", "worst", *_RECKONED)


@dataclass(frozen=True)
class Estimate:
    """A coefficient: its value, where 90 % of resampled fits lie, and where it comes from."""

    value: float
    low: float
    high: float
    origin: str = "fitted"


@dataclass(frozen=True)
class CardError:
    """Relative errors of predicted times, on runs that the fit had not seen where there were several."""

    median: float
    p95: float
    worst: float
    worst_at: str = ""
    how: str = ""
    """How it was validated, and of what."""
    step: float = 0.0
    """Error of a whole run's time that a user should reckon with: what goes through to every result."""
    moved: float = 0.15
    """The same for another model on this GPU."""
    moved_gpu: float = 0.25
    """The same for another GPU."""


@dataclass(frozen=True)
class ProfileCard:
    """Everything in a card's file."""

    name: str
    about: str
    gpu: str
    """Row of the GPU table."""
    engine: str
    date: str
    source: str
    coefficients: dict[str, Estimate]
    error: CardError
    kind: str = "measured"
    """*measured*, or *estimated*: moved from another card by physics alone."""
    model: str = ""
    """Row of the model table; empty where several models were fitted together."""
    tensor_parallel_size: int = 0
    """0 where several were."""
    dtype: str = "bfloat16"
    licence: str = ""
    iterations: int = 0
    """Measured iterations, or steps built from parts."""
    runs: int = 0
    front_end_ms: float | None = None
    """Client to engine, before the first iteration can see a request: no part of the iteration time."""
    measured: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Range of each input, lowest and highest."""
    table: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """`tokens` and `factor`: by how much the part that depends on tokens was off the formula there."""
    notes: tuple[str, ...] = ()

    def values(self) -> Coefficients:
        return Coefficients.of({name: found.value for name, found in self.coefficients.items()})


def read_card(path: Path | str) -> ProfileCard:
    """The card in a file. Raises UsageError with the file's name where it is none."""
    path = Path(path)
    try:
        written = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path}: the profile cannot be read ({error}). Give a .toml file as `fit -o` writes it."
        ) from error
    return parse_card(written, str(path))


def parse_card(written: str, place: str) -> ProfileCard:
    """The card *written*; *place* is what errors call it."""
    try:
        found = tomllib.loads(written)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{place}: not a profile card ({error}). Give a .toml file as `fit -o` writes it.") from error
    try:
        return _card(found)
    except UsageError as error:
        raise UsageError(f"{place}: {error}") from error
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise UsageError(
            f"{place}: not a profile card ({type(error).__name__}: {error}). "
            "It needs name, about, gpu, engine, date, source, [coefficients] and [error]."
        ) from error


def _card(found: dict[str, Any]) -> ProfileCard:
    _known(found, ProfileCard, "field of a profile card")
    _known(found["error"], CardError, "field of [error]")
    for name in found["coefficients"]:
        if name not in UNITS:
            raise unknown("timing coefficient", name, UNITS)
    for name, entry in found["coefficients"].items():
        if entry.get("unit", UNITS[name]) != UNITS[name]:
            raise UsageError(f"{name} is in {shown(entry['unit'])}. Give it in {UNITS[name]}: no card is converted.")
    coefficients = {
        name: Estimate(**{key: value for key, value in entry.items() if key != "unit"})
        for name, entry in found["coefficients"].items()
    }
    for name, estimate in coefficients.items():
        if estimate.origin not in ORIGINS:
            raise unknown(f"origin of {name}", estimate.origin, ORIGINS)
    simple = {
        key: value for key, value in found.items() if key not in ("coefficients", "error", "measured", "table", "notes")
    }
    table = {key: tuple(float(item) for item in value) for key, value in found.get("table", {}).items()}
    if table and (set(table) != {"tokens", "factor"} or len(table["tokens"]) != len(table["factor"])):
        raise UsageError(
            "[table] needs tokens and factor of the same length. Write one factor for each number of tokens."
        )
    card = ProfileCard(
        **simple,
        coefficients=coefficients,
        error=CardError(**found["error"]),
        measured={name: (float(low), float(high)) for name, (low, high) in found.get("measured", {}).items()},
        table=table,
        notes=tuple(found.get("notes", ())),
    )
    _check(card)
    card.values()
    return card


def _check(card: ProfileCard) -> None:
    """Raises UsageError for a field of the wrong kind, and for numbers that no fit has."""
    for name in ("name", "about", "gpu", "engine", "date", "source", "model", "dtype", "licence"):
        text(name, getattr(card, name))
    if card.kind not in KINDS:
        raise unknown("kind", str(card.kind), KINDS)
    for name in ("tensor_parallel_size", "iterations", "runs"):
        whole(name, getattr(card, name), least=0)
    numbers = {f"error.{name}": getattr(card.error, name) for name in _ERRORS}
    for name, one in card.coefficients.items():
        numbers |= {name: one.value, f"{name}.low": one.low, f"{name}.high": one.high}
    numbers |= {f"measured.{name}": value for name, ends in card.measured.items() for value in ends}
    numbers |= {f"table.{name}": value for name, values in card.table.items() for value in values}
    if card.front_end_ms is not None:
        numbers["front_end_ms"] = card.front_end_ms
    for name in _RECKONED:
        if real(name, getattr(card.error, name)) >= 1:
            raise UsageError(
                f"error.{name} is {getattr(card.error, name)}: iterations that may take no time at all are no timing. "
                "Give a share below 1."
            )
    for name, value in numbers.items():
        least_is_out = name.startswith("table.")
        if not 0 <= real(name, value) < math.inf or (least_is_out and not value):
            raise UsageError(f"{name} is {value}. Give a number {'above 0' if least_is_out else 'from 0'}.")


def _known(given: Mapping[str, Any], of: type, kind: str) -> None:
    names = [item.name for item in fields(of)]
    for name in given:
        if name not in names:
            raise unknown(kind, name, names)


def card_text(card: ProfileCard) -> str:
    """The card as its file; `parse_card` reads it back equal to six digits."""
    lines = [f"# {card.about}"]
    for item in fields(ProfileCard):
        value = getattr(card, item.name)
        if item.name in ("coefficients", "error", "measured", "table", "notes") or value == item.default:
            continue
        lines.append(f"{item.name} = {_toml(value)}")
    if card.notes:
        lines += ["notes = [", *(f"    {_toml(note)}," for note in card.notes), "]"]
    lines += ["", "[error]", "# relative, of predicted times"]
    lines += [f"{item.name} = {_toml(getattr(card.error, item.name))}" for item in fields(CardError)]
    lines += ["", "[measured]", "# lowest and highest of each input"]
    lines += [f"{name} = [{_toml(low)}, {_toml(high)}]" for name, (low, high) in card.measured.items()]
    lines += ["", "[coefficients]"]
    for name, found in card.coefficients.items():
        numbers = ", ".join(f"{key} = {_toml(getattr(found, key))}" for key in ("value", "low", "high"))
        lines.append(f"# {ABOUT[name]}")
        lines.append(f"{name} = {{ {numbers}, unit = {_toml(UNITS[name])}, origin = {_toml(found.origin)} }}")
    if card.table:
        lines += ["", "[table]", "# the part that depends on tokens, measured over formula"]
        lines += [f"{name} = [{', '.join(_toml(value) for value in values)}]" for name, values in card.table.items()]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
        return f'"{escaped}"'
    if isinstance(value, float):
        digits = f"{value:.6g}"
        return digits if any(mark in digits for mark in ".e") else f"{digits}.0"
    return str(value)
