"""What happened to one request, as text: the parts of its latency in order of time, and what most of it is due to."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from simbatch.show.reasons import ADVICE, LONG, SHORT
from simbatch.show.text import WIDTH, percent, time


def explanation_text(found: dict[str, Any]) -> str:
    """The JSON object of `simbatch.answers.explain` for people; no line break at the end."""
    blocks = ("\n".join(part) for part in (_prose(_opening(found)), _parts(found), _prose(_why(found))))
    return "\n\n".join(filter(None, blocks))


def _prose(sentences: Iterator[str]) -> list[str]:
    return textwrap.wrap(" ".join(sentences), WIDTH)


def _opening(found: dict[str, Any]) -> Iterator[str]:
    asked = f"{_count(found['prompt_tokens'], 'prompt token')}, {_count(found['output_tokens'], 'output token')}"
    ran, queued = found["running_at_arrival"], found["waiting_at_arrival"]
    company = f"{ran:,} ran and {queued:,} waited" if ran or queued else "the engine was idle"
    came = f"Request {found['id']} ({asked}) came at {time(found['arrival_s'])}, when {company}."
    if "e2e_s" not in found:
        happened = {
            "refused": "It was refused: the limits or the KV memory can never hold it. The warnings say which.",
            "unfinished": "It had not finished when the run ended.",
        }
        yield f"{came} {happened[found['status']]}"
        return
    yield f"{came} It took {time(found['e2e_s'])}; {percent(found['faster_share'])} of all were faster."


def _parts(found: dict[str, Any]) -> Iterator[str]:
    for name, seconds in found.get("parts_s", {}).items():
        if seconds:
            share = percent(seconds / found["e2e_s"])
            yield f"{time(seconds):>9} {share:>9}  {LONG[name]}{_detail(name, found)}"


def _detail(name: str, found: dict[str, Any]) -> str:
    if name == "head_of_line":
        held = {cause: seconds for cause, seconds in found["behind_s"].items() if seconds}
        return f" (held back by: {', '.join(f'{SHORT[cause]} {time(s)}' for cause, s in held.items())})"
    if name == "preempted":
        times = _count(found["preemptions"], "time")
        return f" ({times}; {_count(found['recomputed_tokens'], 'token')} computed again)"
    if name == "running":
        each = "" if found["tpot_s"] is None else f", then {time(found['tpot_s'])} a token"
        return f" (first token {time(found['ttft_s'])} after it came{each})"
    return ""


def _why(found: dict[str, Any]) -> Iterator[str]:
    if "e2e_s" not in found:
        return
    if found["cause"] is None:
        yield "It never waited: it ran from its arrival to its end."
        return
    running = found["parts_s"]["running"]
    if found["cause_s"] >= running / 10:
        behind = " (its own and that behind others)" if found["behind_s"].get(found["cause"]) else ""
        yield (
            f"Most of its wait{behind} is put down to: {SHORT[found['cause']]}, {time(found['cause_s'])}. "
            f"{ADVICE[found['cause']]}"
        )
    else:
        yield (
            f"It waited little. It ran {percent(running / found['e2e_s'])} of its time: a faster GPU, or fewer in "
            "the batch beside it, would have shortened that."
        )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
