"""A page from a server, or a file, in bounded time and memory whatever the other end does.

A request runs in a thread of its own: whoever drips a byte a minute is left to it when the time is up. What is
longer than the limit is refused as soon as that is known.
"""

from __future__ import annotations

import queue
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from simbatch.errors import SimbatchError, UsageError
from simbatch.version import __version__

MOST_BYTES = 8 * 2**20
"""Of a page. That of a busy server has well under one MiB."""
MOST_LOG_BYTES = 2**26
"""Of a file. The end of a longer log holds more lines than are kept."""
TIMEOUT_S = 10.0
_PIECE = 2**16


def is_address(text: str) -> bool:
    """Is it the address of a server rather than a file? ``host:8000`` is, where no such file exists."""
    if text.startswith(("http://", "https://")):
        return True
    host, _, port = text.partition("/")[0].rpartition(":")
    return bool(host) and port.isdecimal() and not Path(text).exists()


def address_of(text: str) -> str:
    """The whole address: http and /metrics unless said otherwise. Raises UsageError for what is none."""
    parts = urlsplit(text if "://" in text else f"http://{text}")
    try:
        usable = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable:
        raise UsageError(f"{text!r} is not an address. Write one such as http://localhost:8000/metrics.")
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/") or "/metrics", parts.query, ""))


def fetch(address: str, timeout_s: float = TIMEOUT_S, most_bytes: int = MOST_BYTES) -> str:
    """The page at *address*, within *timeout_s* in all. Raises SimbatchError when it does not come, or not whole."""
    answers: queue.Queue[bytes | Exception] = queue.Queue()
    deadline = time.monotonic() + timeout_s
    worker = threading.Thread(target=_fetch, args=(address, deadline, most_bytes, answers), daemon=True)
    worker.start()
    try:
        answer = answers.get(timeout=timeout_s + 0.5)
    except queue.Empty:
        answer = TimeoutError()
    if isinstance(answer, SimbatchError):
        raise answer
    if isinstance(answer, Exception):
        raise SimbatchError(f"{address}: {_why(answer, timeout_s)}") from answer
    return answer.decode("utf-8", errors="replace")


def _fetch(address: str, deadline: float, most_bytes: int, answers: queue.Queue[bytes | Exception]) -> None:
    try:
        answers.put(_read(address, deadline, most_bytes))
    except Exception as error:  # whatever it is, whoever waits for the answer has to know
        answers.put(error)


def _read(address: str, deadline: float, most_bytes: int) -> bytes:
    asking = urllib.request.Request(
        address,
        headers={"Accept": "text/plain", "Accept-Encoding": "identity", "User-Agent": f"simbatch/{__version__}"},
    )
    with urllib.request.urlopen(asking, timeout=max(0.01, deadline - time.monotonic())) as response:
        says = response.headers.get("Content-Length", "")
        if says.isdecimal() and int(says) > most_bytes:
            raise _too_long(address, most_bytes)
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise SimbatchError(
                f"{address}: the page comes compressed though it was asked for plain. Fetch it with curl."
            )
        pieces, size = [], 0
        while piece := response.read1(_PIECE):
            pieces.append(piece)
            size += len(piece)
            if size > most_bytes:
                raise _too_long(address, most_bytes)
            if time.monotonic() > deadline:
                raise TimeoutError
        if says.isdecimal() and size < int(says):
            raise SimbatchError(
                f"{address}: the page broke off after {size:,} of {int(says):,} bytes. Ask again, or look at it."
            )
        return b"".join(pieces)


def _too_long(address: str, most_bytes: int) -> SimbatchError:
    return SimbatchError(
        f"{address}: the answer is longer than {most_bytes / 2**20:.0f} MiB, which no page of metrics is. "
        "Give the address of /metrics itself."
    )


def _why(error: Exception, timeout_s: float) -> str:
    if isinstance(error, urllib.error.HTTPError):
        error.close()
        return f"the server answered {error.code} ({error.reason}). Give the address of /metrics itself."
    reason = getattr(error, "reason", error)
    if isinstance(error, TimeoutError) or isinstance(reason, TimeoutError):
        return f"no whole answer within {timeout_s:g} s. Look whether the server is well, or allow more with --timeout."
    if isinstance(reason, ConnectionRefusedError):
        return "connection refused. Start the server, or give its port."
    return f"cannot be fetched ({str(reason) or type(reason).__name__}). Look at the address and the server."


def read_file(path: Path, most_bytes: int = MOST_LOG_BYTES) -> str:
    """The text of a file; of one longer than *most_bytes*, the end. Raises UsageError where it cannot be read."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - most_bytes))
            content = file.read(most_bytes)
    except OSError as error:
        raise UsageError(
            f"{path}: {error.strerror or error}. Give a file, a saved run's folder or an address."
        ) from error
    if b"\0" in content[:1000]:
        raise UsageError(f"{path}: this is not text. Give a page of metrics, a log, or signals as JSON.")
    return content.decode("utf-8", errors="replace")
