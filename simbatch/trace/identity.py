"""Which tokens of a prompt are the same as which others: prefix identity, in one canonical form.

A prompt is a row of segments (stream, start, length). Two tokens are the same exactly if stream and
index are, so a prompt can share another's beginning, or quote an answer: output token k of request R
is ("o" + R, k). What nobody else shares is the request's own stream, "r:" + its id. Files may say it
in three forms, one per row; `segments_of` reads each of them as segments, `misfit` finds rows whose
form does not fit their prompt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from simbatch.trace.columns import NOT_GIVEN

Segment = tuple[str, int, int]
"""Stream, index of the first token in it, tokens."""
Segments = tuple[Segment, ...]

FORMS = ("prefix_group", "hash_ids", "segments")
"""The columns that say which form a row has."""


def own(id: str, tokens: int) -> Segment:
    """*tokens* of the prompt of request *id* that are like nobody else's."""
    return (f"r:{id}", 0, tokens)


def segments_of(columns: Mapping[str, Sequence[Any]], row: int, id: str, prompt_tokens: int) -> Segments | None:
    """The prompt of *row* as segments, in order and as long as the prompt; None: all of it is its own.

    *columns* are those of prefix identity under their names in files, checked by `misfit`. The
    first `prefix_tokens` of a group are shared; hash ids stand for blocks of `hash_block_tokens`,
    the last of which may be cut short by the prompt's end; what a form leaves open is the prompt's own.
    """
    given = _given(columns, row)
    if not given:
        return None
    if given[0] == "segments":
        return tuple((stream, start, length) for stream, start, length in columns["segments"][row])
    if given[0] == "prefix_group":
        shared = columns["prefix_tokens"][row]
        found = [(f"g:{columns['prefix_group'][row]}", 0, shared)]
    else:
        block = columns["hash_block_tokens"][row]
        hashes = columns["hash_ids"][row]
        shared = min(block * len(hashes), prompt_tokens)
        found = [(f"h:{name}", 0, min(block, shared - k * block)) for k, name in enumerate(hashes)]
    found.append(own(id, prompt_tokens - shared))
    return tuple(segment for segment in found if segment[2])


def misfit(columns: Mapping[str, Sequence[Any]], prompt_tokens: Sequence[int]) -> tuple[int, str] | None:
    """The first row whose identity does not fit it, and why, as the middle of a sentence."""
    if any(name in columns for name in (*FORMS, "prefix_tokens")):
        for row, tokens in enumerate(prompt_tokens):
            why = _misfit(columns, row, tokens)
            if why:
                return row, why
    return None


def _given(columns: Mapping[str, Sequence[Any]], row: int) -> list[str]:
    """The forms that a row has."""
    return [name for name in FORMS if name in columns and columns[name][row]]


def _misfit(columns: Mapping[str, Sequence[Any]], row: int, prompt_tokens: int) -> str:
    given = _given(columns, row)
    shared = columns["prefix_tokens"][row] if "prefix_tokens" in columns else NOT_GIVEN
    if shared > 0 and "prefix_group" not in given:
        return f"prefix_tokens is {shared}, but there is no prefix_group to share them with"
    if not given:
        return ""
    if len(given) > 1:
        return f"{given[0]} and {given[1]} both say what the prompt shares, but a row has one form of prefix identity"
    if given[0] == "prefix_group":
        if shared == NOT_GIVEN:
            return "prefix_group has no prefix_tokens, but they say how much of the prompt is shared"
        return "" if shared <= prompt_tokens else f"prefix_tokens is {shared}, but the prompt has {prompt_tokens}"
    if given[0] == "hash_ids":
        block = columns["hash_block_tokens"][row] if "hash_block_tokens" in columns else NOT_GIVEN
        return _misfit_of_hashes(columns["hash_ids"][row], block, prompt_tokens)
    return _misfit_of_segments(columns["segments"][row], prompt_tokens)


def _misfit_of_hashes(hashes: Sequence[Any], block: int, prompt_tokens: int) -> str:
    if block == NOT_GIVEN:
        return "hash_ids have no hash_block_tokens, but they say how much of the prompt each one stands for"
    odd = next((name for name in hashes if type(name) is not int and not isinstance(name, str)), None)
    if odd is not None or None in hashes:
        return f"hash_ids holds {odd!r}, but whole numbers or texts are expected"
    most = -(-prompt_tokens // block)
    if len(hashes) > most:
        blocks = f"block{'s' if most > 1 else ''} of {block}"
        return f"there are {len(hashes)} hash_ids, but a prompt of {prompt_tokens} tokens has {most} {blocks}"
    return ""


def _misfit_of_segments(segments: Sequence[Any], prompt_tokens: int) -> str:
    odd = next((segment for segment in segments if not isinstance(segment, tuple) or len(segment) != 3), None)
    if odd is None:
        streams, starts, lengths = zip(*segments, strict=True)
        fits = set(map(type, streams)) == {str} and set(map(type, (*starts, *lengths))) == {int}
        if fits and min(starts) >= 0 and min(lengths) >= 1:
            tokens = sum(lengths)
            wrong = tokens != prompt_tokens
            return f"segments cover {tokens} tokens, but the prompt has {prompt_tokens}" if wrong else ""
        odd = next(segment for segment in segments if not _is_segment(*segment))
    shown = list(odd) if isinstance(odd, tuple) else odd
    return f"segments holds {shown!r}, but [stream, start, length] such as ['p',0,16] is expected"


def _is_segment(stream: Any, start: Any, length: Any) -> bool:
    return type(stream) is str and type(start) is int and type(length) is int and start >= 0 and length >= 1
