"""What an input is, told by what is in it: a saved run, a page or two of metrics, a log, or signals.

Signals are a file of JSON, or written out: ``running=61,waiting=117,kv_usage=0.99``.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

from simbatch.answers.diagnose.fetch import MOST_BYTES, TIMEOUT_S, address_of, fetch, is_address, read_file
from simbatch.answers.diagnose.from_log import is_log, log_signals
from simbatch.answers.diagnose.from_pages import page_signals
from simbatch.answers.diagnose.page import Page, is_page, read_page
from simbatch.errors import UsageError
from simbatch.result import Result

ACCEPTED = "a saved run's folder, a /metrics address or page, a vLLM log, or signals such as running=61,waiting=117"
_WRITTEN_OUT = re.compile(r"[a-z_0-9]+=[^,=]*(,[a-z_0-9]+=[^,=]*)*")


def read_source(
    source: str, second: str | None = None, *, interval_s: float | None = None, timeout_s: float = TIMEOUT_S
) -> dict[str, Any] | list[dict[str, Any]] | Result:
    """What `diagnose` takes, from the names of one input or of two scrapes.

    An address with *interval_s* is fetched twice, so far apart. Raises UsageError and SimbatchError for what
    cannot be read.
    """
    if interval_s is not None and not 0 < interval_s < 86_400:
        raise UsageError(f"the interval is {interval_s:g} s. Give the time between two scrapes, such as 10s.")
    if second is not None:
        return page_signals(_page(source, timeout_s), _page(second, timeout_s), interval_s)
    if _WRITTEN_OUT.fullmatch(source) and not Path(source).exists():
        return _signals(source)
    if is_address(source):
        first = _page(source, timeout_s)
        if interval_s is None:
            return page_signals(first)
        started = time.monotonic()
        time.sleep(interval_s)
        last = _page(source, timeout_s)
        return page_signals(first, last, time.monotonic() - started)
    if interval_s is not None:
        raise UsageError(f"--interval needs two scrapes, and {source} is one. Give a second page, or an address.")
    path = Path(source)
    if path.is_dir():
        return Result.load(path)
    if not path.exists():
        raise UsageError(f"{source} does not exist. Give {ACCEPTED}.")
    text = read_file(path)
    if not text.strip():
        raise UsageError(f"{source}: the file is empty. Give {ACCEPTED}.")
    if text.lstrip().startswith(("{", "[")) and not is_log(text):
        return _json(text, source)
    if is_page(text) or not is_log(text):
        return page_signals(_page(source, timeout_s))
    return log_signals(text.splitlines(), source)


def _page(source: str, timeout_s: float) -> Page:
    if is_address(source):
        address = address_of(source)
        return read_page(fetch(address, timeout_s), address)
    path = Path(source)
    if path.is_file() and path.stat().st_size > MOST_BYTES:
        raise UsageError(
            f"{source}: the file is longer than {MOST_BYTES / 2**20:.0f} MiB, which no page of metrics is."
        )
    return read_page(read_file(path), source)


def _signals(text: str) -> dict[str, Any]:
    """Signals that are written out: numbers where they are some, else true, false or words."""
    found: dict[str, Any] = {}
    for part in text.split(","):
        key, _, value = part.partition("=")
        try:
            found[key] = float(value)
        except ValueError:
            found[key] = {"true": True, "false": False}.get(value, value)
    return found


def _json(text: str, where: str) -> dict[str, Any] | list[dict[str, Any]]:
    try:
        found: dict[str, Any] | list[dict[str, Any]] = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{where}: this is not JSON ({error}). Give {ACCEPTED}.") from error
    return found
