"""What the core needs to be compiled by mypyc, and is the same without: see `hatch_build.py`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import GetSetDescriptorType
from typing import TYPE_CHECKING, Any, TypeVar

Class = TypeVar("Class")

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr as mypyc_attr
else:

    def mypyc_attr(**_: bool) -> Callable[[Class], Class]:
        """Tells the compiler about a class, and does nothing when the program runs."""
        return lambda compiled: compiled


def state_of(made: object) -> tuple[dict[str, Any], object]:
    """What a copy of *made* needs: attributes kept by a compiled class, and those that Python keeps.

    An attribute of a compiled class that a derived one hides is not kept by the compiled one.
    """
    compiled = {
        name: getattr(made, name)
        for name in getattr(type(made), "__mypyc_attrs__", ())
        if isinstance(inspect.getattr_static(type(made), name), GetSetDescriptorType) and hasattr(made, name)
    }
    return compiled, object.__getstate__(made)


def give_state(made: object, state: tuple[dict[str, Any], Any]) -> None:
    """Make *made* what `state_of` told."""
    compiled, python = state
    attributes, slots = python if isinstance(python, tuple) else (python, None)
    for part in (compiled, attributes, slots):
        for name, value in (part or {}).items():
            setattr(made, name, value)
