# %% [markdown]
# # When batching does not help
#
# Batching shares the reading of the weights, and iteration-level scheduling fills seats that others have left. Where
# there is nobody to share with, nothing to fill, or something else to wait for, neither brings anything. Five such
# cases, each found by running it. Iteration times are those of a profile of the H100, moved to these models.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import simbatch as sb

here = sb.Deployment("llama-3.1-8b", gpu="h100", max_model_len=8192)
findings = {}


def tokens_per_s(trace, deployment=here, **options):
    return sb.simulate(trace, deployment, **options).metrics()["throughput"]["total_tokens_per_s"]


# %% [markdown]
# ## 1. One user
#
# Whoever waits for an answer before asking again never meets anybody.

# %%
chat = sb.Trace.load("sharegpt").sample(60, seed=0)
alone = sb.compare(chat, here, systems=["naive", "static", "orca-max", "vllm-v0", "vllm"], concurrency=1)
speeds = alone.frame()["output_tokens_per_s"]
findings["one user: best system over worst"] = speeds.max() / speeds.min()
alone.frame()[["output_tokens_per_s", "tpot_mean_s", "ttft_mean_s", "running_mean"]].round(4)

# %% [markdown]
# What does help one user: fewer bytes for each token. (Speculative decoding would too: several tokens for one reading
# of the weights. It is not modelled here.)

# %%
smaller = {
    "16-bit weights": here,
    "fp8 weights": here.replace(quantization="fp8"),
    "int4 weights": here.replace(quantization="awq"),
    "3B model": here.replace(model="llama-3.2-3b"),
}
single = {
    name: sb.simulate(chat, one, concurrency=1).metrics()["latency_s"]["tpot"]["mean"] for name, one in smaller.items()
}
for name, tpot_s in single.items():
    print(
        f"{name:<15} {smaller[name].weights_bytes / 1e9:5.1f} GB read  {1000 * tpot_s:5.2f} ms per token  "
        f"{single['16-bit weights'] / tpot_s:4.2f} times as fast"
    )

# %% [markdown]
# ## 2. Everybody asks for the same
#
# A static batch loses by waiting for its longest member. Where all are equally long it loses nothing.

# %%
seats = 16
drawn = np.random.default_rng(0)
for name, lengths in (
    ("equal", np.full(320, 128)),
    ("exponential", np.maximum(1, drawn.exponential(128, 320).astype(int))),
):
    offline = sb.Trace.from_lengths([256] * 320, lengths.tolist())
    static = tokens_per_s(offline, system="static", batch_size=seats)
    level = tokens_per_s(offline, system="orca-max", max_num_seqs=seats)
    findings[f"{name} lengths: iteration level over static, {seats} seats"] = level / static
    print(
        f"{name:<12} lengths: static {static:7,.0f} tokens/s, iteration level {level:7,.0f}: {level / static:.2f} times"
    )
harmonic = sum(1 / k for k in range(1, seats + 1))
print(f"Theory for decodes alone: 1 for equal lengths, {harmonic:.2f} for exponential ones (the prompts dilute it).")

# %% [markdown]
# ## 3. Prompts and hardly any output, 4. long contexts
#
# A prompt of thousands of tokens keeps the arithmetic units busy all by itself, and a long context is a cache to read
# that nobody shares. Here the seats are varied and everything else stays.

# %%
loads = {
    "chat: 200 in, 200 out": sb.Trace.from_lengths([200] * 256, [200] * 256),
    "long context: 7,900 in, 200 out": sb.Trace.from_lengths([7900] * 64, [200] * 64),
    "classify: 2,000 in, 1 out": sb.Trace.from_lengths([2000] * 128, [1] * 128),
}
batches = [1, 2, 4, 8, 16, 32, 64]
scaling = pd.DataFrame(
    {name: [tokens_per_s(load, max_num_seqs=batch) for batch in batches] for name, load in loads.items()}, index=batches
)
scaling = scaling / scaling.iloc[0]
for name in loads:
    findings[f"{name}: 64 seats over 1"] = scaling[name].iloc[-1]
long = loads["long context: 7,900 in, 200 out"]
prompts_only = sb.Trace.from_lengths(long.prompt_tokens, [1] * len(long))
whole, prompts = (
    sb.simulate(load, here, max_num_seqs=64).metrics()["simulation"]["makespan_s"] for load in (long, prompts_only)
)
print(f"Long contexts on 64 seats: {prompts / whole:.0%} of the time is what their prompts alone take.")
scaling.rename_axis("seats").round(2)

# %%
figure, ax = plt.subplots(figsize=(7, 4))
for name, style in zip(scaling, ("o-", "s--", "^-."), strict=True):
    ax.plot(batches, scaling[name], style, label=name)
ax.plot(batches, batches, ":", color="#9A9A9A", label="if a batch were free")
ax.set(xscale="log", yscale="log", xlabel="seats (max_num_seqs)", ylabel="throughput, times that of one seat")
ax.set_xticks(batches, [str(batch) for batch in batches])
ax.minorticks_off()
ax.set_title("What a larger batch brings")
_ = ax.legend()

# %% [markdown]
# ## 5. A machine that is not full
#
# What arrives is what is served. A better engine shortens the wait, and the bill stays.

# %%
quiet = sb.Trace.load("sharegpt").sample(300, seed=0).at_rate(1, seed=0)
priced = sb.compare(quiet, here.replace(price_usd_per_hour=2.99), systems=["static", "orca-max", "vllm"])
frame = priced.frame()
findings["1 request/s: cost of static over cost of vLLM"] = (
    frame.loc["static", "usd_per_million_output_tokens"] / frame.loc["vllm", "usd_per_million_output_tokens"]
)
frame[
    ["verdict", "output_tokens_per_s", "usd_per_million_output_tokens", "ttft_mean_s", "tpot_mean_s", "running_mean"]
].round(3)

# %% [markdown]
# ## What it came to
#
# A factor below 1.1 is called nothing, one below 1.5 little, one of 10 and more much.

# %%
for name, factor in findings.items():
    word = "nothing" if factor < 1.1 else "little" if factor < 1.5 else "some" if factor < 10 else "much"
    print(f"{name:<58} {factor:6.2f}  {word}")
first = frame.loc["static", "ttft_mean_s"] / frame.loc["vllm", "ttft_mean_s"]
print(f"\nThe quiet machine costs about the same either way, but the first token comes {first:.0f} times sooner.")
