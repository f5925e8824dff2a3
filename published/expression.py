"""Arithmetic on what runs gave, as scenario files write it: ``vllm.running / oracle.running``.

Numbers, + - * / // % **, brackets, comparisons, the names of runs, steps, lengths and deployments with a dot before
the quantity, and a few functions. Nothing else is understood, so a file can compute and do nothing more.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from simbatch import UsageError


def harmonic(n: float) -> float:
    """1 + 1/2 + … + 1/n: the longest of n exponential lengths over their mean."""
    return sum(1 / k for k in range(1, round(n) + 1))


def erlang_c(servers: float, load: float) -> float:
    """Probability of waiting in M/M/c with *servers* at *load* (of each)."""
    c, offered = round(servers), servers * load
    all_busy = offered**c / math.factorial(c) / (1 - load)
    return all_busy / (sum(offered**k / math.factorial(k) for k in range(c)) + all_busy)


FUNCTIONS: Mapping[str, Callable[..., float]] = {
    **{name: getattr(math, name) for name in ("floor", "ceil", "sqrt", "exp", "log")},
    **{function.__name__: function for function in (min, max, abs, round, harmonic, erlang_c)},
}
_BINARY: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LtE: operator.le,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.Gt: operator.gt,
}


def evaluate(text: str | float, look_up: Callable[[str, str | None], float]) -> float:
    """The number that *text* comes to; *look_up* gives a name's value, or that of a quantity of it.

    Raises UsageError for what is not understood.
    """
    if isinstance(text, int | float):
        return float(text)
    try:
        return float(_value(ast.parse(text, mode="eval").body, look_up))
    except SyntaxError as error:
        raise UsageError(
            f"{text!r} is no arithmetic ({error.msg}). Write such as vllm.running / oracle.running."
        ) from error
    except _NotUnderstood as error:
        raise UsageError(f"{text!r} has {error}. Numbers, names, brackets and {', '.join(FUNCTIONS)} are.") from error


class _NotUnderstood(Exception):
    """What a piece of the text is, as the message says it."""


def _value(node: ast.expr, look_up: Callable[[str, str | None], float]) -> float:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        left, right = _value(node.left, look_up), _value(node.right, look_up)
        if right == 0 and isinstance(node.op, ast.Div | ast.FloorDiv | ast.Mod):
            raise UsageError(f"{ast.unparse(node)!r} divides by zero. Look at the runs that it names.")
        found: float = _BINARY[type(node.op)](left, right)
        return found
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, look_up)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _BINARY:
        holds = _BINARY[type(node.ops[0])](_value(node.left, look_up), _value(node.comparators[0], look_up))
        return float(holds)
    if isinstance(node, ast.Name):
        return look_up(node.id, None)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return look_up(node.value.id, node.attr)
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in FUNCTIONS
        and not node.keywords
    ):
        return FUNCTIONS[node.func.id](*(_value(argument, look_up) for argument in node.args))
    raise _NotUnderstood(f"{ast.unparse(node)!r}, which is not understood here")
