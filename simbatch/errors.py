"""What goes wrong, said once and with help.

Library code raises these; only the command line catches and prints them. A message has two
sentences: what is wrong and where, then what to do about it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


class SimbatchError(Exception):
    """Something failed while the work was done. The command line exits with 1."""

    exit_code = 1


class UsageError(SimbatchError):
    """The user asked for something that cannot be: a wrong name, option, unit or file. Exits with 2."""

    exit_code = 2


class PolicyError(SimbatchError):
    """A scheduler or a memory broke its contract: says which one, when, and what it did."""


def unknown(kind: str, name: str, known: Iterable[str], also: str = "") -> UsageError:
    """An error for a *name* that no *kind* has: nearest names first, then all, then what *else* is accepted."""
    import difflib

    names = sorted(known)
    lower = {n.lower(): n for n in names}
    near = [lower[n] for n in difflib.get_close_matches(name.lower(), lower, n=3, cutoff=0.5)]
    hint = f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(names)}."
    return UsageError(f"unknown {kind} {name!r}. {hint}{' ' + also if also else ''}")
