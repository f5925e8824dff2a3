"""From a file on disk to text: gzip or plain by content, and what is no text at all.

The name of a file says nothing here: people rename, and tools decompress behind their backs. What
comes out is UTF-8 text, the hash of the bytes as they lie on disk, and whether the end is missing.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import stat
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from simbatch.errors import UsageError

_GZIP = b"\x1f\x8b"
_LFS = b"version https://git-lfs"
_OTHERS = (
    (b"PAR1", "a parquet file"),
    (b"PK\x03\x04", "a zip archive (xlsx is one too)"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd"),
    (b"\xfd7zXZ\x00", "compressed with xz"),
    (b"BZh9", "compressed with bzip2"),
    (b"\xff\xfe", "text in UTF-16"),
    (b"\xfe\xff", "text in UTF-16"),
)
_PIECE_BYTES = 1 << 20
MOST_BYTES = 4 << 30


class SupportsRead(Protocol):
    """What bytes can be read from."""

    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True)
class Content:
    """The text of a file, all of it unless *broken*."""

    name: str
    data: bytes
    """UTF-8, checked."""
    sha256: str
    path: Path
    broken: bool = False
    """The gzip stream ends too early; the line it ends in is left out of *data*."""

    def lines(self) -> Iterator[str]:
        """Lines with their ends, which may be those of any system."""
        return io.TextIOWrapper(io.BytesIO(self.data), encoding="utf-8-sig", newline="")

    @property
    def ends_with_newline(self) -> bool:
        return self.data.endswith((b"\n", b"\r"))


def read_content(path: Path) -> Content:
    """The text of the file at *path*. Raises UsageError where there is none, or where it is not text."""
    name = path.name
    try:
        raw = _read(path)
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file. Give the path of a csv or jsonl file.") from None
    except IsADirectoryError:
        raise UsageError(f"{path} is a folder. Give the path of a csv or jsonl file in it.") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{path} cannot be read ({why}). Give a file that you may read.") from None
    sha256 = hashlib.sha256(raw).hexdigest()
    data, broken = _gunzip(raw, name) if raw.startswith(_GZIP) else (raw, False)
    _refuse_what_is_no_text(data, name, broken)
    return Content(name, data, sha256, path, broken)


def _read(path: Path) -> bytes:
    """The bytes of a file, or of what comes through a pipe. Raises UsageError for what may never end."""
    kind = path.stat().st_mode
    if stat.S_ISDIR(kind):
        raise IsADirectoryError
    if not (stat.S_ISREG(kind) or stat.S_ISFIFO(kind)):
        raise UsageError(f"{path} is a device, not a file. Give the path of a csv or jsonl file.")
    pieces: list[bytes] = []
    with path.open("rb") as file:
        _collect(file, pieces, path.name)
    return b"".join(pieces)


def _collect(file: SupportsRead, pieces: list[bytes], name: str) -> None:
    """Adds what *file* holds to *pieces*, up to a size that no trace has. Raises UsageError beyond it."""
    left = MOST_BYTES
    while piece := file.read(_PIECE_BYTES):
        pieces.append(piece)
        left -= len(piece)
        if left < 0:
            raise UsageError(
                f"{name} holds more than {MOST_BYTES / 2**30:g} GiB of text, and a trace is read whole. "
                "Give a part of it: a million requests take some 20 MB."
            )


def _gunzip(raw: bytes, name: str) -> tuple[bytes, bool]:
    """What a gzip stream holds, and whether it breaks off."""
    pieces: list[bytes] = []
    stream = gzip.GzipFile(fileobj=io.BytesIO(raw))
    try:
        _collect(stream, pieces, name)
    except EOFError:
        return _whole_lines(raw), True
    except (OSError, zlib.error) as error:
        whole_lines = b"".join(pieces).count(b"\n")
        raise UsageError(
            f"{name}: the gzip stream is damaged somewhere after line {whole_lines} ({error}). "
            "Fetch or make the file again; nothing in it can be trusted."
        ) from None
    return b"".join(pieces), False


def _whole_lines(raw: bytes) -> bytes:
    """All whole lines that a gzip stream without its end still gives."""
    pieces: list[bytes] = []
    rest = raw
    while rest:
        member = zlib.decompressobj(wbits=31)
        try:
            pieces.append(member.decompress(rest))
        except zlib.error:
            break
        rest = member.unused_data
    data = b"".join(pieces)
    return data[: data.rfind(b"\n") + 1]


def _refuse_what_is_no_text(data: bytes, name: str, broken: bool) -> None:
    if data.startswith(_LFS):
        raise UsageError(
            f"{name} is a Git LFS pointer, not the data: the repository was cloned without its large files. "
            "Run git lfs pull in it, then give the file again."
        )
    for magic, what in _OTHERS:
        if data.startswith(magic):
            raise UsageError(f"{name} is {what}, not csv or jsonl. Save it as csv or jsonl in UTF-8 (gzip is fine).")
    try:
        text = data.decode("utf-8-sig") if b"\0" not in data else None
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(
            f"{name} line {line}: byte {data[error.start]:#04x} is not UTF-8 text. "
            "Save the file as csv or jsonl in UTF-8."
        ) from None
    if text is None:
        line = data.count(b"\n", 0, data.index(b"\0")) + 1
        raise UsageError(
            f"{name} line {line}: a zero byte, so this is not text. Give a csv or jsonl file (gzip is fine)."
        )
    if not text.strip() and not broken:
        raise UsageError(f"{name} is empty. A trace has a line of column names, then one line per request.")
