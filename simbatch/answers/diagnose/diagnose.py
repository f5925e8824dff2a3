"""Signals in, a verdict with its evidence out.

>>> print(diagnose({"running": 5, "waiting": 0, "kv_usage": 0.01}).verdict)
Demand-limited and healthy: the client asks for no more than this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from simbatch.answers.diagnose.diagnosis import Diagnosis, Finding
from simbatch.answers.diagnose.effect import Scenario, effect_of, pool_signals
from simbatch.answers.diagnose.from_run import run_scenario, run_signals
from simbatch.answers.diagnose.questions import questions
from simbatch.answers.diagnose.rules import findings
from simbatch.answers.diagnose.signals import Given, Signals, read_signals
from simbatch.answers.diagnose.view import View, show
from simbatch.result import Result

UNEVEN = 2.0
"""The busiest of several engines has more than this times the load of the idlest."""


def diagnose(signals: Given | Result, *, effect: bool = True) -> Diagnosis:
    """What is wrong, from what was observed.

    *signals* is a dict with keys of `docs/diagnose.md`, a list of such dicts (several looks at one server),
    or a `Result`. With *effect*, the simulator is asked what the first change would bring, where the
    deployment is known. Raises UsageError for what is none of these and for values that cannot be.
    """
    scenario: Scenario | None = None
    if isinstance(signals, Result):
        given: Given = run_signals(signals)
        scenario = run_scenario(signals) if effect else None
    else:
        given = signals
    known, ignored = read_signals(given)
    engines: Sequence[Signals] = known.get("engines", [])
    if len(engines) > 1:
        return _several(known, engines, ignored, effect)
    if engines:
        known = {**{key: value for key, value in known.items() if key != "engines"}, **engines[0]}
    view = View({**known, **pool_signals(View(known))})
    found = findings(view)
    if effect:
        found = [_with_effect(finding, view, scenario) for finding in found[:1]] + found[1:]
    return Diagnosis(view.text("engine") or None, known, tuple(found), questions(view), tuple(ignored))


def _with_effect(finding: Finding, view: View, scenario: Scenario | None) -> Finding:
    said = effect_of(finding, view, scenario)
    return finding if said is None else replace(finding, effect=said)


def _several(known: Signals, engines: Sequence[Signals], ignored: list[str], effect: bool) -> Diagnosis:
    """Each engine judged by itself, then the balance between them; usage is never averaged."""
    rest = {key: value for key, value in known.items() if key != "engines"}
    each = [diagnose({**rest, **own}, effect=effect and not number) for number, own in enumerate(engines)]
    names = [str(own.get("engine_index", number)) for number, own in enumerate(engines)]
    found: list[Finding] = []
    loads = [view.in_flight[-1] if view.in_flight else None for view in map(View, engines)]
    seen = [load for load in loads if load is not None]
    if len(seen) == len(engines) and max(seen) > UNEVEN * (min(seen) + 1):
        counts = ", ".join(f"engine {name} has {show(load)}" for name, load in zip(names, seen, strict=True))
        found.append(
            Finding(
                "uneven-engines",
                "The load is uneven: some engines have much more in flight than others.",
                (counts,),
                ("route by the number in flight rather than in turn; check what sticks requests to one engine",),
            )
        )
    order = sorted(range(len(each)), key=lambda index: -(loads[index] or 0.0))
    for index in order:
        found += [
            replace(finding, evidence=tuple(f"engine {names[index]}: {said}" for said in finding.evidence))
            for finding in each[index].findings
        ]
    # The busiest first; what is uneven stands after its first finding, since it is why rather than what.
    if found and found[0].id == "uneven-engines" and len(found) > 1 and found[1].id != "demand-limited":
        found[0], found[1] = found[1], found[0]
    worst = each[order[0]]
    return Diagnosis(worst.engine, known, tuple(found), worst.questions, tuple(ignored))
