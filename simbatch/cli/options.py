"""The flags, by section, spelt as those of `vllm serve` where they mean the same.

Each section is a decorator, so that verbs share whole sections. A parameter is named as the argument of
the library it becomes; one that is not given stays None, and the library's default holds.
"""

from __future__ import annotations

import click

from simbatch.cli.params import choices, column_map, count, duration, prices, seed, warmup
from simbatch.cli.verb import option, section

trace_argument = click.argument("trace", metavar="TRACE")

_reading = (
    option("--drop-bad", is_flag=True, row="--drop-bad, --sort", help="leave bad rows out; order by time"),
    option("--sort", is_flag=True, hidden=True),
    option(
        "--columns",
        type=column_map,
        metavar="OURS=FILE,..",
        row="--columns MAP, --time-unit UNIT",
        help="OURS=FILE,.. names; s, ms, us or ns",
    ),
    option("--time-unit", metavar="UNIT", hidden=True),
    option(
        "--wrap",
        "wrap_s",
        type=duration,
        row="--wrap TIME, --hash-block-tokens N",
        help="its clock restarts; size of a block",
    ),
    option("--hash-block-tokens", type=count, hidden=True),
)
reading = section("File", *_reading)

traffic = section(
    "Traffic",
    option(
        "--rate",
        "rate_per_s",
        type=float,
        metavar="R",
        row="--rate R, --time-scale F",
        help="requests/s; or recorded gaps times F",
    ),
    option("--time-scale", type=float, hidden=True),
    option(
        "--burstiness",
        type=float,
        metavar="B",
        row="--burstiness B, --arrivals WHAT",
        help="gaps, 1: Poisson (1); mmpp:.., curve:..",
    ),
    option("--arrivals", metavar="WHAT", hidden=True),
    option(
        "--concurrency",
        type=count,
        metavar="N",
        row="--concurrency N, --open-loop",
        help="N users in a closed loop; no sessions",
    ),
    option("--open-loop", is_flag=True, hidden=True),
    option(
        "--requests",
        type=count,
        metavar="N",
        row="--requests N, --sample, --n N",
        help="the first, or drawn; samples of each (1)",
    ),
    option("--sample", is_flag=True, hidden=True),
    option("--n", type=count, hidden=True),
    *_reading,
)

_model = (
    option("--model", metavar="NAME", help="or a folder, config.json (llama-3.1-8b)"),
    option("--gpu", metavar="NAME", help="see: simbatch list gpus (h100)"),
    option("-tp", "--tensor-parallel-size", type=count, metavar="N", help="GPUs that share the model (1)"),
    option("--dtype", row="--dtype, --kv-cache-dtype NAME", help="of weights; of the KV, also fp8 (auto)"),
    option("--kv-cache-dtype", hidden=True),
    option("--quantization", metavar="NAME", help="of weights: fp8, int8, int4, awq, none"),
    option("--gpu-memory-utilization", type=float, metavar="SHARE", help="of the GPU for the engine (0.92)"),
    option(
        "--num-gpu-blocks-override", "num_gpu_blocks", type=count, metavar="N", help="KV memory in blocks, not derived"
    ),
    option("--kv-tokens", type=count, metavar="N", help="KV memory in tokens, exactly"),
)
deployment = section(
    "Model and GPU",
    *_model,
    option("--price", "price_usd_per_hour", type=float, metavar="USD_PER_HOUR", help="per GPU, for the cost"),
)

_sizes = (
    option("--max-num-seqs", type=count, metavar="N", help="sequences that run at once"),
    option("--max-num-batched-tokens", type=count, metavar="N", help="tokens in an iteration"),
    option("--max-model-len", type=count, row="--max-model-len, --block-size N", help="longest request; KV block (16)"),
    option("--block-size", type=count, hidden=True),
    option(
        "--enable-chunked-prefill/--no-enable-chunked-prefill",
        default=None,
        row="--[no-]enable-chunked-prefill",
        help="compute prompts in pieces (yes)",
    ),
)
_engine = (
    *_sizes,
    option("--max-num-active-seqs", type=count, metavar="N", help="max-num-seqs for admission alone"),
    option(
        "--scheduler-reserve-full-isl/--no-scheduler-reserve-full-isl",
        default=None,
        row="--[no-]scheduler-reserve-full-isl",
        help="admit with room for the prompt (yes)",
    ),
    option("--vllm-version", metavar="V", help="rules of vllm: 0.11 or 0.33 (0.33)"),
    option("--scheduling-policy", metavar="NAME", help="fcfs or priority (fcfs)"),
    option(
        "--async-scheduling/--no-async-scheduling",
        default=None,
        row="--[no-]async-scheduling",
        help="plan while a batch runs (yes in vllm)",
    ),
    option(
        "--enable-prefix-caching/--no-enable-prefix-caching",
        default=None,
        row="--[no-]enable-prefix-caching",
        help="find blocks again (yes in vllm)",
    ),
    option("--long-prefill-token-threshold", type=count, metavar="N", help="most of a prompt at once (0: no limit)"),
    option(
        "--long-prefill-token-threshold-adaptive/--no-long-prefill-token-threshold-adaptive",
        default=None,
        row="--[no-]long-prefill-token-threshold-adaptive",
    ),
    option("--prefill-schedule-interval", type=count, metavar="N", help="prompts in every Nth iteration (1)"),
    option(
        "--watermark",
        type=float,
        row="--batch-size N, --watermark SHARE",
        help="of static; KV that joining leaves (0)",
    ),
    option("--batch-size", type=count, hidden=True),
    option("--preemption-mode", row="--preemption-mode, --swap-space X", help="vllm-v0: recompute, swap; GiB a GPU"),
    option("--swap-space", type=float, hidden=True),
)
system = section(
    "System",
    option("--system", metavar="NAME", help="see: simbatch list systems (vllm)"),
    option("--scheduler", metavar="NAME", row="--scheduler, --memory NAME", help="override a part; or module:Class"),
    option("--memory", metavar="NAME", hidden=True),
    *_engine,
    option("--reserve", row="--reserve, --placement NAME", help="max, pow2, oracle, limit; buddy, .."),
    option("--placement", hidden=True),
)
systems = section(
    "Systems",
    option("--systems", metavar="A,B,..", help="names or module:Class (all the names)"),
    *_engine,
    option("--placement", metavar="NAME", help="contiguous: buddy, first-fit, best-fit"),
)
capacity = section("Model and GPU", *_model, *_sizes)

_limits = (
    option(
        "--ttft",
        "ttft_s",
        type=duration,
        row="--ttft, --tpot, --e2e TIME",
        help="first token, each, all: 500ms, 2s",
    ),
    option("--tpot", "tpot_s", type=duration, hidden=True),
    option("--e2e", "e2e_s", type=duration, hidden=True),
)
limits = section(
    "Limits on latency",
    *_limits,
    option("--percentile", type=float, row="--percentile P, --require", help="% to keep all, or exit with 3 (90)"),
    option("--require", is_flag=True, hidden=True),
)
limits_to_show = section(
    "Limits on latency",
    *_limits,
    option("--percentile", type=float, metavar="P", help="% of requests to keep all limits (90)"),
)

_running = (
    option(
        "--timing",
        row="--timing NAME, --frontend-delay T",
        help="or linear:base_ms=5,..; before it",
    ),
    option("--frontend-delay", "frontend_delay_s", type=duration, hidden=True),
    option(
        "--seed",
        type=seed,
        default="0",
        row="--seed S, --seeds N, --warmup TIME",
        help="of draws (0); N of them; cut, or auto",
    ),
    option("--seeds", type=count, hidden=True),
    option("--warmup", "warmup_s", type=warmup, hidden=True),
    option("--replicas", type=count, row="--replicas N, --router NAME", help="round-robin, least-loaded, prefix, .."),
    option("--router", hidden=True),
    option(
        "-o",
        "--output",
        "folder",
        metavar="DIR",
        repeats=False,
        row="-o, --output DIR, --json, --quiet",
        help="save all; one object; -q: no warnings",
    ),
)
_hidden_output = (
    option("--json", "as_json", is_flag=True, repeats=False, hidden=True),
    option("-q", "--quiet", is_flag=True, repeats=False, hidden=True),
)
_output = (
    option("--json", "as_json", is_flag=True, repeats=False, row="--json, -q, --quiet", help="one object; no warnings"),
    option("-q", "--quiet", is_flag=True, repeats=False, hidden=True),
)
running = section(
    "Run",
    option("--uncertainty", is_flag=True, row="--uncertainty, --step", help="by the timing's error; one by one"),
    option("--step", is_flag=True, hidden=True),
    *_running,
    *_hidden_output,
)
running_one = section(
    "Run",
    option(
        "--uncertainty/--no-uncertainty",
        default=None,
        row="--[no-]uncertainty, --step",
        help="by the timing's error; one by one",
    ),
    option("--step", is_flag=True, hidden=True),
    *_running,
    *_hidden_output,
)
output = section("Output", *_output)
sizing = section(
    "Traffic and answer",
    option("--rate", "rate_per_s", type=float, metavar="R", help="requests/s to be served by all replicas"),
    option("--over", type=choices, multiple=True, metavar="NAME=A,B,..", help="try several: gpu=h100,l40s; tp=1,2; .."),
    option("--price", "prices", type=prices, metavar="USD_PER_HOUR", help="per GPU; or h100=2.5,l40s=0.9"),
    option("--seeds", type=count, metavar="N", help="draws of requests and arrivals (5)"),
    option("--requests", type=count, metavar="N", help="in a run (all of TRACE, at most 10,000)"),
    option("--burstiness", type=float, metavar="B", help="of gaps, 1: Poisson (1)"),
    option("--router", metavar="NAME", help="least-loaded, prefix, .. (round-robin)"),
    *_reading,
)
model = section("Model and GPU", *_model)
fitted = section(
    "What was measured",
    *_model,
    *_sizes,
    option(
        "--async-scheduling/--no-async-scheduling",
        default=None,
        row="--[no-]async-scheduling",
        help="plan while a batch runs (client)",
    ),
    option(
        "--enable-prefix-caching/--no-enable-prefix-caching",
        default=None,
        row="--[no-]enable-prefix-caching",
        help="find blocks again (client)",
    ),
)
sizing_run = section(
    "Run",
    option("--timing", metavar="NAME", help="or roofline, linear:.. (best profile)"),
    option("--seed", type=seed, default="0", row="--seed S, --jobs N", help="the first (0); processes (1)"),
    option("--jobs", "n_jobs", type=count, hidden=True),
    *_output,
)
