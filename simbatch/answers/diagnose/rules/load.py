"""Rules about load: more than the server can, less than it could, mostly prompts, and what cannot be told."""

from __future__ import annotations

import math

from simbatch.answers.diagnose.diagnosis import Finding
from simbatch.answers.diagnose.signals import bounds, number
from simbatch.answers.diagnose.view import View, percent, show

NEAR = 1.5
"""A burst's work and its last time to first token agree when neither is more than this times the other."""
WORKING_LOAD = 0.8
"""Of the service rate: what a replica is planned for, so that queues stay short."""
MOSTLY_PROMPTS = 20.0
"""Prompt tokens for each generated token."""
EXPLAINED = frozenset({"recompute-loop", "kv-bound", "reserved-memory", "sequence-capped", "token-budget"})


def saturated(view: View, found: list[Finding]) -> Finding | None:
    """More arrives than is served, and no setting of the engine explains it."""
    service = bounds(view.signals.get("service_rate_req_s"))
    arrival = view.number("arrival_rate_req_s")
    burst, last_s = view.number("burst_requests"), view.number("ttft_last_s")
    evidence, rate = [], None
    if service and service[0] > 0 and burst and last_s is not None:
        work_s = burst / service[0]
        if 1 / NEAR <= work_s / max(last_s, 1e-9) <= NEAR:
            evidence.append(
                f"{show(burst)} requests / {service[0]:g} requests/s = {show(round(work_s))} s of work, and the last "
                f"first token comes after {show(last_s)} s: it is all queueing"
            )
            evidence.append(
                f"rho = arrival rate / service rate is above 1 for anything beyond {_between(service)} requests/s"
            )
            rate = sum(service) / 2
    if not EXPLAINED & {finding.id for finding in found}:
        if service and arrival and arrival > service[1] > 0 and view.queues is not False:
            rate = sum(service) / 2
            evidence.append(
                f"rho = {show(arrival)} arriving / {_between(service)} served requests/s = {arrival / rate:.2f}: "
                "above 1"
            )
        if view.text("verdict") == "overloaded":
            evidence.append("the queue grows as long as requests arrive, and finishes fall behind arrivals")
    if not evidence:
        return None
    return Finding(
        "saturated",
        "Saturated: more arrives than the server can serve, and requests queue.",
        tuple(evidence),
        (_replicas(rate, view.number("wanted_rate_req_s") or arrival), "or send less: a limit or an earlier refusal"),
    )


def _replicas(rate: float | None, wanted: float | None) -> str:
    if rate is None:
        return "add replicas: simbatch size tells how many a rate needs"
    each = WORKING_LOAD * rate
    if wanted is not None:
        count = math.ceil(wanted / each)
        return f"add replicas: {show(wanted)} requests/s need {count:,}, at rho = {WORKING_LOAD:g} or less in each"
    examples = ", ".join(f"{asked:g} requests/s need {math.ceil(asked / each):,}" for asked in (2 * rate, 4 * rate))
    return f"add replicas, ceil(rate / {each:.2f}) of them at rho = {WORKING_LOAD:g}: {examples}"


def _between(pair: tuple[float, float]) -> str:
    return f"{pair[0]:g}" if pair[0] == pair[1] else f"{pair[0]:g} to {pair[1]:g}"


def demand_limited(view: View, found: list[Finding]) -> Finding | None:
    """Nobody waits: the server does what it is asked to."""
    if found or view.running is None or view.queues is not False:
        return None
    usage, word = view.kv_usage, next((look["kv_usage"] for look in view.looks if "kv_usage" in look), None)
    evidence = [f"{show(view.running)} running and {show(view.waiting or 0)} waiting: nobody is held back"]
    if usage is not None:
        evidence.append(
            f"KV usage {percent(usage)} is a share of the pool that was reserved at start-up; it says how many are "
            "served, and more GPUs make it smaller"
        )
    elif isinstance(word, str):
        evidence.append(
            f"KV usage is {word}: it is a share of the pool that was reserved at start-up, and more GPUs make it "
            "smaller"
        )
    return Finding(
        "demand-limited",
        "Demand-limited and healthy: the client asks for no more than this.",
        tuple(evidence),
        ("nothing in the engine; for more throughput, send more requests at once",),
    )


def prefill_dominated(view: View, found: list[Finding]) -> Finding | None:
    """Most of the work is prompts. Beside what else was found, or alone."""
    ratio = view.prompts_per_output
    if ratio is None or ratio < MOSTLY_PROMPTS or any(finding.id == "recompute-loop" for finding in found):
        return None
    prompt, generated = view.number("prompt_tok_s") or 0.0, view.number("generation_tok_s") or 0.0
    return Finding(
        "prefill-dominated",
        "Prefill-dominated: nearly all the work is prompts.",
        (f"{prompt:,.1f} / {generated:,.1f} = {ratio:.0f} prompt tokens for each generated token",),
        ("expect the GPU to be limited by arithmetic: time to first token is what to watch",),
    )


def unknown(view: View, found: list[Finding]) -> Finding | None:
    """No rule holds: what was seen, and what would tell more."""
    if found:
        return None
    missing = [
        what
        for what, value in (
            ("running", view.running),
            ("waiting", view.waiting),
            ("kv_usage", view.kv_usage),
            ("preemptions", view.preemptions),
            ("max_num_seqs", view.number("max_num_seqs")),
        )
        if value is None
    ]
    seen = [
        f"{key} {show(value)}" for key in ("running", "waiting", "kv_usage") if (value := view.number(key)) is not None
    ]
    queue = "requests wait, but why is not in the input" if view.queues else "no cause can be told from the input"
    held = {name: number(share) for name, share in view.signals.get("held_back", {}).items()}
    if held:
        seen.append("held back by " + ", ".join(f"{name} {percent(share)}" for name, share in held.items() if share))
    change = [f"say also {', '.join(missing)}"] if missing else []
    if len(view.looks) < 2 and not held:
        change.append(
            "look twice, some ten seconds apart: counters become rates, and what moves tells from what does not"
        )
    return Finding(
        "unknown", f"Not enough to tell: {queue}.", tuple(seen) or ("nothing that a rule asks for",), tuple(change)
    )
