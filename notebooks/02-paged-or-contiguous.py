# %% [markdown]
# # Paged or contiguous?
#
# Four ways to give out KV memory, under the same iteration-level scheduler and on the same requests. What differs is
# the memory, and nothing else: three reserve a contiguous piece for each request when it is admitted, one hands out
# blocks of 16 tokens as they are needed. Iteration times are those of a profile of the H100, moved to this
# model; who fits hardly depends on them.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import simbatch as sb

here = sb.Deployment("llama-13b", gpu="h100", max_model_len=2048)
trace = sb.Trace.load("sharegpt").sample(500, seed=1).at_rate(20, seed=1)
memories = {
    "max": {"system": "orca-max"},
    "pow2": {"system": "orca-pow2"},
    "oracle": {"system": "orca-oracle"},
    "paged": {"system": "orca-max", "memory": "paged"},
}
found = sb.compare(trace, here, systems=memories)
print(here)
prompt, output = trace.prompt_tokens.mean(), trace.output_tokens.mean()
print(f"{prompt:.0f} prompt and {output:.0f} output tokens on average, of 2,048 allowed")

# %% [markdown]
# *max* reserves the longest request that is allowed. *pow2* guesses the output to within a factor of two. *oracle*
# knows it, which no real server does. Their pieces are placed by a buddy allocator, as in the PagedAttention paper.
#
# ## Where the memory goes

# %%
figure, axes = plt.subplots(2, 2, figsize=(12, 8.4), layout="constrained")
for (name, result), ax in zip(found.results.items(), axes.flat, strict=True):
    sb.plot.kv_memory(result, ax)
    ax.set_title(name, loc="left")
    if name != "paged":
        ax.get_legend().remove()

# %% [markdown]
# The pictures include the time when nobody waits any more. The fair question is what memory holds **while somebody
# waits for it**.


# %%
def while_waiting(result):
    """Time-weighted means over the stretches in which the queue is not empty; shares in per cent."""
    steps = result.steps[result.steps["waiting"] > 0]
    weights = steps["end_s"] - steps["start_s"]
    mean = (
        steps[["running", "live", "reserved", "internal", "external", "free"]].mul(weights, axis=0).sum()
        / weights.sum()
    )
    return pd.concat([mean[:1], 100 * mean[1:] / result.facts.capacity_tokens])


split = pd.DataFrame({name: while_waiting(result) for name, result in found.results.items()}).T
split.round(1)

# %%
for name, row in split.iterrows():
    unused = 100 - row["live"]
    print(
        f"{name:<7} runs {row['running']:5.1f} and holds {row['live']:4.1f} % live tokens; of the "
        f"{unused:4.1f} % that are "
        f"not, {row['reserved']:4.1f} will be used, {row['internal']:4.1f} never, {row['external']:4.1f} "
        "are between pieces."
    )
tokens = found.results["max"].facts.capacity_tokens
print(f"\nReserving the maximum seats at most {tokens // 2048}, whatever the lengths: {tokens:,} tokens // 2,048.")

# %% [markdown]
# ## Is it the pieces, or the allocator?
#
# A buddy allocator rounds every piece up to a power of two. First fit rounds nothing and merges its holes.

# %%
placed = {"buddy": {"system": "orca-oracle"}, "first-fit": {"system": "orca-oracle", "placement": "first-fit"}}
by_placement = sb.compare(trace, here, systems=placed)
where = pd.DataFrame({name: while_waiting(result) for name, result in by_placement.results.items()}).T
print(where.round(1).to_string())
gap = split.loc["paged", "running"] - where.loc["buddy", "running"]
closed = where.loc["first-fit", "running"] - where.loc["buddy", "running"]
print(
    f"\nWith known lengths, first fit alone closes {closed / gap:.0%} of the distance in running requests "
    "between buddy and paged."
)

# %% [markdown]
# ## What a block costs
#
# Paging wastes the rest of each sequence's last block: (block - 1) / 2 tokens on average, whatever the length. Counted
# at the start of an iteration there is one more, the place of the token that is being computed.

# %%
rows = []
for block_size in (1, 16, 64, 256):
    result = sb.simulate(trace, here, system="orca-max", memory="paged", block_size=block_size, kv_tokens=49_152)
    steps = result.steps[result.steps["prefill_tokens"] == 0]  # a prompt's blocks are taken before it is computed
    weights = (steps["end_s"] - steps["start_s"]) * steps["running"]
    rest = (steps["reserved"] + steps["internal"]) / steps["running"]
    rows.append(
        {
            "block_size": block_size,
            "unfilled tokens per sequence": (rest * weights).sum() / weights.sum(),
            "(block - 1) / 2": (block_size - 1) / 2,
            "output tokens/s": result.metrics()["throughput"]["output_tokens_per_s"],
        }
    )
blocks = pd.DataFrame(rows).set_index("block_size")
blocks.round(1)

# %% [markdown]
# ## And at a rate that anybody can carry?

# %%
rates = (2, 4, 6, 8, 12, 16, 20)
curves = {name: [] for name in memories}
for rate in rates:
    one = sb.compare(sb.Trace.load("sharegpt").sample(500, seed=1).at_rate(rate, seed=1), here, systems=memories)
    for name, result in one.results.items():
        curves[name].append(result.metrics()["latency_s"]["ttft"]["mean"])
figure, ax = plt.subplots(figsize=(7, 3.8))
for name, style in zip(memories, ("o-", "s--", "^-.", "D-"), strict=True):
    ax.plot(rates, curves[name], style, label=name)
ax.set(
    yscale="log",
    xlabel="requests per second",
    ylabel="mean time to first token (s)",
    title="Memory matters from where it binds",
)
_ = ax.legend()

# %% [markdown]
# ## The answer

# %%
speed = {name: result.metrics()["throughput"]["output_tokens_per_s"] for name, result in found.results.items()}
print("Output tokens per second at 20 requests per second:")
for name in ("max", "pow2", "oracle"):
    print(
        f"  paged has {speed['paged'] / speed[name]:.2f} times those of {name}, and runs "
        f"{split.loc['paged', 'running'] / split.loc[name, 'running']:.1f} times as many"
    )
spread = [max(values) / min(values) for values in zip(*curves.values(), strict=True)]
alike = [rate for rate, most in zip(rates, np.maximum.accumulate(spread), strict=True) if most < 1.1]
print(
    f"At {alike[-1]} requests per second and below the four are within 10 % of each other: paging gains "
    "nothing where memory does not bind."
    if alike
    else f"Even at {rates[0]} requests per second they differ by more than 10 %."
)
worst = 100 - split.loc["paged", ["live", "free"]].sum()
print(
    f"What paging loses while somebody waits: {worst:.1f} % of the memory in last blocks; "
    f"{split.loc['paged', 'free']:.1f} % are free."
)
