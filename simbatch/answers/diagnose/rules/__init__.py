"""The rules, heaviest first: each looks at quantities and gives a finding or nothing.

A rule never says what the input does not contain, and never names a change that would not help. One that
depends on others having found nothing stands after them and is given what they found.
"""

from __future__ import annotations

from collections.abc import Callable

from simbatch.answers.diagnose.diagnosis import Finding
from simbatch.answers.diagnose.rules.load import demand_limited, prefill_dominated, saturated, unknown
from simbatch.answers.diagnose.rules.memory import kv_bound, recompute_loop, reserved_memory
from simbatch.answers.diagnose.rules.setting import activation_of_a_prompt, over_sharded, sequence_capped, token_budget
from simbatch.answers.diagnose.rules.steps import host_bound
from simbatch.answers.diagnose.view import View

Rule = Callable[[View, list[Finding]], Finding | None]

RULES: tuple[Rule, ...] = (
    activation_of_a_prompt,
    over_sharded,
    recompute_loop,
    reserved_memory,
    kv_bound,
    sequence_capped,
    token_budget,
    host_bound,
    saturated,
    demand_limited,
    prefill_dominated,
    unknown,
)


def findings(view: View) -> list[Finding]:
    """Every rule's finding, in the order of the rules."""
    found: list[Finding] = []
    for rule in RULES:
        finding = rule(view, found)
        if finding is not None:
            found.append(finding)
    return found
