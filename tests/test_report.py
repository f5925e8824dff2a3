"""The report of a saved run, looked at by a real browser, and its timeline."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result as Ran

import simbatch as sb
from simbatch.show.report import report_html
from simbatch.show.timeline import trace_events
from simbatch.units import show_s

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture
def page(simbatch: Callable[..., Ran]) -> str:
    flags = "--requests 120 --rate 14 --model llama-2-13b --ttft 500ms --price 2.5 -q -o first"
    saved = simbatch("run", "sharegpt", *flags.split())
    assert saved.exit_code == 0, saved.output
    done = simbatch("report", "first")
    assert (done.exit_code, done.stdout) == (0, "first/report.html\n")
    return Path("first/report.html").read_text(encoding="utf-8")


class Page(HTMLParser):
    """What a page refers to and says."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.alternatives: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        targets = [value for name, value in attrs if name in ("src", "href") and value]
        self.links += [target for target in targets if not target.startswith("#")]
        if tag == "figure":
            self.alternatives.append(known.get("aria-label") or "")

    def handle_data(self, data: str) -> None:
        self.words.append(data.strip())


def test_it_needs_no_network_and_says_the_verdict_first(page: str) -> None:
    seen = Page(page)
    assert seen.links == []
    assert "<script" not in page
    assert "url(http" not in page
    text = " ".join(word for word in seen.words if word)
    order = ["Stable:", "What binds", "Limits are met", "$2.50 per hour", "requests finished", "Latency",
             "Where the time goes", "KV memory", "Where the numbers come from"]  # fmt: skip
    places = [text.index(words, text.index("Stable:")) for words in order]
    assert places == sorted(places)
    assert "simbatch run sharegpt --requests 120" in text


def test_every_figure_says_the_same_in_words(page: str) -> None:
    alternatives = Page(page).alternatives
    assert len(alternatives) == page.count("<svg") == 5
    assert all(len(words.split()) > 8 for words in alternatives)
    metrics = json.loads(Path("first/metrics.json").read_text(encoding="utf-8"))
    assert f"{metrics['batch']['running_max']} at most" in alternatives[2]
    waits = sb.Result.load("first").waits
    mean, running, start = (show_s(waits[name].mean()) for name in ("e2e_s", "running_s", "next_iteration_s"))
    said = f"On average a request takes {mean}: running {running}, next iteration {start}. On average the slowest tenth"
    assert alternatives[0].startswith(said)
    assert f"--explain {waits.loc[waits['e2e_s'].idxmax(), 'id']} " in alternatives[0]


def test_waits_for_memory_are_named_and_old_runs_do_without() -> None:
    trace = sb.Trace.load("sharegpt").head(80).at_rate(14, seed=0)
    result = sb.simulate(trace, sb.Deployment("llama-2-13b", gpu="h100", max_model_len=2048), system="orca-max")
    said = Page(report_html(result)).alternatives[0]
    waited = show_s((result.waits["kv_s"] + result.waits["behind_kv_s"]).mean())
    assert f", KV memory full {waited}" in said
    result.facts.stays = None
    assert Page(report_html(result)).alternatives[0].startswith("Use of KV memory")


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_a_browser_shows_it_without_errors_or_overflow(page: str, width: int, dark: bool, tmp_path: Path) -> None:
    probe = (
        "<script>addEventListener('load', () => { const wide = [...document.body.querySelectorAll('*')]"
        ".filter(e => !e.closest('.scroll') && !e.closest('svg') && e.getBoundingClientRect().right > innerWidth + 1)"
        ".map(e => e.tagName); document.title = JSON.stringify({wide, all: document.documentElement.scrollWidth,"
        " inner: innerWidth}); })</script></body>"
    )
    copy = tmp_path / "probe.html"
    # A frame of the width asked for: a headless window is never narrower than about 500 pixels.
    copy.write_text(page.replace("</body>", probe), encoding="utf-8")
    frame = tmp_path / "frame.html"
    frame.write_text(
        f"<iframe id=f src=probe.html style='width:{width}px;height:900px;border:0'></iframe><script>"
        "f.onload = () => setTimeout(() => document.title = f.contentDocument.title, 50)</script>",
        encoding="utf-8",
    )
    assert CHROMIUM is not None
    flags = (
        "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking "
        "--disable-component-update --disable-sync --allow-file-access-from-files --enable-logging=stderr "
        "--window-size=1400,1000 --virtual-time-budget=4000 --dump-dom"
    ).split()
    if dark:
        flags += ["--force-dark-mode", "--blink-settings=preferredColorScheme=0"]
    command = [CHROMIUM, *flags, f"--user-data-dir={tmp_path / 'profile'}", frame.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert "CONSOLE" not in shown.stderr, shown.stderr
    title = re.search(r"<title>(\{.*?\})</title>", shown.stdout)
    assert title is not None, shown.stdout[:500] + shown.stderr[-500:]
    found = json.loads(title[1].replace("&quot;", '"'))
    assert found["inner"] == width
    assert found["wide"] == []
    assert found["all"] <= width


def test_what_is_no_saved_run(simbatch: Callable[..., Ran]) -> None:
    Path("empty").mkdir()
    done = simbatch("report", "empty")
    assert done.exit_code == 2
    assert done.stderr.startswith("Error: empty")
    assert "Traceback" not in done.output


def test_a_place_that_cannot_be_written(simbatch: Callable[..., Ran], page: str) -> None:
    done = simbatch("report", "first", "-o", "nowhere/page.html")
    assert done.exit_code == 1
    assert done.stderr == (
        "Error: nowhere/page.html cannot be written (No such file or directory). Give another place with -o.\n"
    )


def test_the_timeline_follows_the_format_and_the_facts(simbatch: Callable[..., Ran], page: str) -> None:
    done = simbatch("report", "first", "--timeline", "run.json")
    assert done.exit_code == 0
    events = json.loads(Path("run.json").read_text(encoding="utf-8"))["traceEvents"]
    result = sb.Result.load("first")
    assert {event["ph"] for event in events} == {"M", "X", "C"}
    for event in events:
        assert {"name", "pid", "tid"} <= set(event)
        if event["ph"] != "M":
            assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] > 0
    slices = [event for event in events if event.get("cat") in ("decode", "mixed")]
    assert len(slices) == len(result.steps)
    assert sum(event["args"]["iterations"] for event in slices) == result.metrics()["simulation"]["iterations"]
    kv = [event["args"] for event in events if event["name"] == "KV tokens"]
    assert {sum(part.values()) for part in kv} == {result.facts.capacity_tokens}
    assert len(events) < 8 * (len(result.requests) + len(result.steps)) + 2 * result.requests["preemptions"].sum()
    assert trace_events(result)["traceEvents"] == events


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"system": "vllm-v0"},
        {"system": "sarathi", "preemption_mode": "swap"},
        {"replicas": 2},
        {"frontend_delay_s": 0.01},
    ],
    ids=["vllm", "v0", "swapped", "replicas", "delayed"],
)
def test_the_slices_of_a_request_fill_its_time_without_a_gap(options: dict[str, Any]) -> None:
    """What it waited for, its prompt, its decodes and its stays outside, one after the other."""
    trace = sb.Trace.load("sharegpt").head(200).at_rate(40, seed=0)
    timing = "linear:base_ms=6,token_us=20"
    result = sb.simulate(trace, kv_tokens=6000, max_model_len=2048, timing=timing, **options)
    events = trace_events(result)["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    requests = next(process for process, name in names.items() if name == "requests")
    assert len(names) == 1 + options.get("replicas", 1)
    tracks: dict[int, list[dict[str, Any]]] = {}
    for event in events:
        if event["ph"] == "X" and event["pid"] == requests:
            tracks.setdefault(event["tid"] - 1, []).append(event)
    assert len(tracks) == len(trace)
    for place, slices in tracks.items():
        slices.sort(key=lambda event: event["ts"])
        ends = [event["ts"] + event["dur"] for event in slices]
        assert ends[:-1] == pytest.approx([event["ts"] for event in slices[1:]], abs=1e-3)
        row = result.requests.iloc[place]
        assert slices[0]["ts"] == pytest.approx(row["arrival_s"] * 1e6, abs=1e-3)
        assert ends[-1] == pytest.approx(row["finished_s"] * 1e6, abs=1e-3)
    said = {event["name"] for slices in tracks.values() for event in slices}
    assert {"waits for the next iteration", "queued behind others: KV memory full", "preempted"} <= said
    by_name = {name: sum(e["dur"] for s in tracks.values() for e in s if e["name"] == name) / 1e6 for name in said}
    assert by_name["preempted"] == pytest.approx(result.waits["preempted_s"].sum())
    assert by_name["waits for the next iteration"] == pytest.approx(result.waits["next_iteration_s"].sum())


def test_iterations_of_replicas_have_a_track_each() -> None:
    trace = sb.Trace.load("sharegpt").head(60).at_rate(40, seed=0)
    events = trace_events(
        sb.simulate(trace, kv_tokens=6000, max_model_len=2048, timing="linear:base_ms=6", replicas=2)
    )["traceEvents"]
    for process in (2, 3):
        slices = [event for event in events if event["ph"] == "X" and event["pid"] == process]
        assert len(slices) > 10
        ends = [event["ts"] + event["dur"] for event in slices]
        assert all(end <= after["ts"] + 1e-3 for end, after in zip(ends, slices[1:], strict=False))


def test_the_timeline_of_an_old_run_says_queued() -> None:
    trace = sb.Trace.load("sharegpt").head(60).at_rate(40, seed=0)
    result = sb.simulate(trace, kv_tokens=3000, max_model_len=2048, timing="linear:base_ms=6")
    result.facts.stays = None
    del result.facts.rows["head"]
    said = {event["name"] for event in trace_events(result)["traceEvents"] if event.get("cat") == "request"}
    assert said == {"queued", "prompt", "decode"}
