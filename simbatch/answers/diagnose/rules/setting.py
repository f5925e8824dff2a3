"""Rules about settings: too many GPUs for one model, too few sequences, too small an iteration, too long a profile."""

from __future__ import annotations

import math

from simbatch.answers.diagnose.diagnosis import Finding
from simbatch.answers.diagnose.signals import number
from simbatch.answers.diagnose.view import FULL, View, percent, show
from simbatch.errors import SimbatchError

GIB = 2**30
SMALLEST_CARD_GB = 24
"""Where the card is not named, a model that fits on one of these fits on any that people shard over."""
BESIDE_WEIGHTS_GIB = 2.0
LEAST_KV_SHARE = 0.1
BUDGET_OF_V0 = 512
"""Tokens an iteration where V0's chunked prefill was on and nothing was set."""
MANY_STEPS = 4
"""Iterations for one prompt, from which on the weights are read again noticeably often."""
FLAT = 0.03
PROPORTIONAL = 0.5
"""Activations grow at least half as fast as the length: the profiling run follows it."""
HELD_BACK = 0.05


def over_sharded(view: View, found: list[Finding]) -> Finding | None:
    """One card would hold the model, and several share it."""
    gpus = view.number("tensor_parallel") or 0.0
    if gpus < 1.5 or not view.text("model"):
        return None
    from simbatch.deployment.catalogue import find_model
    from simbatch.deployment.gpu import find_gpu
    from simbatch.deployment.weights import weight_bytes

    try:
        shape = find_model(view.text("model"))
        card = find_gpu(view.text("gpu")) if view.text("gpu") else None
    except SimbatchError:
        return None
    weights_gib = weight_bytes(shape, shape.dtype, None, 1).total / GIB
    card_gib = SMALLEST_CARD_GB if card is None else card.memory_bytes / GIB
    if weights_gib + BESIDE_WEIGHTS_GIB > (0.9 - LEAST_KV_SHARE) * card_gib:
        return None
    busy = view.number("gpu_utilisation")
    where = f"one {card.name}" if card else f"a card of {SMALLEST_CARD_GB} GB"
    evidence = [
        f"{shape.name} has {weights_gib:.1f} GiB of weights: {where} holds them, and {show(gpus)} GPUs share them",
        "tensor parallelism adds two all-reduces to every layer, which nothing else can hide",
    ]
    if busy is not None:
        evidence.append(
            f"GPU utilisation is {'below ' if '<' in str(view.signals.get('gpu_utilisation')) else ''}{busy:g}"
        )
    count = show(view.number("n_gpus") or gpus)
    return Finding(
        "over-sharded",
        "Over-sharded: the model fits on one card, and the GPUs wait for each other.",
        tuple(evidence),
        (
            f"run {count} replicas with tensor_parallel_size 1 on the same {count} GPUs: more throughput and, under "
            "load, a shorter time to first token; one request alone gets its tokens more slowly",
            "send from an asynchronous client, so that every replica has a batch",
        ),
    )


def sequence_capped(view: View, found: list[Finding]) -> Finding | None:
    """Requests wait although memory is left: the limit on sequences holds them back."""
    if any(finding.id in ("recompute-loop", "kv-bound", "reserved-memory") for finding in found):
        return None
    limit, running, usage = view.number("max_num_seqs"), view.running, view.kv_usage
    by_limit = number(view.signals.get("held_back", {}).get("max_num_seqs")) or 0.0
    lines = view.over("running")
    flat = len(lines) > 1 and lines[0] > 0 and max(lines) - min(lines) <= FLAT * max(lines)
    at_limit = bool(limit and running and running >= (1 - FLAT) * limit)
    has_room = usage is not None and usage < FULL
    if by_limit < HELD_BACK and not (view.queues and has_room and (at_limit or flat)):
        return None
    evidence = []
    if running:
        evidence.append(
            f"{show(running)} running" + (f" of {show(limit)} that may" if limit else ", the same in every look")
            + (f", {show(view.waiting)} waiting" if view.waiting else "")
        )  # fmt: skip
    if usage is not None:
        evidence.append(f"KV usage {percent(usage)}: memory is not what they wait for")
    if by_limit:
        evidence.append(f"the limit on sequences held the head of the queue back for {percent(by_limit)} of the time")
    if limit == 1:
        change = "serve more than one request at a time: batch by iteration (vLLM)"
    elif running and usage and has_room:
        room = int(0.9 * running / usage)
        change = f"raise max_num_seqs: at this length the KV cache holds about {room:,} sequences"
    else:
        change = "raise max_num_seqs"
    slower = "each iteration gets longer with more sequences: where time between tokens allows no more, add replicas"
    return Finding(
        "sequence-capped",
        "Sequence-capped: the limit on sequences holds requests back while KV memory is left"
        + ("." if limit else ", as far as can be told without the limit itself."),
        tuple(evidence),
        (change, slower),
    )


def token_budget(view: View, found: list[Finding]) -> Finding | None:
    """The tokens of an iteration are too few for the goal."""
    by_budget = number(view.signals.get("held_back", {}).get("token_budget")) or 0.0
    workload = view.signals.get("workload", {})
    prompt = number(workload.get("input_tokens"))
    wants_throughput = view.text("goal") == "throughput" or workload.get("kind") == "offline"
    budget = view.number("max_num_batched_tokens")
    if budget is None and view.text("engine").startswith("vllm-v0"):
        budget = float(BUDGET_OF_V0)
    others = [number(share) or 0.0 for name, share in view.signals.get("held_back", {}).items() if name != "nothing"]
    evidence = []
    if prompt and budget and wants_throughput and view.signals.get("chunked_prefill") and prompt > MANY_STEPS * budget:
        steps = {tokens: math.ceil(prompt / tokens) for tokens in (budget, 4 * budget, 16 * budget) if tokens <= prompt}
        default = "" if view.number("max_num_batched_tokens") else " (the default)"
        evidence.append(
            f"a prompt of {show(prompt)} tokens takes ceil({show(prompt)} / B) steps: "
            + ", ".join(f"{count:,} at B = {show(tokens)}{default if tokens == budget else ''}"
                        for tokens, count in steps.items())
        )  # fmt: skip
        evidence.append("each step pays for reading all weights again")
        evidence.append(
            "chunked prefill bounds the stall of running decodes; it is not made to raise offline throughput"
        )
    if by_budget >= max(HELD_BACK, 0.5 * max(others, default=0.0)):
        evidence.append(f"the token budget held the head of the queue back for {percent(by_budget)} of the time")
    if not evidence:
        return None
    return Finding(
        "token-budget",
        "Token budget too small for the goal: prompts are cut into many iterations.",
        tuple(evidence),
        ("raise max_num_batched_tokens as far as the limit on time between tokens allows",),
    )


def activation_of_a_prompt(view: View, found: list[Finding]) -> Finding | None:
    """Activations grow with max_model_len: the profiling run computes a whole longest prompt."""
    runs = [
        {
            key: value
            for key in ("max_model_len", "activation_gib", "kv_gib")
            if (value := number(run.get(key))) is not None
        }
        for run in view.signals.get("runs", [])
    ]
    whole = sorted((run for run in runs if len(run) == 3), key=lambda run: run["max_model_len"])
    if len(whole) < 2:
        return None
    short, long = whole[0], whole[-1]
    longer = long["max_model_len"] / short["max_model_len"] - 1 if short["max_model_len"] else 0.0
    larger = long["activation_gib"] / short["activation_gib"] - 1 if short["activation_gib"] else 0.0
    if longer <= 0 or larger < PROPORTIONAL * longer or long["kv_gib"] >= short["kv_gib"]:
        return None
    evidence = [
        f"max_model_len {show(short['max_model_len'])} to {show(long['max_model_len'])}: activations grow from "
        f"{short['activation_gib']:g} to {long['activation_gib']:g} GiB, and the pool shrinks from {short['kv_gib']:g} "
        f"to {long['kv_gib']:g} GiB",
        *_identity(view, short),
        *_pools(view),
    ]
    return Finding(
        "activation-of-a-prompt",
        "Activation memory is sized by the tokens of a step, not by the pool: without chunked prefill the profiling "
        "run computes a whole prompt of max_model_len, and takes that from the KV cache.",
        tuple(evidence),
        (
            "turn chunked prefill on (enable_chunked_prefill), so that a step has max_num_batched_tokens at most",
            "then the KV pool does not depend on max_model_len, as in V1",
        ),
    )


def _identity(view: View, run: dict[str, float]) -> list[str]:
    """The budget by arithmetic, where the input has every term and they add up."""
    terms = [view.number(key) for key in ("gpu_total_gib", "gpu_memory_utilization", "weights_gib", "non_torch_gib")]
    if None in terms:
        return []
    total, share, weights, other = (float(term or 0) for term in terms)
    left = total * share - weights - other - run["activation_gib"]
    if abs(left - run["kv_gib"]) > 0.02 * total:
        return []
    return [
        f"{total:g} x {share:g} - {weights:g} - {other:g} - {run['activation_gib']:g} = {left:.2f} GiB for the KV cache"
    ]


def _pools(view: View) -> list[str]:
    """Blocks against the longest request, run by run, for those that do not start."""
    size = view.number("block_size") or 16.0
    lines = []
    for run in view.signals.get("runs", []):
        blocks, length = number(run.get("blocks")), number(run.get("max_model_len"))
        if blocks and length and blocks * size < length:
            lines.append(
                f"{show(blocks)} blocks x {show(size)} / {show(length)} = {blocks * size / length:.3f}: the pool is "
                "shorter than the longest request, and the engine refuses to start"
            )
    return lines
