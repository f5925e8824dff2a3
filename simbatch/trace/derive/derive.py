"""One derivation: records in, a trace and an account of what was dropped out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simbatch.errors import UsageError, unknown
from simbatch.trace.derive.messages import BadRecord, messages_of, piece_of
from simbatch.trace.derive.rules import ABOUT, WHOLE, Counted, Row, Rule, Tally
from simbatch.trace.derive.sources import Records
from simbatch.trace.derive.stitch import stitched
from simbatch.trace.derive.tokens import Tokenizer, find_tokenizer
from simbatch.trace.trace import Trace

Pieces = Iterator[tuple[tuple[str, int] | None, list[Counted]]]


@dataclass(frozen=True)
class Derivation:
    """A trace, and how many of what became of it."""

    trace: Trace
    rule: str
    records: Tally
    """Records of the file; those dropped have no messages that can be counted."""
    conversations: Tally
    exchanges: Tally | None
    """None where the rule takes one exchange of each conversation."""
    broken: bool
    """The file breaks off after the last record."""

    def account(self) -> list[str]:
        """What was read, kept and dropped, a line each; the counts add up."""
        lines = [self._line("records", self.records)]
        if self.broken:
            lines.append(f"the file breaks off after record {self.records.seen:,}; what is whole was kept")
        lines.append(self._line("conversations" if self.rule in WHOLE else "records with messages", self.conversations))
        if self.exchanges is not None:
            lines.append(self._line("exchanges", self.exchanges))
        return lines

    def _line(self, what: str, tally: Tally) -> str:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in tally.dropped.most_common())
        return f"{what}: {tally.seen:,} read, {tally.kept:,} kept" + (f"; dropped: {reasons}" if reasons else "")


def derive(
    source: str | Path,
    rule: str = "first",
    tokenizer: str | Tokenizer = "mistral-v1",
    *,
    records: int | None = None,
    split: str = "train",
    on_progress: Callable[[int, int], None] | None = None,
) -> Derivation:
    """Lengths of the conversations in *source*.

    Parameters
    ----------
    source
        A JSON, JSONL or parquet file (gzip or not), a folder of parquet files, or ``OWNER/NAME`` of a data set on
        the Hugging Face hub.
    rule
        first, vllm, turns or sessions: see `simbatch.trace.derive.rules`.
    tokenizer
        mistral-v1, mistral-v2, mistral-v3, tekken, or the path of a tokenizer.json or tokenizer.model.
    records
        Use only so many; a conversation that goes on after the last one is dropped.
    on_progress
        Called now and then with (bytes read, bytes in all), for a JSON file.

    Raises UsageError for what cannot be read, and where nothing is left.
    """
    if rule not in ABOUT:
        raise unknown("rule", rule, ABOUT)
    if records is not None and records < 1:
        raise UsageError(f"{records} records were asked for, but a trace needs at least 1. Ask for more.")
    counter = find_tokenizer(tokenizer) if isinstance(tokenizer, str) else tokenizer
    path = Path(source)
    size = path.stat().st_size if path.is_file() else 0
    reading = Records(str(source), split, None if on_progress is None else lambda done: on_progress(done, size))
    job = _Job(reading, Rule(rule), counter, records)
    rows = list(job.rows())
    if not rows:
        raise UsageError(
            f"{reading.name}: nothing is left by the rule {rule} ({job.why()}). Give another file or rule."
        )
    trace = Trace.from_columns(_columns(rows, rule), name=reading.name, provenance=job.provenance(rows))
    return Derivation(
        trace, rule, job.records, job.rule.conversations, job.rule.exchanges if rule in WHOLE else None, reading.broken
    )


class _Job:
    def __init__(self, reading: Records, rule: Rule, tokenizer: Tokenizer, most: int | None) -> None:
        self.reading = reading
        self.rule = rule
        self.tokenizer = tokenizer
        self.most = most
        self.records = Tally()
        self._goes_on: str | None = None
        """The conversation that goes on after the last record that may be used."""

    def rows(self) -> Iterator[Row]:
        if self.rule.name not in WHOLE:
            for _, messages in self._pieces():
                yield from self.rule.rows(messages)
            return
        held: tuple[str | None, list[Counted]] | None = None
        for conversation in stitched(self._pieces()):
            if held is not None:
                yield from self.rule.rows(held[1])
            held = conversation
        if held is None:
            return
        # Whether the last one is whole is known now.
        name, messages = held
        if name is not None and (self.reading.broken or name == self._goes_on):
            cut = "cut off by the end of the file" if self.reading.broken else "cut off by --records"
            self.rule.conversations.seen += 1
            self.rule.conversations.dropped[cut] += 1
        else:
            yield from self.rule.rows(messages)

    def _pieces(self) -> Pieces:
        for record in self.reading:
            if self.records.seen == self.most:
                after = piece_of(record)
                self._goes_on = after and after[0]
                return
            self.records.seen += 1
            try:
                messages = messages_of(record)
                if not messages:
                    raise BadRecord("no messages")
            except BadRecord as reason:
                self.records.dropped[str(reason)] += 1
                continue
            count = self.tokenizer.count
            yield piece_of(record), [Counted(m.role, m.is_answer, count(m.text)) for m in messages]

    def why(self) -> str:
        reasons: Counter[str] = self.records.dropped + self.rule.conversations.dropped + self.rule.exchanges.dropped
        return ", ".join(f"{count:,} {reason}" for reason, count in reasons.most_common(3)) or "there are no records"

    def provenance(self, rows: list[Row]) -> tuple[str, ...]:
        whole = " (the file breaks off after it)" if self.reading.broken else ""
        prompt, output = (sum(tokens) / len(rows) for tokens in zip(*_lengths(rows), strict=True))
        return (
            "Lengths in tokens derived from conversations. Lengths only, no text, no times.",
            f"origin: the first {self.records.seen:,} records of {self.reading.name}{whole}",
            f"tokenizer: {self.tokenizer.about}, without BOS, EOS or chat template",
            f"rule: {ABOUT[self.rule.name]}",
            f"rows: {len(rows)}, means {prompt:.2f} prompt and {output:.2f} output tokens",
            f"derived by simbatch trace derive --rule {self.rule.name}",
        )


def _lengths(rows: list[Row]) -> list[tuple[int, int]]:
    return [(row.prompt_tokens, row.output_tokens) for row in rows]


def _columns(rows: list[Row], rule: str) -> dict[str, Any]:
    prompt, output = zip(*_lengths(rows), strict=True)
    columns: dict[str, Any] = {"prompt_tokens": prompt, "output_tokens": output}
    if rule == "sessions":
        columns["session"] = [row.session for row in rows]
        columns["turn"] = [row.turn for row in rows]
        columns["id"] = [row.id for row in rows]
        columns["segments"] = [row.segments for row in rows]
    return columns
