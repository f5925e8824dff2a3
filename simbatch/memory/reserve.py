"""How much of a contiguous memory a sequence reserves when it is admitted, once and for all.

A piece cannot grow, so a rule must answer at least what the sequence will need. Real engines know
the prompt and a limit; the rules that use the true output are oracles, as in the PagedAttention
paper's idealised versions of Orca.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import index

from simbatch.errors import PolicyError, UsageError, unknown
from simbatch.request import Sequence

Reserve = Callable[[Sequence], int]
"""Tokens to reserve for a sequence, its padding included. A function of the sequence alone."""

RESERVES = ("max", "pow2", "oracle", "limit")


def reserve_rule(rule: str | Reserve, max_model_len: int) -> Reserve:
    """The rule of that name under *max_model_len* tokens, or a function of one's own made safe.

    max: `max_model_len`, or what a padded sequence needs beyond it. pow2: prompt plus the true
    output rounded up to a power of two, at most `max_model_len`. oracle: prompt plus true output.
    limit: prompt plus `max_tokens`. A function gives the tokens for prompt and output. Padding
    comes on top, except for max.

    Raises UsageError for an unknown name. A function of one's own raises PolicyError, when asked,
    for an answer that is no whole number or less than the sequence needs.
    """
    if max_model_len < 1:
        raise UsageError(f"max_model_len is {max_model_len} tokens. Give at least 1.")
    if not isinstance(rule, str):
        return _checked(rule)
    if rule == "max":
        return lambda sequence: max(max_model_len, sequence.final_computed + 1)
    if rule == "pow2":
        return lambda sequence: (
            sequence.padding_tokens
            + min(sequence.prompt_tokens + (1 << (sequence.output_tokens - 1).bit_length()), max_model_len)
        )
    if rule == "oracle":
        return lambda sequence: sequence.padding_tokens + sequence.prompt_tokens + sequence.output_tokens
    if rule == "limit":
        return lambda sequence: sequence.padding_tokens + sequence.prompt_tokens + sequence.max_tokens
    raise unknown("reservation rule", rule, RESERVES, "Python also takes a function of the sequence.")


def _checked(rule: Reserve) -> Reserve:
    """*rule*, held to its word, with padding on top."""

    def reservation(sequence: Sequence) -> int:
        answer = rule(sequence)
        need = sequence.final_computed - sequence.padding_tokens
        try:
            tokens = index(answer)
        except TypeError:
            raise PolicyError(
                f"the reservation rule {reserve_name(rule)} answers {answer!r} for {sequence.id}. "
                "Answer a whole number of tokens."
            ) from None
        if tokens < need:
            raise PolicyError(
                f"the reservation rule {reserve_name(rule)} answers {tokens} tokens for {sequence.id}, which will "
                f"hold {need} at its end. A piece cannot grow: answer at least sequence.final_computed - "
                "sequence.padding_tokens."
            )
        return tokens + sequence.padding_tokens

    return reservation


def reserve_name(rule: str | Reserve) -> str:
    """How *rule* is called in messages and descriptions."""
    return rule if isinstance(rule, str) else getattr(rule, "__name__", type(rule).__name__)
