"""The parts of a latency in words, for whoever shows them."""

from __future__ import annotations

SHORT = {
    "frontend": "in front of the engine",
    "next_iteration": "next iteration",
    "kv": "KV memory full",
    "max_num_seqs": "max_num_seqs",
    "token_budget": "token budget",
    "policy": "policy, unnamed",
    "head_of_line": "behind others",
    "preempted": "preempted",
    "running": "running",
}
"""Labels of figures and tables."""
LONG = {
    "frontend": "in front of the engine (frontend_delay_s)",
    "next_iteration": "until the iteration in flight ended",
    "kv": "first in the queue, with too little KV memory free",
    "max_num_seqs": "first in the queue, with all max_num_seqs seats taken",
    "token_budget": "first in the queue, with the token budget of iterations used up",
    "policy": "in the queue, and the policy named no reason",
    "head_of_line": "in the queue behind others",
    "preempted": "preempted: thrown out, until it ran again",
    "running": "running",
}
ADVICE = {
    "frontend": "A shorter way to the engine would have let it in sooner: server, tokenizer, transport.",
    "next_iteration": "Shorter iterations would have let it in sooner: a smaller batch or token budget, a faster GPU.",
    "kv": "More KV memory would have let it in sooner: a larger GPU or more of them, a smaller KV type, or memory "
    "that reserves less.",
    "max_num_seqs": "A higher max_num_seqs would have let it in sooner.",
    "token_budget": "A larger max_num_batched_tokens would have let its prompt in sooner.",
    "policy": "The scheduler held it back of its own accord: look at its plan().",
    "preempted": "More KV memory, or fewer running at once (max_num_seqs), would have kept it in.",
}
"""What shortens a wait."""
