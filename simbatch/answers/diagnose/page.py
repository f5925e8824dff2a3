"""A page of metrics in the Prometheus text format: its samples by name, and which engine's they are.

Parsed by `prometheus_client`. A page that is empty, is HTML, breaks off or is another server's is an error
that says so. `_created` series, which stand beside every counter, are left out.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

from simbatch.answers.diagnose.names import ENGINES, REFUSED, Names
from simbatch.errors import UsageError

Labels = dict[str, str]
AGAIN = "Fetch it again, for example with curl, and give the whole page."


@dataclass(frozen=True)
class Page:
    """Samples of one scrape. Several series of one name differ in their labels."""

    where: str
    names: Names
    samples: dict[str, list[tuple[Labels, float]]]

    def engines(self) -> list[str]:
        """Values of the label *engine* in order; one empty text where there is no such label."""
        found = {labels.get("engine", "") for name in self.names.running for labels, _ in self.samples.get(name, [])}
        return sorted(found, key=lambda text: (len(text), text)) or [""]

    def total(self, names: tuple[str, ...], engine: str, suffixes: tuple[str, ...] = ("",)) -> float | None:
        """The sum over all series of the first of *names* that there is; None for none, or for not a number."""
        for name in names:
            for suffix in suffixes:
                values = [v for labels, v in self.samples.get(name + suffix, []) if labels.get("engine", "") == engine]
                if values:
                    total = math.fsum(values)
                    return total if math.isfinite(total) else None
        return None

    def counter(self, names: tuple[str, ...], engine: str) -> float | None:
        return self.total(names, engine, ("_total", ""))

    def buckets(self, names: tuple[str, ...], engine: str) -> dict[float, float]:
        """Upper edge and how many lie at or below it, all series together."""
        for name in names:
            found: dict[float, float] = defaultdict(float)
            for labels, value in self.samples.get(f"{name}_bucket", []):
                if labels.get("engine", "") == engine and "le" in labels:
                    found[float(labels["le"])] += value
            if found:
                return dict(sorted(found.items()))
        return {}

    def settings(self) -> Labels:
        """Labels of the series that tells the settings."""
        series = self.samples.get(self.names.config, [])
        return series[0][0] if series else {}


def is_page(text: str) -> bool:
    """Does *text* look like metrics at all?"""
    head = text.lstrip()[:4000]
    return head.startswith(("# HELP", "# TYPE")) or any(f"\n{names.prefix}" in f"\n{head}" for names in ENGINES)


def read_page(text: str, where: str) -> Page:
    """The page in *text*, which came from *where*. Raises UsageError for what is no whole page of a known engine."""
    start = text.lstrip()[:200].lower()
    if not start:
        raise UsageError(f"{where}: the page is empty. The server may still be starting; fetch it again.")
    if start.startswith(("<!doctype", "<html", "<?xml")) or "<body" in start:
        raise UsageError(f"{where}: this is an HTML page, not metrics. Give the address of /metrics itself.")
    if start.startswith(("{", "[")):
        raise UsageError(f"{where}: this is JSON, not metrics. Give the address of /metrics itself.")
    samples = _samples(text, where)
    names = _engine(samples, where)
    page = Page(where, names, samples)
    missing = [every[0] for every in (names.running, names.waiting) if not any(name in samples for name in every)]
    if missing:
        raise UsageError(f"{where}: a page of {names.engine} without {' and '.join(missing)}: it is not whole. {AGAIN}")
    return page


def _samples(text: str, where: str) -> dict[str, list[tuple[Labels, float]]]:
    from prometheus_client.parser import text_string_to_metric_families

    last = text.rstrip("\n").rpartition("\n")[2]
    number = text.rstrip("\n").count("\n") + 1
    if not text.endswith("\n") or last.startswith("#"):
        raise UsageError(f"{where} line {number}: the page breaks off in {last[:60]!r}. {AGAIN}")
    found: dict[str, list[tuple[Labels, float]]] = defaultdict(list)
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if not sample.name.endswith("_created"):
                    found[sample.name].append((sample.labels, float(sample.value)))
            if family.type == "histogram" and not any(s.name.endswith("_count") for s in family.samples):
                raise UsageError(f"{where}: the page breaks off within {family.name}, which has no count. {AGAIN}")
    except (ValueError, IndexError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{where}: this is not a page of metrics ({error}). {AGAIN}") from error
    return dict(found)


def _engine(samples: dict[str, list[tuple[Labels, float]]], where: str) -> Names:
    for names in ENGINES:
        if any(name.startswith(names.prefix) for name in samples):
            return names
    known = ", ".join(names.engine for names in ENGINES)
    for beginning, server in REFUSED.items():
        if any(name.startswith(beginning) for name in samples):
            raise UsageError(f"{where}: these are metrics of {server}, which cannot be read. Known engines: {known}.")
    seen = ", ".join(list(samples)[:3])
    raise UsageError(
        f"{where}: no metrics of a known engine ({known}); it has {seen}, .. Give the address of the engine itself, "
        "not of a machine or a proxy."
    )
