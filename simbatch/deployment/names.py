"""Which row of the catalogue a model's name stands for.

People paste what their server was started with: an organisation, endings such as ``-Instruct``
or ``-2501``, a quantization. What does not change the shape is left out step by step, and a name
answers only while exactly one row is left: two are an error that names both.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from simbatch.errors import UsageError, unknown

_QUANTIZATION_ENDINGS = (
    (r"fp8(?:-dynamic|-block|-static)?", "fp8"),
    (r"(?:quantized\.)?w8a8(?:-fp8)?", "int8"),
    (r"(?:quantized\.)?w8a16", "int8"),
    (r"(?:quantized\.)?w4a16", "int4"),
    (r"gptq-int8|int8", "int8"),
    (r"awq(?:-int4)?|gptq(?:-int4)?|int4", "int4"),
    (r"(?:unsloth-)?bnb-4bit", "bitsandbytes"),
    (r"mxfp4", "mxfp4"),
)
_VARIANTS = {"instruct", "it", "chat", "base", "hf"}
_RELEASE = re.compile(r"\d{4}")
_VERSION = re.compile(r"v\d+\.\d+")
_SIZE = re.compile(r"(?:\d+x)?a?\d+(?:\.\d+)?[bem]")


def match_model(name: str, rows: Sequence[str]) -> tuple[str, str, str | None]:
    """(row, the part of a row "A / B" that was meant, quantization by the ending or None) for *name*.

    Raises UsageError where no row, or more than one, is left.
    """
    words, quantization = _words(name)
    parts = [(row, part) for row in rows for part in row.split(" / ")]
    for level in (_same, _same_but_release, _same_but_version, _same_but_size):
        left = [(row, part) for row, part in parts if level(words, _words(part)[0])]
        if len({row for row, _ in left}) == 1:
            return (*left[0], quantization)
        if left:
            raise UsageError(
                f"the model {name!r} may be {' or '.join(part for _, part in left)}. Write one of these names."
            )
    known = [part for _, part in parts]
    raise unknown("model", name, known, "A folder with a Hugging Face config.json is accepted too.")


def _words(name: str) -> tuple[list[str], str | None]:
    """Lower-case pieces of *name* that can matter, and the quantization that its ending says."""
    bare = re.sub(r"\(.*?\)", "", name).strip().rsplit("/", 1)[-1]
    bare = re.sub(r"[\s_-]+", "-", bare.lower()).strip("-").removeprefix("meta-")
    quantization = None
    for ending, meaning in _QUANTIZATION_ENDINGS:
        shorter = re.sub(rf"-(?:{ending})$", "", bare)
        if shorter != bare:
            bare, quantization = shorter, meaning
            break
    return [word for word in bare.split("-") if word not in _VARIANTS], quantization


def _same(asked: list[str], row: list[str]) -> bool:
    return "".join(asked) == "".join(row)


def _same_but_release(asked: list[str], row: list[str]) -> bool:
    return _same(*_without_one_sided(_RELEASE, asked, row))


def _same_but_version(asked: list[str], row: list[str]) -> bool:
    asked, row = _without_one_sided(_RELEASE, asked, row)
    shorter, short_row = _without_one_sided(_VERSION, asked, row)
    # In "Mistral-7B-v0.3" the version is an ending; in "DeepSeek-V3.2" it is the name.
    return any(_SIZE.fullmatch(word) for word in shorter) and _same(shorter, short_row)


def _same_but_size(asked: list[str], row: list[str]) -> bool:
    """ "Phi-4" for Phi-4-14B: the row's only size left out of a name that says which generation it is."""
    asked, row = _without_one_sided(_RELEASE, asked, row)
    family = row[:]
    while family and _SIZE.fullmatch(family[-1]):
        family.pop()
    return len(family) < len(row) and any(c.isdigit() for c in "".join(asked)) and _same(asked, family)


def _without_one_sided(kind: re.Pattern[str], asked: list[str], row: list[str]) -> tuple[list[str], list[str]]:
    """Both names without words of *kind*, unless both have one: then these must agree."""
    in_asked = [word for word in asked[1:] if kind.fullmatch(word)]
    in_row = [word for word in row[1:] if kind.fullmatch(word)]
    if in_asked and in_row:
        return asked, row
    return [w for w in asked if w not in in_asked], [w for w in row if w not in in_row]
