"""Rules about KV memory: full of tokens, full of reservations, and prompts computed again and again."""

from __future__ import annotations

from simbatch.answers.diagnose.diagnosis import Finding
from simbatch.answers.diagnose.signals import number
from simbatch.answers.diagnose.view import View, percent, show

COLLAPSED = 0.3
"""Generation at less than this share of the normal rate has collapsed."""
MANY_PREEMPTIONS = 3.0
"""For each request that finishes: from here on the engine mostly computes what it has thrown away."""
MUCH_RECOMPUTED = 0.5
"""Share of all computed tokens."""
HELD_BACK = 0.05
"""Share of the time that a cause has to hold the queue back to be one."""
WASTED = 0.5
"""Share of what is held that holds no token: reservations rather than use fill the memory."""
OF_CLIENT = 0.15
"""How far the number in flight may be from the client's limit and still be made by it."""


def recompute_loop(view: View, found: list[Finding]) -> Finding | None:
    """Prompts are computed, hardly anything is generated, and nobody finishes."""
    rates = view.signals.get("generation_tok_s_per_gpu", {})
    normal, during = number(rates.get("normal")), number(rates.get("during"))
    prompt = view.number("prompt_tok_s")
    evidence = []
    collapsed = bool(normal and during is not None and during < COLLAPSED * normal)
    if view.nobody_finishes and prompt and view.queues and collapsed:
        sums = view.in_flight
        looks = "both lines" if len(sums) == 2 else f"all {len(sums)} lines"
        evidence.append(f"running + waiting = {show(sums[0])} in {looks}: nothing finishes")
        evidence.append(
            f"{show(prompt)} prompt tokens/s are computed while generation fell from {show(normal or 0)} to "
            f"{show(during or 0)} tokens/s per GPU: the prompts are computed again"
        )
        usage = view.over("kv_usage")
        if len(usage) > 1:
            evidence.append(f"KV usage goes from {percent(usage[0])} to {percent(usage[-1])} as more are admitted")
    preemptions, finished = view.number("preemptions"), view.number("requests_finished")
    if preemptions and finished is not None and preemptions > MANY_PREEMPTIONS * max(1.0, finished):
        evidence.append(f"{show(preemptions)} preemptions for {show(finished)} finished requests")
    recomputed = view.number("recomputed_share")
    if recomputed is not None and recomputed > MUCH_RECOMPUTED:
        evidence.append(f"{percent(recomputed)} of all computed tokens had been computed before")
    if not evidence:
        return None
    return Finding(
        "recompute-loop",
        "Recompute loop (thrash), caused by admission: requests are let in that memory cannot hold, are preempted, "
        "and are prefilled again.",
        tuple(evidence),
        (
            "admit a request only with room for its whole input (scheduler_reserve_full_isl, or a release that has it)",
            "let fewer long requests in at once (a lower limit in the client, or max_num_active_seqs)",
            "give the KV cache more memory: fp8 KV, more or larger GPUs",
        ),
    )


def reserved_memory(view: View, found: list[Finding]) -> Finding | None:
    """Memory is given out in advance and by length, not as tokens come."""
    if view.signals.get("paged") is not False:
        return None
    live = view.number("live_share")
    parts = {name: view.number(f"{name}_share") or 0.0 for name in ("reserved", "internal", "external")}
    held_back = number(view.signals.get("held_back", {}).get("kv")) or 0.0
    wasted = parts["internal"] + parts["external"]
    if live is None or held_back < HELD_BACK or wasted < WASTED * (wasted + parts["reserved"] + live):
        return None
    return Finding(
        "reserved-memory",
        "Memory-bound by reservations, not by tokens: the KV cache is given out in one piece and in advance.",
        (
            f"{percent(live)} of the KV memory holds tokens; {percent(parts['internal'])} is reserved and never "
            f"filled, {percent(parts['external'])} lies between pieces",
            f"memory held the head of the queue back for {percent(held_back)} of the time",
        ),
        (
            "page the KV cache and batch by iteration (vLLM), so that memory is taken as tokens come",
            "reserve less: prompt + max_tokens rather than the longest request",
        ),
    )


def kv_bound(view: View, found: list[Finding]) -> Finding | None:
    """KV memory is full and requests wait for it, or are thrown out of it."""
    if any(finding.id in ("reserved-memory", "recompute-loop") for finding in found):
        return None
    held_back = view.signals.get("held_back", {})
    by_kv = number(held_back.get("kv")) or 0.0
    says_run = by_kv >= HELD_BACK and by_kv >= max((number(value) or 0.0 for name, value in held_back.items()
                                                   if name not in ("kv", "nothing")), default=0.0)  # fmt: skip
    preempts = bool(view.preemptions) or view.pushed_back > 0
    if not (says_run or (not held_back and view.is_full and (view.queues or preempts))):
        return None
    verdict = "KV-bound: the KV cache is full, and requests wait for it"
    verdict += ", with preemption by recompute." if preempts else "."
    change = []
    client = view.number("client_concurrency")
    in_flight = view.in_flight[-1] if view.in_flight else None
    made_by_client = bool(client and in_flight and abs(in_flight - client) <= OF_CLIENT * client)
    if made_by_client and view.running:
        verdict += " The queue is made by the client."
        change.append(
            f"keep about {_about(view.running)} in flight: the same throughput, and far less time to first token"
        )
    change.append("fp8 KV, a larger GPU or more GPUs, or fewer tokens a request: for more throughput")
    if not made_by_client:
        change.append("send fewer at once, or add replicas, where time to first token matters more")
    return Finding(
        "kv-bound", verdict, tuple(_evidence(view, by_kv if says_run else None, made_by_client)), tuple(change)
    )


def _evidence(view: View, by_kv: float | None, made_by_client: bool) -> list[str]:
    evidence = []
    running, waiting, usage = view.running, view.waiting, view.kv_usage
    if usage is not None:
        evidence.append(
            f"KV usage {percent(usage)}" + (f" with {show(waiting)} waiting" if waiting else "")
            + (f" and {show(running)} running" if running else "")
        )  # fmt: skip
    if by_kv is not None:
        evidence.append(f"KV memory held the head of the queue back for {percent(by_kv)} of the time")
    tokens = view.number("kv_tokens")
    if tokens and running:
        of = tokens * (usage if usage is not None else 1.0)
        evidence.append(f"{show(of)} of {show(tokens)} KV tokens / {show(running)} running = {of / running:,.0f} each")
    pool = view.number("kv_gib")
    if tokens and pool:
        evidence.append(
            f"{show(tokens)} tokens are {pool:.2f} GiB on each GPU, {pool * 2**30 / tokens:,.0f} bytes a token"
        )
    if running and waiting and view.queues:
        total = running + waiting
        evidence.append(
            f"{show(waiting)} of {show(total)} in flight wait: about {waiting / total:.0%} of a request's time is "
            "queueing, by Little's law".replace("%", " %")
        )
    if made_by_client:
        evidence.append(f"running + waiting is the client's limit of {show(view.number('client_concurrency') or 0)}")
    evidence += _preempted(view)
    return evidence


def _preempted(view: View) -> list[str]:
    count, finished = view.preemptions, view.number("requests_finished")
    evidence = []
    if count:
        evidence.append(f"{show(count)} preemptions" + (f" for {show(finished)} finished requests" if finished else ""))
    if view.pushed_back:
        sums, span_s = view.in_flight, view.span_s
        rate = f" in {show(span_s)} s, {view.pushed_back / span_s:.1f} preemptions/s" if span_s else ""
        swapped = view.over("swapped")
        mode = "; none is swapped, so they are recomputed" if swapped and not any(swapped) else ""
        evidence.append(
            f"running + waiting = {show(sums[0])} in all {len(sums)} lines while running falls: "
            f"{show(view.pushed_back)} requests were pushed back{rate}{mode}"
        )
    return evidence


def _about(running: float) -> str:
    """A round number a little below."""
    step = 10 ** max(0, len(str(int(running))) - 2) * (10 if 20 <= running < 100 else 1)
    return f"{max(1, int(running // step) * step):,}"
