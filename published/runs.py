"""Sets up and simulates what a scenario names, each thing once and only when a value asks for it.

A *run* serves traffic and is repeated for several seeds; with `search` it is repeated at other rates until the highest
one is found that keeps a condition. A *step* is one iteration: so many decodes at a context, beside so many prompt
tokens. *Lengths* are those of traffic that nobody serves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from math import sqrt
from typing import Any

import simbatch as sb
from published.expression import evaluate
from published.quantities import mean_of, of_lengths, of_result, of_step
from published.scenario import merged
from published.traffic import make_trace

_OWN = ("deployment", "timing", "times", "seeds", "window_s", "traffic", "search", "price_usd_per_hour")
"""Keys of a run that are not options of `sb.simulate`."""
_STEP = ("deployment", "timing", "times", "decodes", "context_tokens", "prefill_tokens")
_SEARCH = ("low", "high", "until", "ratio")
_RATIO = 1.02
"""Two rates that need not be told apart."""
_OF_DEPLOYMENT = (
    "kv_bytes_per_token", "kv_cache_bytes", "kv_tokens", "weights_bytes", "gpu_memory_bytes", "block_size",
    "ridge_flop_per_byte", "peak_flop_per_s", "num_gpu_blocks",
)  # fmt: skip
_OF_CARD = ("bandwidth_bytes_per_s", "bf16_flop_per_s", "fp8_flop_per_s")
_PLENTY = 1 << 30


class World:
    """The numbers of one scenario under one set of *tables*: `value` works them out.

    *tell* is called with what is simulated next, for whoever waits.
    """

    def __init__(self, tables: Mapping[str, Any], tell: Callable[[str], None] = lambda text: None) -> None:
        self._tables = tables
        self._tell = tell
        self._known: dict[str, Mapping[str, float]] = {}

    def value(self, text: str | float) -> float:
        """What an expression comes to. Raises UsageError."""
        return evaluate(text, self._look_up)

    def _look_up(self, name: str, quantity: str | None) -> float:
        tables = self._tables
        if quantity is None:
            if name not in tables["values"]:
                raise sb.UsageError(f"{name!r} is no value. There are {', '.join(tables['values']) or 'none'}.")
            return self.value(tables["values"][name])
        for kind, made in (("runs", self._run), ("steps", self._step), ("lengths", self._lengths)):
            if name in tables[kind]:
                if name not in self._known:
                    self._known[name] = made(name, tables[kind][name])
                return _one(self._known[name], name, quantity)
        if name == "here" or name in tables["deployments"]:
            return self._of_deployment(name, quantity)
        raise sb.UsageError(f"{name!r} is no run, step, lengths or deployment of the scenario. Define it.")

    # -- deployments and step costs ------------------------------------------------------------------

    @cached_property
    def _deployments(self) -> dict[str, sb.Deployment]:
        return {}

    def deployment(self, name: str) -> sb.Deployment | None:
        """*here* is the table `deployment`; others change it; "none" is none."""
        if name == "none":
            return None
        if name not in self._deployments:
            arguments = dict(self._tables["deployment"])
            if name != "here":
                arguments = merged(arguments, self._tables["deployments"][name])
            if isinstance(arguments.get("model"), Mapping):
                arguments["model"] = sb.ModelShape(**arguments["model"])
            self._deployments[name] = sb.Deployment(**arguments)
        return self._deployments[name]

    def _of_deployment(self, name: str, quantity: str) -> float:
        here = self.deployment(name)
        assert here is not None
        if quantity in _OF_CARD:
            return float(getattr(here.card, quantity))
        if quantity == "params":
            return float(here.shape.params)
        if quantity not in _OF_DEPLOYMENT:
            raise sb.UsageError(
                f"{name}.{quantity}: a deployment has {', '.join((*_OF_DEPLOYMENT, *_OF_CARD, 'params'))}."
            )
        return float(getattr(here, quantity))

    def _timing(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments of `sb.simulate` for a step cost, *times* as long where that is asked for."""
        timing, times = options.get("timing"), self.value(options.get("times", 1))
        if times == 1 or timing is None:
            return {"timing": timing}
        if isinstance(timing, str) and timing.startswith("linear:"):
            given = sb.LinearTiming.parse(timing.removeprefix("linear:")).given
            return {"timing": sb.LinearTiming(**{name: times * value for name, value in given.items()})}
        return {"timing": timing, "timing_scale": times}

    # -- runs ----------------------------------------------------------------------------------------

    def _run(self, name: str, table: Mapping[str, Any]) -> Mapping[str, float]:
        asked = merged(self._tables["run"], table)
        asked["traffic"] = merged(self._tables["traffic"], asked.get("traffic", {}))
        if "search" in asked:
            return self._search(name, asked)
        return self._served(name, asked)

    def _served(self, name: str, asked: Mapping[str, Any]) -> Mapping[str, float]:
        """Means over the seeds."""
        traffic = dict(asked["traffic"])
        if "rate_per_s" in traffic:
            traffic["rate_per_s"] = self.value(traffic["rate_per_s"])
        options = {key: value for key, value in asked.items() if key not in _OWN} | self._timing(asked)
        window = tuple(asked["window_s"]) if "window_s" in asked else None
        each = []
        for seed in range(asked.get("seeds", 1)):
            rate = f" at {traffic['rate_per_s']:.4g}/s" if "rate_per_s" in traffic else ""
            self._tell(f"{name}{rate}, seed {seed}")
            result = sb.simulate(make_trace(traffic, seed), self.deployment(asked.get("deployment", "here")), **options)
            result.check()
            each.append(of_result(result, window, asked.get("price_usd_per_hour")))
        return mean_of(each)

    def _search(self, name: str, asked: Mapping[str, Any]) -> Mapping[str, float]:
        """At the highest rate that keeps `until`: what was found there, and the rate as `rate_per_s`."""
        search = asked["search"]
        for key in search:
            if key not in _SEARCH:
                raise sb.UsageError(f"run {name}: {key!r} is no part of search. Parts are {', '.join(_SEARCH)}.")

        for key in _SEARCH[:3]:
            if key not in search:
                raise sb.UsageError(f"run {name}: search has no {key}. Give low, high and until.")
        conditions = [search["until"]] if isinstance(search["until"], str) else search["until"]

        def probe(rate: float) -> tuple[bool, Mapping[str, float]]:
            at = merged(asked, {"traffic": {"rate_per_s": rate}})
            found = self._served(name, at)
            return all(evaluate(one, lambda key, _: _one(found, name, key)) for one in conditions), found

        low, high = self.value(search["low"]), self.value(search["high"])
        holds, best = probe(low)
        if not holds:
            raise sb.UsageError(f"run {name}: already {low:g} requests/s do not keep {search['until']}. Lower low.")
        if probe(high)[0]:
            raise sb.UsageError(f"run {name}: still {high:g} requests/s keep {search['until']}. Raise high.")
        while high / low > search.get("ratio", _RATIO):
            middle = sqrt(low * high)
            holds, found = probe(middle)
            if holds:
                low, best = middle, found
            else:
                high = middle
        return {**best, "rate_per_s": sqrt(low * high)}

    # -- steps and lengths ---------------------------------------------------------------------------

    def _step(self, name: str, table: Mapping[str, Any]) -> Mapping[str, float]:
        """One iteration, read off a run that is made to contain it: decoders come first, the prompt joins them."""
        run = {key: value for key, value in self._tables["run"].items() if key in _STEP}
        asked = {**run, **self._tables["step"], **table}
        for key in asked:
            if key not in _STEP:
                raise sb.UsageError(f"step {name}: {key!r} is no part of a step. Parts are {', '.join(_STEP)}.")
        decodes, prefill = asked.get("decodes", 0), asked.get("prefill_tokens", 0)
        context = asked.get("context_tokens", 2)
        if decodes + prefill < 1 or context < 2:
            raise sb.UsageError(
                f"step {name} computes nothing. Give decodes at a context of 2 or more, or prefill_tokens."
            )
        arrivals, prompts, outputs = [0] * decodes, [context - 1] * decodes, [2] * decodes
        if prefill:
            arrivals, prompts, outputs = [*arrivals, int(decodes > 0)], [*prompts, prefill], [*outputs, 1]
        trace = sb.Trace.from_columns(arrival_ps=arrivals, prompt_tokens=prompts, output_tokens=outputs)
        longest = max(prompts) + 2
        result = sb.simulate(
            trace,
            self.deployment(asked.get("deployment", "here")),
            scheduler="orca",
            memory=sb.PagedMemory(_PLENTY, 1),
            max_model_len=longest,
            kv_tokens=_PLENTY,
            system="orca-max",
            **self._timing(asked),
        )
        return of_step(result, prefill)

    def _lengths(self, name: str, table: Mapping[str, Any]) -> Mapping[str, float]:
        return of_lengths(make_trace(merged(self._tables["traffic"], table), 0))


def _one(found: Mapping[str, float], name: str, quantity: str | None) -> float:
    if quantity is None or quantity not in found:
        raise sb.UsageError(f"{name} has no {quantity!r}. It has {', '.join(sorted(found))}.")
    return found[quantity]
