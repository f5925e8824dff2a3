"""Named bundles of a scheduler and a memory with their options; any part can be overridden."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from simbatch.deployment import Deployment
from simbatch.errors import UsageError, unknown
from simbatch.memory.base import Memory
from simbatch.memory.paged import PagedMemory
from simbatch.scheduler import Continuous, Scheduler, VllmV1


@dataclass(frozen=True)
class System:
    """What `--system NAME` stands for."""

    name: str
    about: str
    scheduler: str
    memory: str
    limits: Mapping[str, Any] = field(default_factory=dict)
    """Limits in which it differs from vLLM's defaults."""
    whole_prompts: bool = False
    """Does it compute whole prompts and know no token budget?"""
    null_block: bool = False
    """Does one block of the KV memory hold nothing (vLLM V1)?"""

    def deployment_defaults(self, deployment: Deployment) -> dict[str, Any]:
        """Arguments of *deployment* that the system sets where the user did not."""
        return {}


SYSTEMS = {
    system.name: system
    for system in (
        System(
            "vllm",
            "vLLM V1: one token budget, chunked prefill, blocks on demand, newest preempted",
            scheduler="vllm",
            memory="paged",
            null_block=True,
        ),
    )
}
DEFAULT_SYSTEM = "vllm"

SCHEDULERS: dict[str, Callable[[], Scheduler]] = {
    "vllm": VllmV1,
    "continuous": Continuous,
}

MEMORIES: dict[str, Callable[[int, int], Memory]] = {
    "paged": lambda tokens, block_size: PagedMemory(tokens // block_size, block_size),
}


def find_system(name: str) -> System:
    if name not in SYSTEMS:
        raise unknown("system", name, SYSTEMS)
    return SYSTEMS[name]


def make_scheduler(name: str) -> Scheduler:
    """A built-in by its name, or ``module:Class`` made without arguments."""
    if name in SCHEDULERS:
        return SCHEDULERS[name]()
    if ":" not in name:
        raise unknown("scheduler", name, SCHEDULERS, "module:Class is accepted too.")
    made = load(name, "scheduler")()
    if not isinstance(made, Scheduler):
        raise UsageError(f"{name} is not a scheduler. Derive its class from simbatch.Scheduler or simbatch.Continuous.")
    return made


def make_memory(name: str, kv_tokens: int, block_size: int) -> Memory:
    """A built-in by its name, or ``module:Class`` made with (kv_tokens, block_size)."""
    if name in MEMORIES:
        return MEMORIES[name](kv_tokens, block_size)
    if ":" not in name:
        raise unknown("memory", name, MEMORIES, "module:Class is accepted too.")
    made: Memory = load(name, "memory")(kv_tokens, block_size)
    return made


def load(path: str, kind: str) -> Any:
    """The object that ``module:Name`` stands for; the current folder counts as a place for modules."""
    module_name, _, attribute = path.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise UsageError(
            f"{kind} {path!r}: the module {module_name!r} cannot be imported ({error}). "
            "Give module:Class with a module in the current folder or one that is installed."
        ) from error
    if not hasattr(module, attribute):
        raise UsageError(f"{kind} {path!r}: {module_name} has no {attribute!r}. Give module:Class with a class it has.")
    return getattr(module, attribute)
