"""What fits, side by side: one deployment with one of its arguments varied.

The same question asked of several GPUs, models, numbers of GPUs, formats or lengths. A value that cannot
be deployed is reported in its place, and the others are still answered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from simbatch.answers.capacity import Capacity, capacity
from simbatch.deployment import Deployment
from simbatch.errors import SimbatchError, UsageError, unknown

_WHOLE = ("tensor_parallel_size", "length_tokens")
VARIED: Mapping[str, str] = {
    "gpu": "gpu",
    "model": "model",
    "tp": "tensor_parallel_size",
    "tensor_parallel_size": "tensor_parallel_size",
    "dtype": "dtype",
    "quantization": "quantization",
    "kv_cache_dtype": "kv_cache_dtype",
    "length": "length_tokens",
    "vllm_version": "vllm_version",
}
"""What may be varied, and the argument that it is."""


class CapacityTable:
    """A `Capacity` for each value of *varied*, in the order in which they were asked for."""

    def __init__(self, varied: str, length_tokens: int | None) -> None:
        self.varied = varied
        self.length_tokens = length_tokens
        """The same for all rows; None: each has its own longest request."""
        self.rows: dict[str, Capacity] = {}
        self.failed: dict[str, str] = {}
        """What a value that cannot be deployed says about it."""

    def metrics(self) -> dict[str, Any]:
        """The JSON object: `rows` holds what `capacity` gives for each value, `failed` the messages of the rest."""
        return {
            "varied": self.varied,
            "rows": {value: found.metrics() for value, found in self.rows.items()},
            "failed": dict(self.failed),
        }

    def __repr__(self) -> str:
        from simbatch.show.capacity_table import capacity_table_text

        return capacity_table_text(self)

    def _repr_html_(self) -> str:
        return f'<pre style="max-height: 80vh; overflow: auto; line-height: 1.2">{escape(repr(self))}</pre>'


def parse_comparison(text: str) -> tuple[str, list[str]]:
    """(what is varied, its values) of ``gpu=h100,h200,a100-80``. Raises UsageError for anything else.

    >>> parse_comparison("gpu=h100,h200")
    ('gpu', ['h100', 'h200'])
    """
    name, _, values = text.partition("=")
    name = name.strip().replace("-", "_").lower()
    if name not in VARIED:
        raise unknown("thing to compare", name, VARIED, "Write for example gpu=h100,h200.")
    found = [value.strip() for value in values.split(",") if value.strip()]
    if not found:
        raise UsageError(f"{text!r} names no values to compare. Write for example {name}=A,B.")
    if len(set(found)) < len(found):
        raise UsageError(f"{text!r} names a value twice. Leave one of the two out.")
    return name, found


def capacities(
    varied: str,
    values: Sequence[str | int],
    *,
    length_tokens: int | None = None,
    ask: Callable[..., Capacity] = capacity,
    **arguments: Any,
) -> CapacityTable:
    """What fits for each of *values* of *varied* (see `VARIED`); *arguments* are those of `Deployment`.

    Sequences have *length_tokens*, which must be given for lengths to be comparable where models differ.
    Raises UsageError for what cannot be varied, and what the first value raised when all of them failed.
    """
    if varied not in VARIED:
        raise unknown("thing to compare", varied, VARIED)
    argument = VARIED[varied]
    table = CapacityTable(varied, length_tokens)
    errors: list[SimbatchError] = []
    for value in values:
        own = {argument: _whole(varied, value) if argument in _WHOLE else value}
        length = own.pop("length_tokens", length_tokens)
        try:
            here = Deployment(**{**arguments, **own})
            table.rows[str(value)] = ask(here, length_tokens=length)
        except SimbatchError as error:
            errors.append(error)
            table.failed[str(value)] = str(error)
    if not table.rows:
        raise errors[0]
    return table


def _whole(varied: str, value: str | int) -> int:
    try:
        return int(value)
    except ValueError:
        raise UsageError(f"{varied} {value!r} is not a whole number. Write for example {varied}=1,2,4.") from None
