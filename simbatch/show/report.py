"""A run as one HTML page that opens without a network: verdict first, provenance last.

Everything is inlined, figures as SVG with a sentence that says the same in words. It reads the
metrics of a result and nothing that they do not contain.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from simbatch.limits import limits_met
from simbatch.show.reasons import SHORT
from simbatch.show.summary import CAUSES, LATENCIES, MEANING, timing_parts
from simbatch.show.text import number, percent, time
from simbatch.stats import FIGURES
from simbatch.units import show_s
from simbatch.waits import has_waits, waits

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from simbatch.result import Result

_TONES = {"stable": "good", "offline": "good", "growing": "open", "overloaded": "bad", "unserved": "bad"}


def report_html(result: Result, metrics: dict[str, Any] | None = None) -> str:
    """The page for *result*; *metrics* are those to show, with the limits they were asked with."""
    import jinja2

    found = result.metrics() if metrics is None else metrics
    template = jinja2.Environment(autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined).from_string(
        (files("simbatch.show") / "report.html.j2").read_text(encoding="utf-8")
    )
    figures = [
        {"heading": heading, "svg": _svg(draw, heading), "alternative": alternative}
        for heading, draw, alternative in _figures(result, found)
    ]
    heads, *rows = _latency(found)
    return template.render(
        title=f"{found['config'].get('system')} on {(found['config'].get('trace') or {}).get('name')}",
        verdict=f"{found['verdict'].capitalize()}: {MEANING[found['verdict']]}",
        tone="bad" if found["goodput"] and not limits_met(found) else _TONES[found["verdict"]],
        sentences=list(_sentences(found)),
        cards=list(_cards(found)),
        heads=heads,
        rows=rows,
        figures=figures,
        warnings=found.get("warnings", []),
        provenance=list(_provenance(found)),
    )


def _sentences(found: dict[str, Any]) -> Iterator[str]:
    bound = {name: share for name, share in found["bound_by"].items() if share and name != "nothing"}
    if bound:
        cause = max(bound, key=lambda name: bound[name])
        yield f"What binds: {CAUSES[cause]} held the head of the queue back {percent(bound[cause])} of the time."
    else:
        yield "What binds: nothing; the head of the queue was always admitted at once."
    if found["goodput"]:
        met = "are met" if limits_met(found) else "are not met"
        share, needed = percent(found["goodput"]["share"]), found["goodput"]["percentile"]
        yield f"Limits {met}: {share} of requests keep every limit, {needed:g} % are required."
    if found["cost"]:
        hour, million = found["cost"]["usd_per_hour"], found["cost"]["usd_per_million_output_tokens"]
        yield f"It costs ${hour:,.2f} per hour, ${number(million)} per million output tokens as served."
    timing = found["config"].get("timing") or {}
    if timing.get("kind") == "estimated":
        yield "Iteration times are estimated, not measured with this model on this GPU."
    error = found.get("timing_error")
    if error:
        figures = error["figures"]
        ttft, tpot = (figures.get(f"latency_s.{name}.mean") for name in ("ttft", "tpot"))
        if ttft and tpot:
            ends = [f"{time(between['low'])} to {time(between['high'])}" for between in (ttft, tpot)]
            than = f"If iterations take {percent(error['relative'])} less time, or more"
            yield f"{than}, mean TTFT is {ends[0]} and mean TPOT {ends[1]}."


def _cards(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    rates, kv, requests = found["throughput"], found["kv"], found["requests"]
    yield f"{requests['finished']:,} of {requests['arrived']:,}", "requests finished"
    yield number(rates["requests_per_s"]), "requests per second"
    yield number(rates["output_tokens_per_s"]), "output tokens per second"
    yield number(found["batch"]["running_mean"]), f"running on average, {found['batch']['running_max']} at most"
    yield percent(kv["live_share"]), f"of {kv['capacity_tokens']:,} KV tokens are live"
    yield f"{requests['preemptions']:,}", f"preemptions, {requests['recomputed_tokens']:,} tokens computed again"


def _latency(found: dict[str, Any]) -> Iterator[list[str]]:
    limits = found["goodput"]
    yield ["", *FIGURES, *(["limit", "kept by"] if limits else [])]
    for name, label in LATENCIES.items():
        cells = [time(found["latency_s"][name][figure]) for figure in FIGURES]
        if limits:
            kept = name in limits["limits_s"]
            cells += [time(limits["limits_s"][name]), percent(limits["share_by_limit"][name])] if kept else ["", ""]
        yield [label, *cells]


def _figures(result: Result, found: dict[str, Any]) -> Iterator[tuple[str, Callable[[], Axes], str]]:
    """(heading, how to draw it, the same in words)"""
    from simbatch.show import plot

    if not result.facts.rows["start_ps"].size:
        return
    kv, batch, ttft = found["kv"], found["batch"], found["latency_s"]["ttft"]
    if has_waits(result.facts) and found["requests"]["finished"]:
        yield "Where the time goes", lambda: plot.wait_reasons(result), _where_time_goes(result)
    uses = ("live", "reserved", "internal", "external")
    shares = ", ".join(f"{percent(kv[f'{name}_share'])} {name}" for name in uses)
    yield (
        "KV memory",
        lambda: plot.kv_memory(result),
        f"Use of KV memory over time. On average while anything runs: {shares}; the rest is free.",
    )
    yield (
        "Batch and queue",
        lambda: plot.batch_and_queue(result),
        f"Requests over time: {number(batch['running_mean'])} run on average, {batch['running_max']} at most, and "
        f"{number(batch['waiting_mean'])} wait.",
    )
    limit_s = (found["goodput"] or {"limits_s": {}})["limits_s"].get("ttft")
    yield (
        "Time to first token",
        lambda: plot.latency_cdf(result, metric="ttft", limit_s=limit_s),
        f"Half of the requests have their first token within {time(ttft['p50'])}, 99 % within {time(ttft['p99'])}.",
    )
    yield (
        "Requests",
        lambda: plot.timeline(result),
        f"The first {min(200, found['requests']['arrived'])} requests: "
        "when each was queued, when its prompt was computed, when it decoded.",
    )


def _where_time_goes(result: Result) -> str:
    """The parts of the mean latency and of that of the slowest tenth, largest first, and who was slowest."""
    from simbatch.show.plot.reasons import parts_of_groups

    groups = parts_of_groups(result)
    said = []
    for group, who in (("all", "a request takes"), ("slowest tenth", "the slowest tenth take")):
        parts = groups[group]
        whole = sum(parts.values())
        largest = sorted((name for name in parts if parts[name] > whole / 1000), key=lambda name: -parts[name])
        named = ", ".join(f"{SHORT[name]} {time(parts[name])}" for name in largest)
        said.append(f"On average {who} {time(whole)}: {named}.")
    waited = waits(result.facts)
    slowest = result.facts.ids[int(waited.request[int(waited.latency_ps.argmax())])]
    return " ".join([*said, f"The slowest was request {slowest}; simbatch report DIR --explain {slowest} says why."])


def _svg(draw: Callable[[], Axes], heading: str) -> str:
    """A figure as an element to inline: no prolog, no metadata, no ids that another figure has too.

    A title that only repeats the *heading* above it is left out.
    """
    import matplotlib
    import matplotlib.pyplot as plt

    backend = matplotlib.get_backend()
    plt.switch_backend("svg")
    try:
        ax = draw()
        if ax.get_title(loc="left") == heading:
            ax.set_title("", loc="left")
        figure = ax.get_figure(root=True)
        assert figure is not None
        page = io.StringIO()
        figure.savefig(page, format="svg", metadata={"Date": None})
        plt.close(figure)
    finally:
        plt.switch_backend(backend)
    text = page.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    return re.sub(r'<g id="[^"]*">', "<g>", text)


def _provenance(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    config, simulation = found["config"], found["simulation"]
    trace, deployment = (config.get(name) or {} for name in ("trace", "deployment"))
    yield "system", str(config.get("system"))
    if deployment:
        gpus = f"{deployment.get('tensor_parallel_size', 1)} x {deployment.get('gpu')}"
        yield "deployment", f"{deployment.get('model')} on {gpus}"
    yield "trace", " · ".join([str(trace.get("name")), *map(str, trace.get("transforms") or ())])
    if trace.get("rule"):
        yield "rule", str(trace["rule"])
    yield "iteration times", " · ".join(timing_parts(config))
    if simulation["makespan_s"] is not None:
        yield "simulated", f"{show_s(simulation['makespan_s'])}, {simulation['iterations']:,} iterations"
    yield "seed", str(config.get("seed"))
    yield "simbatch", str(config.get("simbatch"))
    if config.get("command"):
        yield "repeat", str(config["command"])
