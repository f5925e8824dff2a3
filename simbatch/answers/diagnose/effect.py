"""What a change would bring, by simulating the same requests before and after it.

Only where the deployment is known: a saved run, or signals that name model and GPU and say how long requests
are. Before and after are both simulated, so that what the simulator does not know cancels out as far as
it can. At most `MOST_REQUESTS` requests, so that the answer comes within seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from simbatch.answers.diagnose.diagnosis import Finding
from simbatch.answers.diagnose.view import View, show
from simbatch.deployment import Deployment
from simbatch.errors import SimbatchError
from simbatch.simulate import simulate
from simbatch.units import show_number, show_s

if TYPE_CHECKING:
    from simbatch.trace import Trace

MOST_REQUESTS = 2000
ROUNDS = 4
"""Requests for each one in flight, in a closed loop made of means."""
SPREAD = 0.5
"""Lengths of such a loop lie evenly between this much below and above their mean: the spread is not known."""
IN_FLIGHT_PER_GPU = 32


@dataclass(frozen=True)
class Scenario:
    """Requests, where they are served, and what else was set."""

    trace: Trace
    deployment: Deployment
    what: str
    """The requests, in words."""
    arguments: dict[str, Any] = field(default_factory=dict)
    kv_tokens: int = 0
    """As large as the pool is."""

    def outcome(self, **changes: Any) -> dict[str, Any]:
        """Metrics with *changes* to the arguments."""
        result = simulate(self.trace, self.deployment, **{**self.arguments, **changes})
        return result.metrics()

    def repeats(self, config: dict[str, Any]) -> bool:
        """Would a run of this have the scheduler, memory and timing of *config*? A policy of one's own has not."""
        arguments = {**self.arguments, "concurrency": None}
        probe = simulate(self.trace.head(1), self.deployment, **arguments).config
        return all(probe[part] == config[part] for part in ("scheduler", "memory", "timing", "limits"))


def effect_of(finding: Finding, view: View, scenario: Scenario | None) -> str | None:
    """In words, or None where nothing can be said."""
    try:
        if finding.id == "over-sharded":
            return _of_replicas(view)
        given = scenario
        if given is None and (given := _of_means(view)) is None:
            return None
        if len(given.trace) > MOST_REQUESTS:
            given = replace(given, trace=given.trace.head(MOST_REQUESTS), what=f"the first {MOST_REQUESTS:,} requests")
        return _of_change(finding, view, given)
    except SimbatchError:
        return None


def _of_change(finding: Finding, view: View, scenario: Scenario) -> str | None:
    after: dict[str, Any]
    if finding.id == "kv-bound":
        concurrency, running = scenario.arguments.get("concurrency"), view.running
        if concurrency and running and "in flight" in finding.change[0]:
            after = {"concurrency": max(1, int(running))}
            change = f"{int(running):,} in flight instead of {concurrency:,}"
        else:
            after = {"kv_tokens": 2 * scenario.kv_tokens, "num_gpu_blocks": None}
            change = f"twice the KV memory, {2 * scenario.kv_tokens:,} tokens"
    elif finding.id == "recompute-loop":
        after, change = {"kv_tokens": 2 * scenario.kv_tokens, "num_gpu_blocks": None}, "twice the KV memory"
    elif finding.id == "sequence-capped":
        limit = view.number("max_num_seqs")
        if not limit:
            return None
        if limit == 1:
            after, change = {"system": "vllm"}, "the system vllm"
        else:
            after, change = {"max_num_seqs": 2 * int(limit)}, f"max_num_seqs {2 * int(limit):,}"
    elif finding.id == "reserved-memory":
        after, change = {"system": "vllm", "reserve": None, "placement": None, "batch_size": None}, "the system vllm"
    elif finding.id == "token-budget" and (budget := view.number("max_num_batched_tokens")):
        after, change = {"max_num_batched_tokens": 4 * int(budget)}, f"max_num_batched_tokens {4 * int(budget):,}"
    elif finding.id == "saturated" and scenario.trace.arrival_ps is not None:
        halved = replace(scenario, trace=scenario.trace.time_scaled(2.0))
        said = _sentence(scenario.outcome(), halved.outcome(), each="each of two replicas, ")
        return f"Simulated on {scenario.what}: with two replicas, each at half the rate, {said}."
    else:
        return None
    return f"Simulated on {scenario.what}: with {change}, {_sentence(scenario.outcome(), scenario.outcome(**after))}."


def _sentence(before: dict[str, Any], after: dict[str, Any], each: str = "") -> str:
    rates = [run["throughput"]["output_tokens_per_s"] for run in (before, after)]
    firsts = [run["latency_s"]["ttft"]["p99"] for run in (before, after)]
    gaps = [run["latency_s"]["tpot"]["mean"] for run in (before, after)]
    if None in (*rates, *firsts):
        return "nothing finishes"
    said = [
        f"{each}{show_number(rates[0])} output tokens/s become {show_number(rates[1])}",
        f"the p99 of time to first token {show_s(firsts[0])} becomes {show_s(firsts[1])}",
    ]
    if None not in gaps:
        said.append(f"the mean time per output token {show_s(gaps[0])} becomes {show_s(gaps[1])}")
    return ", ".join(said)


def _deployment(view: View, **more: Any) -> Deployment | None:
    if not view.text("model") or not view.text("gpu"):
        return None
    sizes = {"max_num_seqs": "max_num_seqs", "max_num_batched_tokens": "max_num_batched_tokens"}
    given = {name: int(value) for key, name in sizes.items() if (value := view.number(key))}
    tensor_parallel = max(1, round(view.number("tensor_parallel") or 1))
    arguments = {"tensor_parallel_size": tensor_parallel, **given, **more}
    return Deployment(view.text("model"), gpu=view.text("gpu"), **arguments)


def pool_signals(view: View) -> dict[str, float]:
    """The pool in GiB and as a share of GPU memory, where the deployment is known and neither was given."""
    tokens = view.number("kv_tokens")
    if not tokens or view.number("kv_memory_share") is not None or view.number("kv_gib") is not None:
        return {}
    try:
        here = _deployment(view, kv_tokens=int(tokens))
    except SimbatchError:
        return {}
    if here is None or here.kv_cache_bytes > here.gpu_memory_bytes:
        return {}
    return {
        "kv_gib": here.kv_cache_bytes_per_gpu / 2**30,
        "kv_memory_share": here.kv_cache_bytes / here.gpu_memory_bytes,
    }


def _of_means(view: View) -> Scenario | None:
    """A closed loop of as many as are in flight, with lengths about the means that were observed."""
    from simbatch.trace import Trace

    prompt, output = view.number("prompt_tokens_mean"), view.number("output_tokens_mean")
    in_flight, kv_tokens = view.in_flight, view.number("kv_tokens")
    if not (prompt and output and in_flight and in_flight[-1] >= 1 and kv_tokens):
        return None
    users = max(1, round(in_flight[-1]))
    count = min(MOST_REQUESTS, max(100, ROUNDS * users))
    prompts, outputs = (_spread(mean, count, step) for mean, step in ((prompt, 0.618034), (output, 0.754878)))
    longest = max(p + o for p, o in zip(prompts, outputs, strict=True))
    here = _deployment(view, kv_tokens=int(kv_tokens), max_model_len=longest)
    if here is None:
        return None
    what = (
        f"a closed loop of {users:,} with prompts of {show(round(prompt))} and outputs of {show(round(output))} tokens "
        "on average"
    )
    return Scenario(Trace.from_lengths(prompts, outputs), here, what, {"concurrency": users}, int(kv_tokens))


def _spread(mean: float, count: int, step: float) -> list[int]:
    """*count* lengths spread evenly about *mean*, in an order that repeats nothing soon."""
    return [max(1, round(mean * (1 - SPREAD + 2 * SPREAD * ((index * step) % 1)))) for index in range(count)]


def _of_replicas(view: View) -> str | None:
    """The same GPUs, as one replica that shares the model and as replicas of their own."""
    from simbatch.trace import Trace

    gpus = round(view.number("n_gpus") or view.number("tensor_parallel") or 0)
    shared = _deployment(view)
    if shared is None or gpus < 2:
        return None
    alone = shared.replace(tensor_parallel_size=1)
    replicas_of_all = gpus // shared.tensor_parallel_size
    count = IN_FLIGHT_PER_GPU * ROUNDS
    trace = Trace.load("sharegpt").head(count)
    one = simulate(trace, alone, concurrency=IN_FLIGHT_PER_GPU).metrics()
    users = IN_FLIGHT_PER_GPU * shared.tensor_parallel_size
    all_together = simulate(Trace.load("sharegpt").head(users * ROUNDS), shared, concurrency=users).metrics()
    rates = [
        one["throughput"]["output_tokens_per_s"] * gpus,
        all_together["throughput"]["output_tokens_per_s"] * max(1, replicas_of_all),
    ]
    firsts = [run["latency_s"]["ttft"]["p99"] for run in (one, all_together)]
    return (
        f"Simulated on sharegpt's lengths with {IN_FLIGHT_PER_GPU} in flight for each of the {gpus} GPUs: "
        f"{gpus} replicas give {show_number(rates[0])} output tokens/s and a p99 of time to first token of "
        f"{show_s(firsts[0])}, tensor parallelism over {shared.tensor_parallel_size} gives "
        f"{show_number(rates[1])} and {show_s(firsts[1])}."
    )
