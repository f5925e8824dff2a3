# %% [markdown]
# # Size a deployment
#
# A chat service is to answer 60 requests per second. Nine of ten must have their first token within half a second and
# every next one within 40 ms on average. Which GPU, how many of them, and what does it cost? Then the questions that
# follow: what binds, what a looser limit saves, what bursts and a wrong timing would do.
#
# Prices are examples and inputs. Iteration times come from the best bundled profile of each card.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import simbatch as sb

WANTED_PER_S = 60
LIMITS = {"ttft_s": 0.5, "tpot_s": 0.04}
USD_PER_GPU_HOUR = {"h100": 2.99, "h200": 3.79, "a100-80gb": 1.79}
here = sb.Deployment("llama-2-13b", max_model_len=2048)
trace = sb.Trace.load("sharegpt").sample(2000, seed=0)
trace

# %% [markdown]
# ## What fits
#
# The first thing people compute: memory less weights, over what a sequence holds. It says how many can be in the
# batch, and nothing about limits.

# %%
cards = {gpu: here.replace(gpu=gpu, price_usd_per_hour=usd) for gpu, usd in USD_PER_GPU_HOUR.items()}
fits = pd.DataFrame(
    {
        gpu: {
            "KV tokens": sb.capacity(card).kv_tokens.value,
            "sequences of the mean length": sb.capacity(
                card, length_tokens=int((trace.prompt_tokens + trace.output_tokens).mean())
            ).sequences.value,
            "sequences of 2,048 tokens": sb.capacity(card).sequences.value,
        }
        for gpu, card in cards.items()
    }
).T
fits.astype(int)

# %% [markdown]
# ## The highest rate within the limits
#
# For each card, by simulation: the rate is raised until fewer than 90 % of requests keep both limits. Three seeds give
# the interval.

# %%
sized = sb.size(
    trace, here, over={"gpu": list(cards)}, price_usd_per_hour=USD_PER_GPU_HOUR, seeds=3, requests=1000, **LIMITS
)
table = sized.frame().set_index("gpu")
table[
    ["rate_per_replica_per_s", "rate_low_per_s", "rate_high_per_s", "usd_per_million_output_tokens", "bound_by"]
].round(2)

# %%
figure, axes = plt.subplots(1, 3, figsize=(15, 4), layout="constrained")
sb.plot.rate_latency(sized, axes[0])
sb.plot.goodput(sized, axes[1])
_ = sb.plot.capacity_per_dollar(sized, axes[2])

# %% [markdown]
# ## How many
#
# Replicas behind a router are simulated together, since a router does not share out evenly: the fewest that hold the
# rate with every seed.

# %%
gpu = sized.best.varied["gpu"]
best = cards[gpu]
answer = sb.size(trace, best, rate_per_s=WANTED_PER_S, seeds=2, requests=1000, **LIMITS)
checks = pd.DataFrame(answer.metrics()["checks"]).set_index("replicas")
alone = answer.metrics()["rate_per_replica"]["mean"]
print(f"{WANTED_PER_S} / {alone:.1f} = {WANTED_PER_S / alone:.2f} replicas by division; simulated together:")
checks.assign(shares=[", ".join(f"{share:.1%}" for share in shares) for shares in checks["shares"]])

# %% [markdown]
# ## What one fewer does
#
# The same requests on the number found and on one less: where the time goes, and who pays.

# %%
count = answer.best.replicas
load = trace.at_rate(WANTED_PER_S, seed=1)
runs = {f"{replicas} replicas": sb.simulate(load, best, replicas=replicas) for replicas in (count, count - 1)}
figure, axes = plt.subplots(1, 2, figsize=(12, 3.6), layout="constrained")
sb.plot.wait_reasons(runs, axes[0])
_ = sb.plot.latency_cdf(runs, axes[1], metric="ttft", limit_s=LIMITS["ttft_s"])
change = sb.diff(*runs.values(), names=tuple(runs))
change

# %% [markdown]
# ## What a limit costs
#
# The highest rate of one replica under stricter limits, and with it the price of a token. Runs are as long as above:
# a short one ends before its queue has grown, and flatters.

# %%
costs = []
for tpot_ms in (20, 30, 40):
    limits = {**LIMITS, "tpot_s": tpot_ms / 1000}
    strict = answer if limits == LIMITS else sb.size(trace, best, seeds=2, requests=1000, **limits)
    rate = strict.best.rate.mean
    costs.append(
        {
            "TPOT limit, ms": tpot_ms,
            "requests/s": rate,
            "GPUs by division": np.ceil(WANTED_PER_S / rate),
            "USD per million output tokens": strict.best.usd_per_million("output_tokens", rate) / strict.best.replicas,
            "what breaks first": strict.best.bound_by["limit"],
        }
    )
costs = pd.DataFrame(costs).set_index("TPOT limit, ms")
costs.round(2)

# %% [markdown]
# ## What if
#
# Arrivals that come in bursts, and iterations that take longer than the profile says by the error that it states.

# %%
bursty = sb.size(trace, best, seeds=2, requests=1000, burstiness=0.25, **LIMITS).best.rate.mean
rates = answer.best.rates()
slower = rates.get("timing_error", {"low": rates["mean"], "relative": 0.0})
whatif = pd.Series(
    {
        "as it is": rates["mean"],
        "arrivals in bursts (gamma, 0.25)": bursty,
        f"iterations {slower['relative']:.0%} longer": slower["low"],
    },
    name="requests/s of one replica",
)
whatif.round(1).to_frame()

# %% [markdown]
# ## What it came to

# %%
cost = answer.best
print(
    f"{count} x {gpu.upper()} for {WANTED_PER_S} requests/s: ${cost.usd_per_hour:.2f} per hour, "
    f"${cost.usd_per_million('output_tokens', WANTED_PER_S):.3f} per million output tokens."
)
dollars = table["usd_per_million_output_tokens"].astype(float)
print(f"Dearest for the same tokens is {dollars.idxmax()}: {dollars.max() / dollars.min():.2f} times the cost.")
by_division = int(np.ceil(WANTED_PER_S / alone))
print(
    f"By division {by_division} would do, simulated together it takes {count}."
    if by_division != count
    else f"Division and simulation agree on {count}."
)
lost = change.metrics()
print(
    f"One fewer makes {lost['losers']['requests'] / lost['all']['requests']:.0%} of requests slower, "
    f"by {lost['losers']['change_s']:.2f} s on average."
)
tight, wide = costs["requests/s"].iloc[0], costs["requests/s"].iloc[-1]
print(f"A TPOT limit of {costs.index[0]} ms instead of {costs.index[-1]} ms costs {1 - tight / wide:.0%} of the rate.")
worst = whatif.idxmin()
print(f"To reckon with: {worst}, {whatif.min() / whatif.iloc[0] - 1:+.0%} of the rate.")
