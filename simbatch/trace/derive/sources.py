"""Where records come from: a JSON file, parquet files, or a data set of the Hugging Face hub.

JSON is read here, since a file that breaks off must not be lost and Arrow reads an array of JSON as a
whole. All else is read by Hugging Face `datasets`, as a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from simbatch.errors import UsageError
from simbatch.trace.derive.json_stream import JsonStream

EXTRA = "Install it with: pip install 'simbatch[traces]'"


class Records:
    """The records of *source*, read once."""

    def __init__(self, source: str, split: str = "train", on_read: Callable[[int], None] | None = None) -> None:
        self.name = source
        self._json: JsonStream | None = None
        path = Path(source)
        if path.is_file() and _is_parquet(path):
            self.name = path.name
            self._records = _parquet([path])
        elif path.is_dir():
            self.name = path.name
            files = sorted(path.rglob("*.parquet"))
            if not files:
                raise UsageError(f"{path} is a folder without a parquet file. Give one with some, or a JSON file.")
            self._records = _parquet(files)
        elif path.is_file():
            self.name = path.name
            self._json = JsonStream(path, on_read)
            self._records = iter(self._json)
        elif path.suffix or source.count("/") != 1:
            raise UsageError(f"{source}: no such file. Give a JSON or parquet file, or OWNER/NAME of a data set.")
        else:
            self._records = _hub(source, split)

    @property
    def broken(self) -> bool:
        """Does the file break off? Known at its end."""
        return self._json is not None and self._json.broken

    def __iter__(self) -> Iterator[Any]:
        return self._records


def _is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"PAR1"


def _parquet(files: list[Path]) -> Iterator[Any]:
    datasets = _datasets()
    names = [str(file) for file in files]
    return iter(datasets.load_dataset("parquet", data_files=names, split="train", streaming=True))


def _hub(name: str, split: str) -> Iterator[Any]:
    datasets = _datasets()
    try:
        return iter(datasets.load_dataset(name, split=split, streaming=True))
    except Exception as error:  # whatever the network, the hub or the data set's own code raises
        first = str(error).strip().partition("\n")[0][:200]
        raise UsageError(
            f"{name} is no file here, and cannot be read from the hub ({type(error).__name__}: {first}). "
            "Give a file, or a data set's name where there is a network."
        ) from None


def _datasets() -> Any:
    try:
        datasets = import_module("datasets")
    except ImportError:
        raise UsageError(f"parquet and the hub are read by datasets, which is not installed. {EXTRA}.") from None
    datasets.disable_progress_bars()
    return datasets
