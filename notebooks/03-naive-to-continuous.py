# %% [markdown]
# # From a loop to an engine, in dollars
#
# The same 400 requests, all there at once, served by a `generate()` loop, by static batches, by iteration-level
# scheduling and by paged memory. Each step changes one thing. What does each one bring, why, and what is left of it
# when the machine is not full?
#
# The price is an example and an input; iteration times are those of a profile of the H100, moved to this model.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import simbatch as sb

USD_PER_HOUR = 2.99
here = sb.Deployment("llama-13b", gpu="h100", max_model_len=2048, price_usd_per_hour=USD_PER_HOUR)
trace = sb.Trace.load("sharegpt").sample(400, seed=3)
slots = here.kv_tokens // 2048
print(f"{here}, ${USD_PER_HOUR} per hour; {slots} reservations of 2,048 tokens fit.")

# %% [markdown]
# ## Five engines
#
# The second and the third have the same seats and the same reservations: what differs is when somebody may join. The
# last two run the same scheduler: what differs is the memory.

# %%
ladder = {
    "one at a time": {"system": "naive"},
    "static batches": {"system": "static", "batch_size": slots},
    "iteration level": {"system": "orca-max", "max_num_seqs": slots},
    "paged": {"system": "orca-max", "memory": "paged"},
    "vLLM today": {"system": "vllm"},
}
found = sb.compare(trace, here, systems=ladder)
table = found.frame()[
    ["output_tokens_per_s", "running_mean", "usd_per_million_output_tokens", "tpot_mean_s", "makespan_s"]
]
table = table.assign(gain_on_the_step_before=table["output_tokens_per_s"].pct_change() + 1)
table.round(3)

# %%
figure, axes = plt.subplots(1, 2, figsize=(11, 3.6), layout="constrained")
for ax, column, title in (
    (axes[0], "output_tokens_per_s", "output tokens per second"),
    (axes[1], "usd_per_million_output_tokens", "USD per million output tokens"),
):
    bars = ax.barh(table.index, table[column], color="#0072B2")
    ax.bar_label(bars, fmt="%.2f" if column.startswith("usd") else "%.0f", padding=3)
    ax.invert_yaxis()
    ax.margins(x=0.15)
    ax.set_xlabel(title)
axes[1].set_yticklabels([])
_ = figure.suptitle("At full load: all 400 requests are there at once")

# %% [markdown]
# ## Why iteration level: a static batch waits for its longest
#
# A member that has ended keeps its seat until the last one ends. So the useful share of the seats is the mean output
# over the longest in the batch, which can be computed from the lengths alone, without any simulation.

# %%
outputs = trace.output_tokens
batches = [outputs[i : i + slots] for i in range(0, len(outputs), slots)]
useful = outputs.sum() / sum(len(batch) * batch.max() for batch in batches)
static, level = found.results["static batches"], found.results["iteration level"]
alive = static.metrics()["batch"]["running_mean"]
print(f"By the lengths, {useful:.1%} of the seats of a static batch do useful work: {useful * slots:.1f} of {slots}.")
print(f"The simulator counts {alive:.1f} who still generate, weighted by time.")
print(f"At iteration level {level.metrics()['batch']['running_mean']:.1f} of {slots} seats are in use.")

# %%
figure, axes = plt.subplots(1, 2, figsize=(11, 3.8), layout="constrained")
for ax, name in zip(axes, ("static batches", "iteration level"), strict=True):
    sb.plot.timeline(found.results[name], ax, most=120)
    ax.set_title(f"{name}: the first 120 requests", loc="left")
    ax.set_xlim(0, 60)

# %% [markdown]
# ## Why paged: more who share the reading of the weights
#
# An iteration reads all weights once, whoever is in the batch, and each sequence's own cache. That is what the mean
# iteration comes to, and how many tokens it yields.

# %%
rows = []
for name, result in found.results.items():
    simulated = result.metrics()
    rows.append(
        {
            "system": name,
            "ms per iteration": 1000 * simulated["simulation"]["makespan_s"] / simulated["simulation"]["iterations"],
            "tokens per iteration": int(outputs.sum()) / simulated["simulation"]["iterations"],
            "live share of KV memory, %": 100 * simulated["kv"]["live_share"],
        }
    )
pd.DataFrame(rows).set_index("system").round(1)

# %% [markdown]
# ## Dollars per token are dollars per hour over tokens per hour
#
# At full load that makes three times the throughput three times cheaper, exactly. Below it the machine costs the same
# and serves what arrives, whatever the engine. So the price of a token against the load:

# %%
rates = np.array([0.25, 0.5, 1, 2, 4, 8, 12])
costs = {name: [] for name in ("static batches", "iteration level", "vLLM today")}
for rate in rates:
    at_rate = sb.compare(trace.at_rate(rate, seed=0), here, systems={name: ladder[name] for name in costs})
    for name, result in at_rate.results.items():
        costs[name].append(result.metrics()["cost"]["usd_per_million_output_tokens"])
figure, ax = plt.subplots(figsize=(7, 3.8))
for (name, values), style in zip(costs.items(), ("s--", "^-.", "o-"), strict=True):
    ax.plot(rates, values, style, label=name)
ax.set(xscale="log", yscale="log", xlabel="requests per second", ylabel="USD per million output tokens")
ax.set_title("The bill goes with the hour until the load does not fit")
_ = ax.legend()

# %% [markdown]
# ## What it came to

# %%
speed, cost = table["output_tokens_per_s"], table["usd_per_million_output_tokens"]
steps = table["gain_on_the_step_before"].iloc[1:]
print(
    "Full load: "
    + " x ".join(f"{gain:.2f} ({name})" for name, gain in steps.items())
    + f" = {steps.prod():.1f} times a loop."
)
print(f"${cost.iloc[0]:.2f} per million output tokens became ${cost.iloc[-1]:.3f}.")
product = speed * cost
print(
    f"Throughput x cost is ${product.mean() * 3600 / 1e6:.2f} per hour in every row: "
    f"{np.allclose(product, product.mean(), rtol=1e-9)}."
)
ratio = np.array(costs["static batches"]) / np.array(costs["vLLM today"])
tie = rates[ratio < 1.1]
print(
    f"Up to {tie.max():g} requests per second, static batches cost within 10 % of vLLM; "
    f"at {rates[-1]:g} they cost {ratio[-1]:.1f} times as much."
    if tie.size
    else f"Even at {rates[0]:g} requests per second static batches cost {ratio[0]:.2f} times as much as vLLM."
)
slower = table["tpot_mean_s"].iloc[-1] / table["tpot_mean_s"].iloc[0]
print(
    f"The price of it: a running request gets its tokens {slower:.1f} times as slowly as alone "
    f"({1000 * table['tpot_mean_s'].iloc[-1]:.0f} ms each)."
)
