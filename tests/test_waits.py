"""Waits add up to latencies, and say for each iteration what a bystander who sees the queue says."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simbatch as sb
from simbatch.decisions import DecisionLog
from simbatch.facts import CAUSES, facts_from
from simbatch.memory import ContiguousMemory
from simbatch.memory.base import Memory
from simbatch.memory.placement import PLACEMENTS
from simbatch.memory.reserve import RESERVES
from simbatch.request import Sequence
from simbatch.scheduler import Naive, Orca, Plan, Sarathi, Scheduler, Static, VllmV0
from simbatch.timing import Iteration
from simbatch.waits import REASONS, Waits, waits

TIMING = "linear:base_ms=2,token_us=500,context_ns=250000"
MAX_MODEL_LEN = 64
SCHEDULERS: dict[str, Callable[[], sb.Scheduler]] = {
    "naive": Naive,
    "static": Static,
    "static of 3": lambda: Static(3),
    "orca": Orca,
    "vllm-v0": VllmV0,
    "vllm-v0 swap": lambda: VllmV0("swap"),
    "sarathi": Sarathi,
    "sarathi swap": lambda: Sarathi("swap"),
    "vllm": sb.VllmV1,
    "shortest first": lambda: sb.Continuous(order=lambda sequence: sequence.prompt_tokens + sequence.output_tokens),
}


def contiguous(reserve: str, placement: str) -> Callable[[int], sb.Memory]:
    more = 48 if reserve in ("max", "limit") else 16
    return lambda tokens: ContiguousMemory(tokens + more, reserve, placement, MAX_MODEL_LEN)


MEMORIES: dict[str, Callable[[int], sb.Memory]] = {
    "paged": lambda tokens: sb.PagedMemory(tokens // 4, 4),
    **{f"{reserve} {placement}": contiguous(reserve, placement) for reserve in RESERVES for placement in PLACEMENTS},
}
REQUESTS = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 0, 2, 3, 6, 9, 10, 20, 50]),  # arrival in ms
        st.integers(1, 14),  # prompt tokens
        st.integers(1, 14),  # output tokens
        st.sampled_from([0, 0, 1, 5]),  # by how much max_tokens exceeds the output
        st.integers(0, 2),  # priority
        st.sampled_from("ab"),  # whose prompt it begins like
        st.sampled_from([0, 3, 4, 8]),  # for how many tokens
    ),
    min_size=1,
    max_size=9,
)
ENGINES = {
    "max_num_seqs": st.sampled_from([2, 3, 8]),
    "max_num_batched_tokens": st.sampled_from([8, 16, 64]),
    "enable_chunked_prefill": st.booleans(),
    "scheduler_reserve_full_isl": st.booleans(),
    "watermark": st.sampled_from([0.0, 0.25]),
}
OF_VLLM = ENGINES | {
    "kv_tokens": st.sampled_from([28, 32, 48, 400]),
    "block_size": st.sampled_from([1, 2, 4]),
    "max_num_seqs": st.sampled_from([1, 2, 4, 8]),
    "scheduling_policy": st.sampled_from(["fcfs", "priority"]),
    "long_prefill_token_threshold": st.sampled_from([0, 3]),
    "prefill_schedule_interval": st.sampled_from([1, 1, 3]),
    "enable_prefix_caching": st.booleans(),
    "async_scheduling": st.booleans(),
    "vllm_version": st.sampled_from(["0.11", "0.33"]),
}


def trace_of(requests: list[tuple[Any, ...]], shares: bool = False) -> sb.Trace:
    ms, prompts, outputs, surplus, priority, group, shared = zip(*sorted(requests), strict=True)
    columns: dict[str, Any] = {"prefix_group": group, "prefix_tokens": np.minimum(shared, prompts)} if shares else {}
    return sb.Trace.from_columns(
        arrival_ps=np.array(ms) * 10**9,
        prompt_tokens=prompts,
        output_tokens=outputs,
        max_tokens=np.array(outputs) + surplus,
        priority=priority,
        **columns,
    )


class Bystander(DecisionLog):
    """Looks at every plan: who runs, who is out, and who waits for what."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[int, dict[int, str]]] = []
        """(start, what each request does) of each iteration."""

    def planned(
        self,
        plan: Plan,
        work: Iteration,
        memory: Memory,
        start_ps: int,
        scheduler: Scheduler,
        planned_ps: int | None = None,
    ) -> None:
        super().planned(plan, work, memory, start_ps, scheduler, planned_ps)
        does = dict.fromkeys((sequence.index for sequence in plan.running), "running")
        does |= {sequence.index: "preempted" for sequence in scheduler.aside}
        for sequence in plan.waiting:
            does[sequence.index] = self._waits_for(sequence, plan)
        self.seen.append((start_ps, does))

    def _waits_for(self, sequence: Sequence, plan: Plan) -> str:
        if sequence.preemptions:
            return "preempted"
        if not plan.held_back:
            return "policy"
        return CAUSES[plan.held_back] if plan.waiting.head() is sequence else "head_of_line"

    def says(self, result: sb.Result) -> list[dict[str, int]]:
        """For each request that finished, its latency by reason in picoseconds."""
        told = []
        steps = self.steps
        for i, finished in enumerate(result.facts.requests["finished_ps"].tolist()):
            if finished < 0:
                continue
            mine: dict[str, int] = defaultdict(int)
            for (start, does), step in zip(self.seen, steps, strict=True):
                if start < finished and i in does:
                    mine[does[i]] += round(step["t1"] * 1000) - start
            latency = finished - int(result.facts.requests["arrival_ps"][i])
            mine["next_iteration"] = latency - sum(mine.values())
            told.append({name: mine[name] for name in REASONS})
        return told


def table(found: Waits) -> list[dict[str, int]]:
    return [{name: int(found.ps[name][row]) for name in REASONS} for row in range(found.request.size)]


def assert_lawful(found: Waits) -> None:
    """Parts add up, none is negative, and those behind others know what the head waited for."""
    assert (sum(found.ps.values()) == found.latency_ps).all()
    assert all((part >= 0).all() for part in (*found.ps.values(), *found.behind_ps.values()))
    assert (sum(found.behind_ps.values()) == found.ps["head_of_line"]).all()


def both_ways(trace: sb.Trace, make: Any, **options: Any) -> tuple[Waits, list[dict[str, int]]] | None:
    """The waits of a run, and what a bystander of the stepped one says; None where the real rules livelock."""
    bystander = Bystander()
    try:
        ahead = sb.simulate(trace, **make(), **options)
        stepped = sb.simulate(trace, **make(), **options, step=True, log=bystander)
    except sb.PolicyError as error:
        if "livelocks" in str(error):
            return None
        raise
    found = waits(ahead.facts)
    assert_lawful(found)
    assert table(found) == table(waits(stepped.facts))
    return found, bystander.says(stepped)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@settings(max_examples=60, deadline=None)
@given(
    requests=REQUESTS,
    memory=st.sampled_from(sorted(MEMORIES)),
    tokens=st.sampled_from([16, 28, 32, 48, 120]),
    engine=st.fixed_dictionaries(ENGINES),
)
def test_every_scheduler_and_memory(
    scheduler: str, requests: list[tuple[Any, ...]], memory: str, tokens: int, engine: dict[str, Any]
) -> None:
    found = both_ways(
        trace_of(requests),
        lambda: {"scheduler": SCHEDULERS[scheduler](), "memory": MEMORIES[memory](tokens)},
        timing=TIMING,
        kv_tokens=tokens,
        max_model_len=MAX_MODEL_LEN,
        **engine,
    )
    if found is not None:
        assert table(found[0]) == found[1]
        assert not found[0].ps["policy"].any()


@settings(max_examples=300, deadline=None)
@given(requests=REQUESTS, engine=st.fixed_dictionaries(OF_VLLM), shares=st.booleans())
def test_every_option_of_vllm(requests: list[tuple[Any, ...]], engine: dict[str, Any], shares: bool) -> None:
    found = both_ways(trace_of(requests, shares), dict, timing=TIMING, max_model_len=MAX_MODEL_LEN, **engine)
    if found is not None:
        assert table(found[0]) == found[1]


ONE_SEAT = {
    "max_num_seqs": 1,
    "max_num_batched_tokens": 8,
    "kv_tokens": 400,
    "block_size": 4,
    "async_scheduling": True,
    "enable_prefix_caching": False,
}


def test_a_plan_that_found_nothing_to_do_is_made_again_and_knows_who_came_meanwhile() -> None:
    """With one seat the engine has nobody to plan for until the last token is back: rows tell by who waits."""
    found = both_ways(
        trace_of([(0, 1, 1, 0, 0, "a", 0)] * 4 + [(2, 1, 1, 0, 0, "a", 0)]),
        dict,
        timing=TIMING,
        max_model_len=MAX_MODEL_LEN,
        **ONE_SEAT,
    )
    assert found is not None
    assert table(found[0]) == found[1]
    assert found[0].ps["next_iteration"].tolist()[-1] == 750_000_000


@pytest.mark.parametrize("step", [True, False], ids=["stepping", "running ahead"])
def test_the_story_of_three_by_hand(step: bool) -> None:
    """Memory holds four blocks of four tokens; the story is that of `test_stays`."""
    trace = sb.Trace.from_columns(
        id=["ann", "bob", "cat"], arrival_s=[0.0, 0.0, 0.02], prompt_tokens=[6, 6, 6], output_tokens=[5, 5, 2]
    )
    options = {"kv_tokens": 16, "block_size": 4, "max_model_len": 64, "enable_prefix_caching": False}
    result = sb.simulate(trace, timing="linear:base_ms=10,token_us=1000", step=step, async_scheduling=False, **options)
    told = result.waits.set_index("id").mul(1000).round(9)
    told = {who: {name: ms for name, ms in row.items() if ms} for who, row in told.iterrows()}
    assert told == {
        "ann": {"e2e_s": 68, "running_s": 68},
        "bob": {"e2e_s": 98, "preempted_s": 22, "running_s": 76},
        "cat": {
            "e2e_s": 105,
            "next_iteration_s": 2,
            "kv_s": 24 + 30,  # first while ann and bob fill the memory, and again when bob is back
            "head_of_line_s": 22,  # behind bob, who
            "behind_kv_s": 22,  # finds no room
            "running_s": 27,
        },
    }


def test_waits_of_replicas_are_those_of_each_alone() -> None:
    trace = sb.Trace.load("sharegpt").head(200).at_rate(60, seed=0)
    options: dict[str, Any] = {"kv_tokens": 6000, "max_model_len": 4096, "timing": "linear:base_ms=6,token_us=20"}
    one = waits(sb.simulate(trace, **options).facts)
    twice = sb.Trace.from_columns(
        arrival_ps=np.repeat(trace.arrival_ps, 2),
        prompt_tokens=np.repeat(trace.prompt_tokens, 2),
        output_tokens=np.repeat(trace.output_tokens, 2),
    )
    both = waits(sb.simulate(twice, replicas=2, router="round-robin", **options).facts)
    assert one.ps["head_of_line"].any()
    for name in REASONS:
        assert both.ps[name][0::2].tolist() == both.ps[name][1::2].tolist() == one.ps[name].tolist(), name


def test_a_policy_that_says_no_without_a_reason() -> None:
    class Shy(sb.Continuous):
        def plan(self, waiting: Any, running: Any, memory: Any, now_ps: int) -> Plan:
            """Admits nobody while somebody runs, and says nothing."""
            if not running:
                return super().plan(waiting, running, memory, now_ps)
            plan = Plan(waiting, running, memory)
            plan.decode()
            return plan

    trace = sb.Trace.from_columns(arrival_s=[0, 0.011], prompt_tokens=[2, 2], output_tokens=[4, 1])
    result = sb.simulate(
        trace, scheduler=Shy(), timing="linear:base_ms=10", kv_tokens=64, max_model_len=16, async_scheduling=False
    )
    assert result.waits.loc[1, ["next_iteration_s", "policy_s", "running_s"]].tolist() == [0.009, 0.02, 0.01]


def test_only_finished_requests_have_waits() -> None:
    facts = facts_from({"status": [0, 2], "arrival_ps": [0, 0]}, {"start_ps": [0], "first_ps": [5]}, stays=[])
    assert waits(facts).request.size == 0


def test_an_old_run_says_what_to_do() -> None:
    with pytest.raises(sb.UsageError, match=r"did not record who waited for what\. Run it again"):
        waits(facts_from({"status": [0]}, {"start_ps": [0], "first_ps": [5]}))


@settings(max_examples=60, deadline=None)
@given(
    requests=REQUESTS,
    samples=st.integers(1, 3),
    system=st.sampled_from(["vllm-v0", "vllm"]),
    tokens=st.sampled_from([48, 64, 200]),
    concurrency=st.sampled_from([None, 1, 2, 3]),
)
def test_parallel_samples_and_closed_loops(
    requests: list[tuple[Any, ...]], samples: int, system: str, tokens: int, concurrency: int | None
) -> None:
    """Where an arrival is caused by a finish, and where several are one request."""
    trace = trace_of(requests)
    if samples > 1:
        trace = trace.with_samples(samples)
    found = both_ways(
        trace,
        dict,
        system=system,
        timing=TIMING,
        kv_tokens=tokens,
        block_size=4,
        max_model_len=MAX_MODEL_LEN,
        concurrency=concurrency,
    )
    if found is not None:
        assert table(found[0]) == found[1]


def test_an_interval_between_prompts_is_no_lack_of_tokens() -> None:
    """Four iterations lie between those that compute prompts: a wait for the next of them has no limit to raise."""
    trace = sb.Trace.from_columns(arrival_s=[0.0, 0.001, 0.012, 0.013], prompt_tokens=[8] * 4, output_tokens=[30] * 4)
    found = sb.simulate(
        trace, timing="linear:base_ms=2", kv_tokens=1024, max_model_len=64, prefill_schedule_interval=5, seed=0
    )
    parts = waits(found.facts).ps
    assert parts["policy"].sum() > 0
    assert parts["token_budget"].sum() == 0
