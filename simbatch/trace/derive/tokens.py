"""Counting tokens with a real tokenizer: one that comes in a wheel, or a file or folder of the user's.

No BOS, no EOS and no chat template are counted: a trace holds what was said.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from simbatch.errors import UsageError, unknown
from simbatch.trace.derive.sources import EXTRA

_MISTRAL = {
    "mistral-v1": ("tokenizer.model.v1", "Mistral v1 SentencePiece (32k vocabulary)"),
    "mistral-v2": ("mistral_instruct_tokenizer_240216.model.v2", "Mistral v2 SentencePiece (32k vocabulary)"),
    "mistral-v3": ("mistral_instruct_tokenizer_240323.model.v3", "Mistral v3 SentencePiece (32k vocabulary)"),
    "tekken": ("tekken_240911.json", "Mistral tekken 240911 (131k vocabulary)"),
}


@dataclass(frozen=True)
class Tokenizer:
    """Counts tokens; *about* is how a trace names it."""

    about: str
    count: Callable[[str], int]


def find_tokenizer(name: str) -> Tokenizer:
    """A tokenizer by name, or at a path: a folder with tokenizer.json, or a file .json or .model. Raises UsageError."""
    if name in _MISTRAL:
        return _mistral(*_MISTRAL[name])
    path = Path(name)
    if path.is_dir():
        found = [file for file in (path / "tokenizer.json", path / "tokenizer.model") if file.is_file()]
        if not found:
            raise UsageError(f"{path} has neither tokenizer.json nor tokenizer.model. Give a folder with one of them.")
        path = found[0]
    if not path.is_file():
        raise unknown("tokenizer", name, _MISTRAL, "A file tokenizer.json or tokenizer.model, or its folder, too.")
    about = f"{path.parent.name}/{path.name}" if path.parent.name else path.name
    return _sentencepiece(path, about) if path.suffix == ".model" else _huggingface(path, about)


def _mistral(file: str, about: str) -> Tokenizer:
    package = _import("mistral_common", "mistral-common")
    path = Path(package.__file__).parent / "data" / file
    if not path.is_file():
        raise UsageError(f"this version of mistral-common has no {file}. Install mistral-common 1.5 or later.")
    if path.suffix != ".json":
        return _sentencepiece(path, about)
    tekken = _import("mistral_common.tokens.tokenizers.tekken", "mistral-common").Tekkenizer.from_file(str(path))
    return Tokenizer(about, lambda text: len(tekken.encode(text, bos=False, eos=False)))


def _sentencepiece(path: Path, about: str) -> Tokenizer:
    model = _import("sentencepiece", "sentencepiece").SentencePieceProcessor(model_file=str(path))
    return Tokenizer(about, lambda text: len(model.encode(text)))


def _huggingface(path: Path, about: str) -> Tokenizer:
    try:
        tokenizer = _import("tokenizers", "tokenizers").Tokenizer.from_file(str(path))
    except UsageError:
        raise
    except Exception as error:  # tokenizers raises plain exceptions for a file that it cannot read
        raise UsageError(f"{path} is no tokenizer ({error}). Give the tokenizer.json of a model.") from None
    return Tokenizer(about, lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids))


def _import(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise UsageError(f"this tokenizer needs {package}, which is not installed. {EXTRA}.") from None
