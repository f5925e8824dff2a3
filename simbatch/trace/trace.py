"""`Trace`: what a service was asked, row by row, with where it came from and what was done to it.

A trace never changes: every method that alters times or rows returns a new one and adds a line to
`transforms`, so that a result can say what it rests on. Columns are integers (tokens and
picoseconds); `simbatch.trace.columns` says what each one means.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simbatch.checks import names, whole
from simbatch.checks import path as checked_path
from simbatch.errors import UsageError
from simbatch.request import Request
from simbatch.trace import retime, select, show
from simbatch.trace.arrivals import Arrivals, Renewal
from simbatch.trace.build import checked, columns_of, fields_of, fingerprint, says_nothing
from simbatch.trace.columns import ARRAYS, COLUMNS, Ints
from simbatch.trace.draws import generator
from simbatch.trace.identity import Segments, segments_of
from simbatch.trace.load import read_fields
from simbatch.trace.redraw import Making, redrawable, redrawn
from simbatch.trace.requests import requests_of
from simbatch.trace.specs import parse_arrivals
from simbatch.trace.write import write_table

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False, repr=False)
class Trace:
    """Requests in order of arrival. Make one with `load`, `from_columns` or `from_lengths`.

    >>> Trace.from_columns(arrival_s=[0, 0.5, 1], prompt_tokens=[10, 20, 30], output_tokens=[5, 7, 9])
    <Trace columns: 3 requests, 20.0 prompt and 7.00 output tokens on average, 2.00 requests/s over 1.00 s>
    """

    prompt_tokens: Ints
    output_tokens: Ints
    arrival_ps: Ints | None = None
    """None: no times are known, and everything arrives at time 0."""
    max_tokens: Ints | None = None
    """Most tokens that the client allows; -1 where it gives no limit."""
    priority: Ints | None = None
    n: Ints | None = None
    """Parallel samples per request."""
    sample_of: Ints | None = None
    """The request that a row is one of several samples of, -1 for none: see `simbatch.trace.samples`."""
    session: tuple[str, ...] | None = None
    """Label of the conversation a row belongs to; empty where it stands alone."""
    turn: Ints | None = None
    think_ps: Ints | None = None
    """From the answer of the turn before to this turn."""
    prefix: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Columns of prefix identity under their names in files."""
    ids: tuple[str, ...] | None = None
    """None: a request's id is its row, counted from 0."""
    name: str = "columns"
    sha256: str = ""
    """Of the file's bytes as they lie on disk, or of the columns where there was no file."""
    provenance: tuple[str, ...] = ()
    """Comment lines of the file."""
    transforms: tuple[str, ...] = ()
    """What was done to the rows since, as calls that repeat it."""
    dropped: int = 0
    """Rows of the file that were left out because they were bad."""
    why_dropped: tuple[tuple[str, int, int], ...] = ()
    """Reason, how many rows, line of the first."""
    ignored_columns: tuple[str, ...] = ()
    format: str = "simbatch"
    """Of the file."""
    notes: tuple[str, ...] = ()
    """What the format of the file could not say, or says in another way."""

    making: Making | None = field(default=None, compare=False)
    """The call that made it from another trace, so that it can be drawn again."""

    def __post_init__(self) -> None:
        for name in ARRAYS:
            values = getattr(self, name)
            if values is not None:
                values = np.array(values, dtype=np.int64)
                values.setflags(write=False)
                object.__setattr__(self, name, values)
        if self.max_tokens is not None and says_nothing(COLUMNS["max_tokens"], self.max_tokens.tolist()):
            object.__setattr__(self, "max_tokens", None)
        if self.session is not None and not any(self.session):
            object.__setattr__(self, "session", None)
        prefix = {key: values for key, values in self.prefix.items() if not says_nothing(COLUMNS[key], values)}
        object.__setattr__(self, "prefix", prefix)

    @classmethod
    def load(
        cls,
        name_or_path: str | Path,
        *,
        drop_bad: bool = False,
        sort: bool = False,
        time_scale: float = 1.0,
        columns: Mapping[str, str] | None = None,
        time_unit: str | None = None,
        wrap_s: float | None = None,
        hash_block_tokens: int | None = None,
        seed: int = 0,
    ) -> Trace:
        """A bundled trace by its name, or a file: csv or jsonl, plain or gzip, ours or of a known origin.

        Parameters
        ----------
        drop_bad
            Leave out rows that cannot be read, and a record that the file breaks off in; `dropped` counts them.
        sort
            Put rows whose times go back in order.
        time_scale
            Multiplies recorded times, as `time_scaled` does, and also where they would not fit the clock: 0.001
            reads milliseconds.
        columns
            The file's names for our columns, such as ``{"output_tokens": "completion_tokens"}``. An arrival_s that
            is given so may hold dates, and counts from the first row.
        time_unit
            Of the numbers in `arrival_s`, where it is not the one that the format has: s, ms, us or ns.
        wrap_s
            The clock of the recording starts again after this long: times that go back do not.
        hash_block_tokens
            Tokens that one of the file's hash ids stands for, where it is not the number that the format has.
        seed
            Of the requests of a ServeGen client, whose files hold their distribution.

        A bundled name wins over a file of that name, which is reached as ``./name``. Raises UsageError.
        """
        how: dict[str, Any] = {
            "drop_bad": drop_bad,
            "sort": sort,
            "columns": dict(names("columns", columns)) if columns else None,
            "time_scale": time_scale,
            "time_unit": time_unit,
            "wrap_s": wrap_s,
            "hash_block_tokens": hash_block_tokens,
            "seed": seed,
        }
        return cls(**read_fields(name_or_path, how))

    @classmethod
    def from_columns(
        cls,
        columns: Mapping[str, Any] | None = None,
        *,
        name: str = "columns",
        provenance: tuple[str, ...] = (),
        **more: Any,
    ) -> Trace:
        """A trace from sequences, arrays or a data frame, under the names that files have.

        Times are seconds (`arrival_s`, `think_s`) or picoseconds (`arrival_ps`, `think_ps`). None in a column
        that has a default means that. Raises UsageError with the row at fault.
        """
        if any("\n" in line or "\r" in line for line in provenance):
            raise UsageError("a line of provenance has a line break. Give several lines instead.")
        values = checked({**dict(columns if columns is not None else {}), **more}, name)
        return cls(**fields_of(values), name=name, sha256=fingerprint(values), provenance=tuple(provenance))

    @classmethod
    def from_lengths(cls, prompt_tokens: Any, output_tokens: Any, name: str = "lengths") -> Trace:
        """A trace without times from two sequences of token counts."""
        return cls.from_columns(prompt_tokens=prompt_tokens, output_tokens=output_tokens, name=name)

    def save(self, path: str | Path) -> None:
        """Writes the trace to a .csv or .jsonl file, packed if the name ends in .gz; `load` reads it back equal."""
        write_table(checked_path("the file", path), columns_of(self), self.provenance, self.transforms)

    @redrawable
    def at_rate(self, rate_per_s: float, burstiness: float = 1.0, seed: int = 0) -> Trace:
        """The same requests in the same order, arriving at *rate_per_s* on average.

        Gaps are Gamma distributed with shape *burstiness* (1: Poisson, infinite: constant); recorded times are
        replaced. The first request comes after the first gap. See `simbatch.trace.arrivals` on what differs from
        vllm bench, and `arriving` on sessions.
        """
        changes = retime.arriving(self, Renewal(rate_per_s, burstiness), seed)
        call = f"at_rate(rate_per_s={select.figure(rate_per_s)}, burstiness={select.figure(burstiness)}, seed={seed})"
        return self._changed(call, **changes)

    @redrawable
    def arriving(self, process: Arrivals | str, seed: int = 0) -> Trace:
        """The same requests in the same order, arriving as *process* says: an object, or text such as ``mmpp:…``.

        Of a trace with sessions, the first turns arrive so, at a rate at which all turns together have the one
        of the process; each later turn comes when the one before has ended.
        """
        process = parse_arrivals(process) if isinstance(process, str) else process
        return self._changed(f"arriving({process!r}, seed={seed})", **retime.arriving(self, process, seed))

    @redrawable
    def time_scaled(self, factor: float) -> Trace:
        """Recorded gaps times *factor*: 2 is half the rate. The first one counts from time 0; think times scale too."""
        select.check_factor(factor)
        return self._changed(f"time_scaled({select.figure(factor)})", **retime.scaled(self, factor))

    def with_origin(self) -> Trace:
        """The same requests, with a line of provenance that names the file they come from."""
        line = f"converted from {self.name}, sha256 {self.sha256}"
        return replace(self, provenance=(*self.provenance, line))

    @redrawable
    def without_sessions(self) -> Trace:
        """The same requests with nobody waiting for an answer: every turn comes at its recorded time."""
        return self._changed("without_sessions()", session=None, turn=None, think_ps=None)

    @redrawable
    def head(self, n: int) -> Trace:
        """The first *n* rows; where there are fewer, they are repeated under new ids and session labels.

        Repeated times go on after the last one: each round starts a mean gap after the round before ended.
        A repeated row quotes the same prefix group or hash ids, so prefix caching finds more in it than in fresh
        requests; what segments quote of other requests is renamed with them.
        """
        select.check_rows(n)
        if n == len(self):
            return self
        return self._changed(f"head({n})", **select.taken(self, np.arange(n, dtype=np.int64) % len(self)))

    @redrawable
    def sample(self, n: int, seed: int = 0) -> Trace:
        """*n* rows drawn with replacement, arriving when the first *n* rows (see `head`) would have.

        Raises UsageError for a trace with sessions, whose turns would be torn apart.
        """
        select.check_rows(n)
        if self.session is not None:
            raise UsageError(
                f"{self.name} has sessions, which drawing rows would tear apart. Use its first rows instead."
            )
        index = generator(seed, "sample").integers(0, len(self), n)
        return self._changed(f"sample({n}, seed={seed})", **select.taken(self, index))

    @redrawable
    def with_samples(self, n: int) -> Trace:
        """The same requests, each asking for *n* parallel samples: a run counts every sample as a request."""
        select.check_rows(len(self) * whole("the number of samples", n))
        return self._changed(f"with_samples({n})", n=np.full(len(self), n, dtype=np.int64))

    def with_seed(self, seed: int) -> Trace:
        """The same with all that was drawn (arrivals, rows) drawn with *seed*. Raises UsageError where nothing was."""
        return redrawn(self, seed)

    def requests(self, lo: int = 0, hi: int | None = None) -> Iterator[Request]:
        """The requests of rows *lo* to *hi* (not included), made as they are asked for."""
        return requests_of(self, lo, len(self) if hi is None else min(hi, len(self)))

    def segments(self, row: int) -> Segments | None:
        """Which tokens the prompt of *row* shares with whom; None: with nobody. See `simbatch.trace.identity`."""
        id = str(row) if self.ids is None else self.ids[row]
        return segments_of(self.prefix, row, id, int(self.prompt_tokens[row])) if self.prefix else None

    @property
    def rule(self) -> str | None:
        """How the rows were derived from their origin, if the file says so."""
        return next((line.removeprefix("rule: ") for line in self.provenance if line.startswith("rule: ")), None)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What limits the use of the trace without making it wrong."""
        return show.warnings(self)

    def describe(self) -> dict[str, Any]:
        """What a saved result says about its trace: plain values, units in the names, None where there is none."""
        return show.describe(self)

    def frame(self) -> pd.DataFrame:
        """A data frame of one row per request, its times in seconds."""
        return show.frame(self)

    def __len__(self) -> int:
        return len(self.prompt_tokens)

    def __eq__(self, other: object) -> bool:
        """Whether both ask for the same, with the same history; names and files may differ."""
        if not isinstance(other, Trace):
            return NotImplemented
        same = (self.provenance, self.transforms) == (other.provenance, other.transforms)
        return same and len(self) == len(other) and columns_of(self) == columns_of(other)

    def __hash__(self) -> int:
        return hash((len(self), self.provenance, self.transforms))

    def __repr__(self) -> str:
        return show.line(self)

    def _repr_html_(self) -> str:
        return show.page(self)

    def _changed(self, call: str, **changes: Any) -> Trace:
        return replace(self, **changes, transforms=(*self.transforms, call))
