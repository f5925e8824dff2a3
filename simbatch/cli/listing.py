"""`simbatch list`: what is known by name, as a table or as a JSON array of objects.

A kind is a function that gives rows as objects, units in their names, and the columns to show.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from simbatch.cli.verb import Verb, option, section

Rows = list[dict[str, Any]]


@click.command(
    "list",
    cls=Verb,
    example="simbatch list gpus",
    help="Show what is known by name. KIND is gpus, models, traces, systems or profiles.",
    short_help="Show the gpus, models, traces, systems or profiles known by name.",
)
@click.argument("kind", metavar="KIND")
@section(
    "Output",
    option("--json", "as_json", is_flag=True, help="a JSON array instead of a table"),
)
def list_verb(kind: str, as_json: bool) -> None:
    """The verb `list`."""
    from simbatch.cli import terminal
    from simbatch.errors import unknown
    from simbatch.show.text import table

    if kind not in KINDS:
        raise unknown("kind", kind, KINDS)
    rows, columns = KINDS[kind]
    found = rows()
    if as_json:
        terminal.write_json(found)
    elif found:
        terminal.write(table(list(columns), [[show(row) for show in columns.values()] for row in found]))
    if not found:
        terminal.note(f"No {kind} come with this version.")


def _gpus() -> Rows:
    from simbatch.deployment import list_gpus
    from simbatch.deployment.gpu import GIB

    return [
        {
            "name": gpu.name,
            "memory_gib": gpu.memory_bytes / GIB,
            "bandwidth_gb_per_s": gpu.bandwidth_bytes_per_s / 1e9,
            "bf16_tflop_per_s": gpu.bf16_flop_per_s / 1e12,
            "fp8_tflop_per_s": None if gpu.fp8_flop_per_s is None else gpu.fp8_flop_per_s / 1e12,
            "link_gb_per_s": None if gpu.link_bytes_per_s is None else gpu.link_bytes_per_s / 1e9,
            "ridge_flop_per_byte": gpu.ridge_flop_per_byte(),
            "usd_per_hour_low": gpu.usd_per_hour_low,
            "usd_per_hour_high": gpu.usd_per_hour_high,
            "price_date": gpu.price_date,
            "memory_certainty": gpu.memory_certainty,
            "spec_certainty": gpu.spec_certainty,
            "price_certainty": gpu.price_certainty,
            "notes": gpu.notes,
        }
        for gpu in list_gpus()
    ]


def _models() -> Rows:
    from simbatch.deployment import find_model, list_models

    shapes = [find_model(name) for row in list_models() for name in row.name.split(" / ")]
    return [
        {
            "name": shape.name,
            "params": shape.params or None,
            "active_params": None if shape.unusable else shape.active_params,
            "layers": shape.layers,
            "kv_bytes_per_token_bf16": 2 * shape.kv_elements_per_token() or None,
            "max_model_len": shape.max_model_len,
            "quantization": shape.quantization,
            "unusable": shape.unusable or None,
            "notes": list(shape.notes),
            "source": shape.source,
        }
        for shape in shapes
    ]


def _traces() -> Rows:
    from simbatch.trace import list_traces

    return list_traces()


def _profiles() -> list[dict[str, Any]]:
    from simbatch.timing.bundled import list_cards

    return [
        {
            "name": card.name,
            "gpu": card.gpu,
            "model": card.model or None,
            "kind": card.kind,
            "engine": card.engine,
            "error_median": card.error.median,
            "error_worst": card.error.worst,
            "about": card.about,
            "source": card.source,
        }
        for card in list_cards()
    ]


def _systems() -> Rows:
    from simbatch.systems import SYSTEMS

    return [
        {"name": system.name, "scheduler": system.scheduler, "memory": system.memory, "about": system.about}
        for system in SYSTEMS.values()
    ]


def _figure(name: str, scale: float = 1.0, places: int = 0) -> Callable[[dict[str, Any]], str]:
    return lambda row: "-" if row[name] is None else f"{row[name] / scale:,.{places}f}"


def _text(name: str) -> Callable[[dict[str, Any]], str]:
    return lambda row: str(row[name] or "")


def _price(row: dict[str, Any]) -> str:
    low, high = row["usd_per_hour_low"], row["usd_per_hour_high"]
    return "-" if low is None else f"{low:.2f} to {high:.2f} ({row['price_date']})"


KINDS: dict[str, tuple[Callable[[], Rows], dict[str, Callable[[dict[str, Any]], str]]]] = {
    "gpus": (
        _gpus,
        {
            "GPU": _text("name"),
            "GiB": _figure("memory_gib", places=1),
            "GB/s": _figure("bandwidth_gb_per_s"),
            "TFLOP/s bf16": _figure("bf16_tflop_per_s"),
            "fp8": _figure("fp8_tflop_per_s"),
            "FLOP/byte": _figure("ridge_flop_per_byte"),
            "example USD/hour": _price,
        },
    ),
    "models": (
        _models,
        {
            "model": _text("name"),
            "params (10^9)": _figure("params", 1e9, 2),
            "active": _figure("active_params", 1e9, 2),
            "KV bytes/token": _figure("kv_bytes_per_token_bf16"),
            "longest request": _figure("max_model_len"),
            "": lambda row: "cannot be deployed" if row["unusable"] else "",
        },
    ),
    "traces": (
        _traces,
        {
            "trace": _text("name"),
            "requests": _figure("rows"),
            "prompt tokens": _figure("prompt_tokens_mean", places=1),
            "output tokens": _figure("output_tokens_mean", places=1),
            "requests/s": _figure("rate_per_s", places=2),
        },
    ),
    "systems": (
        _systems,
        {
            "system": _text("name"),
            "scheduler": _text("scheduler"),
            "memory": _text("memory"),
            "what it stands for": _text("about"),
        },
    ),
    "profiles": (
        _profiles,
        {
            "profile": _text("name"),
            "GPU": _text("gpu"),
            "model": _text("model"),
            "error, median": _figure("error_median", places=3),
            "what it is": _text("about"),
        },
    ),
}
