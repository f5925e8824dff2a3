"""Which kind of file is it? Csv, jsonl, a benchmark's result, or something that holds no requests."""

from __future__ import annotations

from simbatch.errors import UsageError
from simbatch.trace.container import Content
from simbatch.trace.formats.servegen import ClientSource, is_client
from simbatch.trace.json_rows import JsonlSource, find_run, parse
from simbatch.trace.rows import CsvSource, Source

_DERIVE = "Make a trace of it with: simbatch trace derive"
_TEXTS = ("conversations", "conversation", "messages", "prompt", "text_input", "data")
"""Keys under which collections of conversations keep their text."""


def open_rows(content: Content, seed: int = 0) -> Source:
    """The rows of *content*; *seed* draws the requests of a file that holds only their distribution.

    Raises UsageError where it is neither csv nor jsonl, or holds texts and no lengths.
    """
    probe = Source(content)
    lines, first = probe.start()
    opening = first.lstrip()[:1]
    if opening == "[":
        _refuse_array(probe)
    if not first and not content.broken:
        raise UsageError(f"{content.name} holds comments only. Add a line of column names and one line per request.")
    if is_client(content):
        return ClientSource(content, seed)
    if opening != "{":
        second = next((line for line in lines if line.strip()), "")
        if isinstance(parse(second), dict):
            raise UsageError(
                f"{probe.where}: this is not a JSON object, but the line after it is. Correct it, or remove the line."
            )
        return CsvSource(content)
    found = find_run(content)
    if found is not None:
        return found
    source = JsonlSource(content)
    if not source.header and not content.broken:
        raise UsageError(
            f"{source.where}: no JSON object on a line of its own. Write one object per line (jsonl), one per request."
        )
    texts = [name for name in _TEXTS if name in source.header]
    if source.format.ours and texts and "prompt_tokens" not in source.header:
        raise UsageError(f"{source.where}: {texts[0]!r} holds texts, but a trace holds lengths. {_DERIVE}.")
    return source


def _refuse_array(probe: Source) -> None:
    where = probe.where
    start = probe.content.data[:100_000]
    if any(f'"{name}"'.encode() in start for name in _TEXTS):
        raise UsageError(f"{where} opens a JSON array of texts, but a trace holds lengths. {_DERIVE}.")
    raise UsageError(
        f"{where} opens a JSON array, but one object per line is expected (jsonl). "
        "Write each element on a line of its own, without the brackets."
    )
