"""Records out of JSON text of any size: an array, one object per line, or objects one after another.

Only as much is in memory as one record needs. A file that breaks off gives the records that are
whole, and is said to be broken; one that is wrong in the middle is refused, since nothing after that
can be trusted.
"""

from __future__ import annotations

import codecs
import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from simbatch.errors import UsageError

_PIECE_BYTES = 1 << 20
_MOST_CHARS = 1 << 28
"""No record is as long as this; a string that is never closed is."""
_BETWEEN = " \t\r\n,"


class JsonStream:
    """The records of a JSON file, read once; *on_read* is told how many bytes of it have been read."""

    def __init__(self, path: Path, on_read: Callable[[int], None] | None = None) -> None:
        self.path = path
        self.records = 0
        """Given out so far."""
        self.broken = False
        """The file breaks off inside a record, or its gzip stream has no end."""
        self._on_read = on_read

    def __iter__(self) -> Iterator[Any]:
        parse = json.JSONDecoder().raw_decode
        pieces = self._pieces()
        text, place, ended = "", 0, False
        opened = array = False
        while True:
            place = _after(text, place, _BETWEEN)
            if not opened and place < len(text):
                opened, array = True, text[place] == "["
                place += array
                continue
            if text[place : place + 1] == "]":
                return
            try:
                if place == len(text):
                    raise json.JSONDecodeError("no more text", text, place)
                record, end = parse(text, place)
                if end == len(text) and not ended:
                    raise json.JSONDecodeError("the record may go on", text, end)
            except json.JSONDecodeError as error:
                if not self._may_go_on(error, text) or len(text) - place > _MOST_CHARS:
                    raise self._wrong(error.msg) from None
                if ended:
                    self.broken = self.broken or place < len(text) or array
                    return
                more = next(pieces, None)
                ended = more is None
                text, place = text[place:] + (more or ""), 0
            except RecursionError:
                raise self._wrong("nested too deep") from None
            else:
                place = end
                self.records += 1
                yield record

    def _may_go_on(self, error: json.JSONDecodeError, text: str) -> bool:
        """Is what is wrong only that the text ends here?"""
        return error.msg.startswith("Unterminated string") or error.pos >= len(text) - 8

    def _wrong(self, what: str) -> UsageError:
        return UsageError(
            f"{self.path.name}: record {self.records + 1} is not JSON ({what}), after {self.records} that are. "
            "Fetch the file again; nothing after that place can be trusted."
        )

    def _pieces(self) -> Iterator[str]:
        """The text in pieces; ends early where a gzip stream does."""
        decode = codecs.getincrementaldecoder("utf-8-sig")().decode
        with self.path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            stream: IO[bytes] = gzip.GzipFile(fileobj=raw) if packed else raw  # type: ignore[assignment]
            while True:
                try:
                    piece = stream.read(_PIECE_BYTES)
                except EOFError:
                    self.broken = True
                    return
                except OSError as error:
                    raise UsageError(
                        f"{self.path.name}: the gzip stream is damaged after record {self.records} ({error}). "
                        "Fetch the file again."
                    ) from None
                if self._on_read is not None:
                    self._on_read(raw.tell())
                if not piece:
                    return
                try:
                    yield decode(piece)
                except UnicodeDecodeError as error:
                    raise UsageError(
                        f"{self.path.name}: byte {error.object[error.start]:#04x} after record {self.records} is not "
                        "UTF-8 text. Give JSON in UTF-8, or a parquet file."
                    ) from None


def _after(text: str, place: int, skipped: str) -> int:
    while place < len(text) and text[place] in skipped:
        place += 1
    return place
