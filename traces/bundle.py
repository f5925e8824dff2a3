"""Makes the bundled traces of other origins; see README.md beside it.

    python traces/bundle.py FOLDER [TARGET]

FOLDER holds the originals (or their beginnings) under the names below. The same input gives the
same bytes. `sharegpt` and `sharegpt-sessions` are made otherwise.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from simbatch.trace import Trace

_AZURE = "Azure/AzurePublicDataset, data/{}; CC-BY 4.0; Patel et al., Splitwise, ISCA 2024"
_BURST = "HPMLL/BurstGPT, {}; CC-BY 4.0; Wang et al., BurstGPT, KDD 2025"
_MOONCAKE = "kvcache-ai/Mooncake, FAST25-release/traces/{}; Apache-2.0; Qin et al., Mooncake, FAST 2025"
_SERVEGEN = "alibaba/ServeGen, data/{}; Apache-2.0; Xiang et al., ServeGen, NSDI 2026"


@dataclass(frozen=True)
class Bundle:
    """One bundled trace: the original's file, where that is from, what it is about, how it is read and cut."""

    file: str
    origin: str
    about: str
    rule: str
    load: dict[str, Any] = field(default_factory=dict)
    rows: int | None = None


BUNDLES = {
    "azure-conv-2023": Bundle(
        "azure/AzureLLMInferenceTrace_conv_2023_first60pct.csv.gz",
        _AZURE.format("AzureLLMInferenceTrace_conv.csv"),
        "A chat service of Azure, one hour of 2023-11-16, its first 60 %.",
        "the first 11,619 of 19,366 rows, all of them",
    ),
    "azure-code-2023": Bundle(
        "azure/AzureLLMInferenceTrace_code_2023_first60pct.csv.gz",
        _AZURE.format("AzureLLMInferenceTrace_code.csv"),
        "A code completion service of Azure, one hour of 2023-11-16, its first 60 %.",
        "the first 5,291 of 8,819 rows, all of them",
    ),
    "burstgpt": Bundle(
        "burstgpt/BurstGPT_1_rows1-240.csv",
        _BURST.format("data/BurstGPT_1.csv"),
        "ChatGPT and GPT-4 at a university, ten hours of a very quiet day.",
        "the first 240 rows, 9 failed requests left out",
        {"drop_bad": True},
    ),
    "burstgpt-sessions": Bundle(
        "burstgpt/BurstGPT_3_rows1-66.csv",
        _BURST.format("BurstGPT_3.csv"),
        "ChatGPT and GPT-4 at a university, with conversations.",
        "the first 66 rows; prompts hold their history, and who shares what with whom is not known",
    ),
    "mooncake-conversation": Bundle(
        "mooncake/conversation_trace_first6000.jsonl.gz",
        _MOONCAKE.format("conversation_trace.jsonl"),
        "Conversations with Kimi, with hashes of blocks of 512 tokens.",
        "the first 3,000 of 12,031 rows",
        rows=3_000,
    ),
    "mooncake-synthetic": Bundle(
        "mooncake/synthetic_trace_first2000.jsonl.gz",
        _MOONCAKE.format("synthetic_trace.jsonl"),
        "A mixture of public data sets, with hashes of blocks of 512 tokens.",
        "the first 1,000 of 3,993 rows",
        rows=1_000,
    ),
    "ragpulse": Bundle(
        "ragpulse/ragpulse_first4000.jsonl.gz",
        "flashserve/RAGPulse, data/0_trace.jsonl; MIT",
        "Answers from documents at a university, a week and some hours.",
        "the first 4,000 of 7,106 rows; the clock starts again after 7 days and was carried on; no prefix identity, "
        "since the lengths of the pieces are not in the file",
        {"wrap_s": 604_800},
    ),
    "servegen-m-large": Bundle(
        "servegen/language_m-large_chunk-130-trace.csv.gz",
        _SERVEGEN.format("language/m-large/chunk-130"),
        "One client of a large model of Alibaba Cloud, from its first request on.",
        "the first 5,000 requests drawn with seed 0 from its rates and lengths, prompt and output apart",
        rows=5_000,
    ),
    "servegen-deepseek-r1": Bundle(
        "servegen/reason_deepseek-r1_chunk-9-trace.csv.gz",
        _SERVEGEN.format("reason/deepseek-r1/chunk-9"),
        "One client of a reasoning model of Alibaba Cloud.",
        "all requests drawn with seed 0 from its rates and lengths, prompt and output apart",
    ),
}


def make(bundle: Bundle, folder: Path) -> Trace:
    """The trace of *bundle*, with its provenance."""
    trace = Trace.load(folder / bundle.file, **bundle.load)
    if bundle.rows is not None:
        trace = trace.head(bundle.rows)
    prompt, output = (float(tokens.mean()) for tokens in (trace.prompt_tokens, trace.output_tokens))
    lines = (
        bundle.about,
        f"origin: {bundle.origin}",
        f"rule: {bundle.rule}",
        f"rows: {len(trace)}, means {prompt:.2f} prompt and {output:.2f} output tokens",
        "made by traces/bundle.py, see traces/README.md",
    )
    return replace(trace, provenance=lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the bundled traces of other origins.")
    parser.add_argument("source", type=Path, help="folder of the originals")
    parser.add_argument("target", type=Path, nargs="?", default=Path(__file__).parent)
    arguments = parser.parse_args()
    for name, bundle in BUNDLES.items():
        make(bundle, arguments.source).save(arguments.target / f"{name}.csv.gz")


if __name__ == "__main__":
    main()
