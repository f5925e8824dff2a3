# %% [markdown]
# # Fit your own GPU
#
# A profile is of somebody else's machine: another host, another clock, another version of the engine. What does a log
# of your own bring, what can it tell, and how much of it is needed?
#
# A notebook has no GPU. So a machine of known truth writes the log here: a simulated one, with coefficients that the
# fit does not see, a little noise in every iteration and a little weather in every run. That has one advantage over a
# real one: what the fit says can be compared with what is true.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import simbatch as sb
from simbatch.timing.coefficients import Coefficients
from simbatch.timing.formula import FormulaTiming

truth = Coefficients(
    step_us=3100, layer_us=28, weight_efficiency=0.81, compute_efficiency=0.58, roof_power=1.8,
    kv_efficiency=0.74, sequence_us=9, prompt_us=180, prefill_efficiency=0.4,
)  # fmt: skip
here = sb.Deployment("llama-3.1-8b", gpu="h100")
mine = FormulaTiming(here, truth)
requests = sb.Trace.load("sharegpt")


def log_of(rate_per_s, count=300, noise=0.01):
    """What an engine would write down at *rate_per_s*: a row for each stretch of equal iterations."""
    draw = np.random.default_rng(rate_per_s)
    steps = sb.simulate(requests.head(count).at_rate(rate_per_s, seed=rate_per_s), here, timing=mine).steps
    later = (steps["iterations"] - 1) / 2 * steps["sequences"]  # a stretch that decodes has this much more context
    lasted = (steps["end_s"] - steps["start_s"]) * (1 + noise * draw.standard_normal(len(steps)))
    return steps[["tokens", "sequences", "prefill_tokens", "waiting", "iterations"]].assign(
        context_tokens=steps["context_tokens"] + later.where(steps["prefill_tokens"] == 0, 0),
        duration_s=lasted * (1 + 0.01 * draw.standard_normal()),
        run=f"{rate_per_s} requests/s",
    )


log = pd.concat([log_of(rate) for rate in (2, 10, 30)])
print(f"{len(log):,} rows, {log['iterations'].sum():,} iterations; one row:")
log.head(1).T

# %% [markdown]
# ## How far off is a profile of another machine?
#
# The same requests on the machine itself, with the best bundled profile of this card, and with the roofline.

# %%
asked = requests.sample(600, seed=9).at_rate(20, seed=9)


def figures(timing):
    """What people decide by."""
    found = sb.simulate(asked, here, timing=timing).metrics()["latency_s"]
    return {
        "TTFT p50, ms": 1e3 * found["ttft"]["p50"],
        "TTFT p99, ms": 1e3 * found["ttft"]["p99"],
        "TPOT mean, ms": 1e3 * found["tpot"]["mean"],
        "end to end mean, s": found["e2e"]["mean"],
    }


seen = {"the machine": figures(mine), "bundled profile": figures(None), "roofline": figures("roofline")}
pd.DataFrame(seen).T.round(2)

# %% [markdown]
# ## The fit
#
# Runs are left out in turn, so the error is one on what was not fitted. The rest says what was pinned, and why.

# %%
fit = sb.fit(log, here, name="mine", about={"engine": "a simulated machine", "source": "this notebook"})
head, _, rest = repr(fit).partition("coefficient ")  # fit shows the table of coefficients too
print(head + rest[rest.index("note") :])

# %%
figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
sb.plot.predicted_against_measured(fit, axes[0])
names = [name for name, found in fit.card.coefficients.items() if found.low != found.high and getattr(truth, name)]
for place, name in enumerate(names):
    found, real = fit.card.coefficients[name], getattr(truth, name)
    axes[1].plot([found.low / real, found.high / real], [place, place], color="#0072B2", linewidth=3)
    axes[1].plot(found.value / real, place, "o", color="#0072B2")
axes[1].axvline(1, color="#9A9A9A", linestyle="--")
axes[1].set_yticks(range(len(names)), names)
axes[1].set_xlabel("found / true (line: 90 % of fits to resampled runs)")
_ = axes[1].set_title("Coefficients that the log could tell", loc="left")

# %% [markdown]
# ## Single coefficients, and what they do together
#
# Some are far from the truth and yet the sum is not: on one model and one card, reading the weights and the constant of
# every iteration do the same, so no log can tell them apart. It matters once another model is asked for.

# %%
timing = fit.timing(here)
seen["fitted"] = figures(timing)
table = pd.DataFrame(seen).T
error = (table / table.loc["the machine"] - 1).drop("the machine")
error.mul(100).round(1).add_suffix(", % off")

# %% [markdown]
# ## How much data?
#
# Fits to one run, to two and to all three, judged by a load that none of them has: 60 requests per second.

# %%
heavy = requests.sample(600, seed=5).at_rate(60, seed=5)


def off(fitted_timing, trace=heavy, deployment=here, machine=mine):
    """Error of the mean time per output token."""
    real, said = (
        sb.simulate(trace, deployment, timing=one).metrics()["latency_s"]["tpot"]["mean"]
        for one in (machine, fitted_timing)
    )
    return said / real - 1


logs = {"2/s": [2], "30/s": [30], "2 and 30/s": [2, 30], "2, 10 and 30/s": [2, 10, 30]}
needed = {"bundled profile": off(None)}
for name, rates in logs.items():
    few = log[log["run"].isin([f"{rate} requests/s" for rate in rates])]
    needed[name] = off(sb.fit(few, here, resamples=0, validate=False).timing(here))
pd.Series(needed).mul(100).round(1).rename("TPOT at 60 requests/s, % off").to_frame()

# %% [markdown]
# ## Another model on the same machine
#
# Efficiencies are shares of a peak, so the profile says something about models that were never run on it. How well?

# %%
larger = here.replace(model="llama-2-13b", max_model_len=4096)
calm = requests.sample(300, seed=5).at_rate(8, seed=5)
moved = {
    "fitted on the 8B": off(fit.timing(larger), calm, larger, FormulaTiming(larger, truth)),
    "bundled profile": off(None, calm, larger, FormulaTiming(larger, truth)),
}
pd.Series(moved).mul(100).round(1).rename("TPOT of a 13B, % off").to_frame()

# %% [markdown]
# ## What it came to

# %%
worst = error.abs().max(axis=1)
print(
    f"Worst of four figures: {worst['roofline']:.0%} off with the roofline, {worst['bundled profile']:.0%} with the "
    f"bundled profile, {worst['fitted']:.1%} with the fit."
)
single = {name: abs(needed[name]) for name in ("2/s", "30/s")}
better = min(single, key=single.get)
print(
    f"One run is enough if it is the busy one: {better} alone predicts a load beyond it to "
    f"{single[better]:.1%}, the other to {max(single.values()):.1%}."
    if max(single.values()) > 2 * single[better]
    else f"Either run alone predicts a load beyond it to {max(single.values()):.1%}."
)
apart = [name for name in names if not 0.9 < fit.card.coefficients[name].value / getattr(truth, name) < 1.1]
print(
    f"Coefficients of {len(names)} that are more than a tenth from the truth: "
    f"{', '.join(apart) if apart else 'none'}. Read the sum, not the parts."
)
print(
    f"Moved to a model that was not measured it is {abs(moved['fitted on the 8B']):.1%} off; "
    f"{fit.card.error.moved:.0%} is what its card says to reckon with."
)
