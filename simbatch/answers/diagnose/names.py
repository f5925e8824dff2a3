"""Metric names by engine: what each calls the same thing, newest first.

A name without its suffix: counters appear with `_total`, histograms with `_sum`, `_count` and `_bucket`.
Names were read in the engines' sources and documentation; those of SGLang's retractions are not certain and
left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Names:
    """One engine's names. Each is tried in turn."""

    engine: str
    prefix: str
    running: tuple[str, ...]
    waiting: tuple[str, ...]
    kv_usage: tuple[str, ...] = ()
    kv_tokens: tuple[str, ...] = ()
    swapped: tuple[str, ...] = ()
    config: str = ""
    """The series whose labels are settings."""
    counters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """prompt_tokens, generation_tokens, finished, preemptions, prefix_queries, prefix_hits."""
    histograms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """ttft, tpot, queue, e2e, prompt_length, output_length, tokens_per_step."""


VLLM = Names(
    engine="vllm",
    prefix="vllm:",
    running=("vllm:num_requests_running",),
    waiting=("vllm:num_requests_waiting",),
    swapped=("vllm:num_requests_swapped",),
    kv_usage=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    config="vllm:cache_config_info",
    counters={
        "prompt_tokens": ("vllm:prompt_tokens",),
        "generation_tokens": ("vllm:generation_tokens",),
        "finished": ("vllm:request_success",),
        "preemptions": ("vllm:num_preemptions",),
        "prefix_queries": ("vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries"),
        "prefix_hits": ("vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits"),
    },
    histograms={
        "ttft": ("vllm:time_to_first_token_seconds",),
        "tpot": ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
        "queue": ("vllm:request_queue_time_seconds", "vllm:time_in_queue_requests"),
        "e2e": ("vllm:e2e_request_latency_seconds",),
        "prompt_length": ("vllm:request_prompt_tokens",),
        "output_length": ("vllm:request_generation_tokens",),
        "tokens_per_step": ("vllm:iteration_tokens_total",),
    },
)
SGLANG = Names(
    engine="sglang",
    prefix="sglang:",
    running=("sglang:num_running_reqs",),
    waiting=("sglang:num_queue_reqs",),
    kv_usage=("sglang:token_usage", "sglang:kv_cache_usage_perc"),
    kv_tokens=("sglang:max_total_num_tokens", "sglang:kv_cache_total_tokens"),
    counters={
        "prompt_tokens": ("sglang:prompt_tokens",),
        "generation_tokens": ("sglang:generation_tokens",),
        "finished": ("sglang:num_requests",),
    },
    histograms={
        "ttft": ("sglang:time_to_first_token_seconds",),
        "tpot": ("sglang:inter_token_latency_seconds", "sglang:time_per_output_token_seconds"),
        "queue": ("sglang:queue_time_seconds",),
        "e2e": ("sglang:e2e_request_latency_seconds",),
    },
)
TGI = Names(
    engine="tgi",
    prefix="tgi_",
    running=("tgi_batch_current_size",),
    waiting=("tgi_queue_size",),
    kv_tokens=("tgi_batch_max_total_tokens",),
    counters={"finished": ("tgi_request_success",)},
    histograms={
        "tpot": ("tgi_request_mean_time_per_token_duration",),
        "queue": ("tgi_request_queue_duration",),
        "e2e": ("tgi_request_duration",),
        "prompt_length": ("tgi_request_input_length",),
        "output_length": ("tgi_request_generated_tokens",),
    },
)
TGI_BOOKED = "tgi_batch_current_max_tokens"
"""Over `tgi_batch_max_total_tokens`: a booked share, since outputs to come are counted."""

ENGINES = (VLLM, SGLANG, TGI)
REFUSED: Mapping[str, str] = {
    "llamacpp:": "llama.cpp",
    "trtllm": "TensorRT-LLM",
    "tensorrt_llm": "TensorRT-LLM",
    "nv_trt_llm": "TensorRT-LLM (Triton)",
    "nv_inference": "Triton",
    "lmdeploy:": "LMDeploy",
    "dynamo_": "NVIDIA Dynamo",
    "ray_vllm": "vLLM behind Ray Serve",
    "ollama": "Ollama",
    "exo_": "exo",
}
"""Beginnings of names that other servers' pages have, and whose they are."""
