"""The profiles that come with the package, and which of them is the best for a deployment.

The best is one of the same model on the same GPU; else the GPU's own, moved to the model by physics;
else that of the nearest GPU. A run that names no timing gets the best one of its GPU, and the roofline
where there is none: from another GPU a profile is moved only when it is asked for by name. Whoever uses
one is told which it is and how far off it may be.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from math import log

from simbatch.deployment import GPU, Deployment, find_gpu
from simbatch.errors import unknown
from simbatch.timing.card import ProfileCard, parse_card
from simbatch.timing.profile import HERE, MOVED_GPU, distance


@cache
def list_cards() -> tuple[ProfileCard, ...]:
    """Every bundled card, by name."""
    folder = files("simbatch.timing").joinpath("profiles")
    found = sorted((item for item in folder.iterdir() if item.name.endswith(".toml")), key=lambda item: item.name)
    return tuple(parse_card(item.read_text(encoding="utf-8"), item.name) for item in found)


def find_card(name: str) -> ProfileCard:
    """The bundled card of that *name*. Raises UsageError with the nearest names."""
    for card in list_cards():
        if card.name == name.lower():
            return card
    raise unknown("profile", name, [card.name for card in list_cards()], "A .toml file is accepted too.")


def best_card(deployment: Deployment) -> ProfileCard | None:
    """The bundled card that says most about *deployment*; None where there are no cards at all."""
    return min(list_cards(), key=lambda card: _rank(card, deployment), default=None)


def fitting_card(deployment: Deployment) -> ProfileCard | None:
    """The bundled card to use for *deployment* unasked: the best that is of its GPU; None where none is."""
    card = best_card(deployment)
    return card if card is not None and card.gpu == deployment.card.name else None


def _rank(card: ProfileCard, deployment: Deployment) -> tuple[float, ...]:
    """Smaller is better: same model and GPU, same GPU, how unlike the GPUs are; cards of several models go first."""
    found = distance(card, deployment)
    same_gpu = card.gpu == deployment.card.name
    unlike = 0.0 if same_gpu else _unlike(find_gpu(card.gpu), deployment.card)
    sharded = abs(log((card.tensor_parallel_size or 1) / deployment.tensor_parallel_size))
    return (found != HERE, found == MOVED_GPU and not same_gpu, unlike, card.model != "", sharded)


def _unlike(one: GPU, other: GPU) -> float:
    """How different two GPUs are: another family first, then arithmetic against bandwidth, then size."""
    family = one.name.split("-")[0] != other.name.split("-")[0]
    ridge = abs(log(one.ridge_flop_per_byte() / other.ridge_flop_per_byte()))
    return family + ridge + 0.3 * abs(log(one.bandwidth_bytes_per_s / other.bandwidth_bytes_per_s))
