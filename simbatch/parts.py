"""The parts of a system by name: built-ins, and anybody's own as ``module:Class``."""

from __future__ import annotations

import importlib
import inspect
import math
import os
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from simbatch.checks import real, shown
from simbatch.errors import UsageError, unknown
from simbatch.memory import (
    ContiguousMemory,
    CopyOnWriteMemory,
    Memory,
    OwnPrefixMemory,
    PagedMemory,
    PrefixCachingMemory,
)
from simbatch.scheduler import (
    Continuous,
    Naive,
    Orca,
    Sarathi,
    Scheduler,
    Static,
    VllmV0,
    VllmV0Groups,
    VllmV1,
    VllmV1Of011,
)
from simbatch.timing import LinearTiming, RooflineTiming, Timing
from simbatch.timing.bundled import find_card, fitting_card, list_cards
from simbatch.timing.card import read_card
from simbatch.timing.profile import ProfileTiming

if TYPE_CHECKING:
    from simbatch.setup import Setup

SCHEDULERS: dict[str, Callable[[Setup], Scheduler]] = {
    "naive": lambda setup: Naive(),
    "static": lambda setup: Static(setup.options.batch_size),
    "orca": lambda setup: Orca(),
    "continuous": lambda setup: Continuous(),
    "vllm-v0": lambda setup: (VllmV0Groups if setup.samples else VllmV0)(
        setup.options.preemption_mode or "recompute", setup.swap_space_blocks
    ),
    "sarathi": lambda setup: Sarathi(setup.options.preemption_mode or "recompute", setup.swap_space_blocks),
    "vllm": lambda setup: VllmV1Of011() if setup.vllm_version == "0.11" else VllmV1(),
}

MEMORIES: dict[str, Callable[[Setup], Memory]] = {
    "paged": lambda setup: _paged(setup),
    "contiguous": lambda setup: ContiguousMemory(
        setup.kv_tokens,
        setup.options.reserve or "max",
        setup.options.placement or "buddy",
        setup.limits.max_model_len,
    ),
}


def _paged(setup: Setup) -> PagedMemory:
    size = setup.kv_tokens // setup.block_size, setup.block_size
    if not setup.options.enable_prefix_caching:
        return (CopyOnWriteMemory if setup.samples else PagedMemory)(*size, null_blocks=setup.null_blocks)
    return (PrefixCachingMemory if setup.shares else OwnPrefixMemory)(
        *size,
        null_blocks=setup.null_blocks,
        unhashed_first=setup.vllm_version != "0.11",
        lag=int(bool(setup.options.async_scheduling)),
    )


TIMINGS = ("roofline", "linear:base_ms=5,token_us=20,context_ns=20")


def make_scheduler(name: str, setup: Setup) -> Scheduler:
    """A built-in by its name, or ``module:Class`` made without arguments."""
    if name in SCHEDULERS:
        return SCHEDULERS[name](setup)
    return as_scheduler(_make(name, "scheduler", SCHEDULERS), name)


def make_memory(name: str, setup: Setup) -> Memory:
    """A built-in by its name, or ``module:Class`` made with (KV tokens, block size)."""
    if name in MEMORIES:
        return MEMORIES[name](setup)
    return as_memory(_make(name, "memory", MEMORIES, setup.kv_tokens, setup.block_size), name)


def make_timing(name: str, setup: Setup) -> Timing:
    """``roofline``, ``linear:…``, a bundled profile, a profile file, or ``module:Class`` made with the deployment."""
    if name.startswith("linear:"):
        return LinearTiming.parse(name.removeprefix("linear:"))
    if name == "roofline":
        if setup.deployment is None:
            raise UsageError(
                "the roofline needs a model and a GPU. Give a Deployment, or a timing such as linear:base_ms=5."
            )
        return RooflineTiming(setup.deployment)
    if name.endswith(".toml") or name in (card.name for card in list_cards()):
        if setup.deployment is None:
            raise UsageError(f"the profile {name} needs a model and a GPU. Give a Deployment.")
        return ProfileTiming(setup.deployment, read_card(name) if name.endswith(".toml") else find_card(name))
    if name == "linear":
        raise UsageError(f"the timing 'linear' has no coefficients. Write them after it, such as {TIMINGS[1]}.")
    return as_timing(_make(name, "timing", TIMINGS, setup.deployment), name)


def default_timing(setup: Setup) -> Timing:
    """The best bundled profile of the GPU, moved to the model where need be; the roofline where there is none."""
    if setup.deployment is None:
        raise UsageError(
            "times of iterations need a model and a GPU. Give a Deployment, or a timing such as linear:base_ms=5."
        )
    card = fitting_card(setup.deployment)
    return RooflineTiming(setup.deployment) if card is None else ProfileTiming(setup.deployment, card)


def as_scheduler(made: Any, name: str = "") -> Scheduler:
    """*made*, called *name* in the UsageError that is raised unless it is a scheduler."""
    if not isinstance(made, Scheduler):
        raise UsageError(
            f"{_called(made, name)} is not a scheduler. "
            "Derive its class from simbatch.Scheduler or simbatch.Continuous."
        )
    return made


def as_memory(made: Any, name: str = "") -> Memory:
    """*made*, called *name* in the UsageError that is raised unless it is a memory."""
    lacking = [method for method in _MEMORY_METHODS if not hasattr(made, method)]
    if lacking or inspect.isclass(made):
        why = f": it has no {', '.join(lacking)}" if lacking else ""
        raise UsageError(f"{_called(made, name)} is not a memory{why}. See simbatch.Memory for what it needs.")
    memory: Memory = made
    return memory


def as_timing(made: Any, name: str = "") -> Timing:
    """*made*, called *name* in the UsageError that is raised unless it is a timing."""
    if not hasattr(made, "progression") or inspect.isclass(made):
        raise UsageError(
            f"{_called(made, name)} is not a timing: it has no progression. See simbatch.Timing for what it needs."
        )
    timing: Timing = made
    return timing


def scaled_timing(timing: Timing, factor: float) -> Timing:
    """*timing* with every iteration longer by *factor*. Raises UsageError where it cannot be scaled."""
    if real("timing_scale", factor) == 1:
        return timing
    if not 0 < factor < math.inf:
        raise UsageError(f"timing_scale is {factor:g}. Give a number above 0, such as 1.1 for times 10 % longer.")
    scale = getattr(timing, "scaled", None)
    if scale is None:
        raise UsageError(
            f"{type(timing).__name__} cannot be scaled. Use a profile, or give it a method scaled(factor)."
        )
    longer: Timing = scale(factor)
    return longer


def _called(made: object, name: str) -> str:
    """What an error calls *made*: a class where an object was expected is the likely mistake."""
    if inspect.isclass(made):
        return f"{made.__name__}, the class and not an object such as {made.__name__}(),"
    return name or shown(made)


_MEMORY_METHODS = ("fits", "room", "take", "release", "join", "part", "end", "due", "grow", "headroom", "advance")


def find_named(path: str, kind: str, known: Iterable[str], form: str = "module:Class") -> Any:
    """What ``module:name`` stands for, which can be called; the current folder counts as a place for modules.

    Raises UsageError that calls it a *kind*, names those *known*, and says in which *form* others are given.
    """
    module_name, _, attribute = path.partition(":")
    if not module_name or not attribute:
        raise unknown(kind, path, known, f"{form} is accepted too.")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise UsageError(
            f"{kind} {path!r}: the module {module_name!r} cannot be imported ({error}). "
            f"Give {form} with a module in the current folder or one that is installed."
        ) from error
    found = getattr(module, attribute, None)
    if not callable(found):
        raise UsageError(
            f"{kind} {path!r}: {module_name} has no {form.partition(':')[2].lower()} {attribute!r}. Give {form}."
        )
    return found


def _make(path: str, kind: str, known: Iterable[str], *arguments: Any) -> Any:
    """An object of the class that ``module:Class`` stands for."""
    made = find_named(path, kind, known)
    attribute = path.partition(":")[2]
    try:
        inspect.signature(made).bind(*arguments)
    except TypeError as error:
        raise UsageError(
            f"{kind} {path!r}: it is made with {len(arguments)} arguments, which {attribute} does not take ({error}). "
            "Give the others a default, or pass an object from Python."
        ) from error
    return made(*arguments)
