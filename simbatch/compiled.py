"""What the core needs to be compiled by mypyc, and is the same without: see `hatch_build.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

Class = TypeVar("Class")

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr as mypyc_attr
else:

    def mypyc_attr(**_: bool) -> Callable[[Class], Class]:
        """Tells the compiler about a class, and does nothing when the program runs."""
        return lambda compiled: compiled


def state_of(made: object) -> dict[str, Any]:
    """All attributes of *made*: a compiled class has no `__dict__`, one in Python that derives from it has both."""
    compiled = getattr(type(made), "__mypyc_attrs__", ())
    return {name: getattr(made, name) for name in compiled if hasattr(made, name)} | getattr(made, "__dict__", {})
