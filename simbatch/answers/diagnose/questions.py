"""The three questions to ask of any server, and what the input says to each. It says nothing that is not there."""

from __future__ import annotations

from simbatch.answers.diagnose.diagnosis import Answer
from simbatch.answers.diagnose.signals import number
from simbatch.answers.diagnose.view import View, percent, show

_PAGED = {"vllm": True, "sglang": True, "tgi": True, "naive": False, "static": False, "orca": False}
NOT_SAID = "the input does not say"


def questions(view: View) -> tuple[Answer, Answer, Answer]:
    """The batch while requests queue; how much memory is KV cache and how much of it lives; is it paged."""
    return _batch(view), _memory(view), _paged(view)


def _batch(view: View) -> Answer:
    question = "How large is the batch on average while requests queue?"
    mean = view.number("running_while_queueing")
    if mean is None:
        looks = [(number(look.get("running")), number(look.get("waiting"))) for look in view.looks]
        batches = [running for running, waiting in looks if running is not None and waiting]
        if not batches:
            nobody = view.waiting is not None and all(waiting == 0 for _, waiting in looks)
            return Answer(question, "nobody queued when it was looked at" if nobody else NOT_SAID)
        mean = sum(batches) / len(batches)
    limit = view.number("max_num_seqs")
    return Answer(
        question,
        f"{show(mean)} sequence{'' if mean == 1 else 's'}" + (f", of {show(limit)} that may run" if limit else ""),
        mean,
    )


def _memory(view: View) -> Answer:
    question = "What share of GPU memory is KV cache, and what share of that is live?"
    share, live, held = view.number("kv_memory_share"), view.number("live_share"), view.kv_usage
    total, pool = view.number("gpu_total_gib"), view.number("kv_gib")
    if share is None and total and pool is not None:
        share = pool / total
    said = []
    if share is not None:
        said.append(f"{percent(share)} of GPU memory is KV cache")
    if live is not None:
        said.append(f"{percent(live)} of it holds tokens")
    elif held is not None and view.text("engine").startswith("tgi"):
        said.append(f"{percent(held)} of it is booked for running requests, outputs to come included")
    elif held is not None:
        said.append(f"{percent(held)} of it is held by running requests, nearly all of it live where it is paged")
    if not said:
        return Answer(question, NOT_SAID)
    if share is None:
        said.insert(0, "its share of GPU memory is not in the input")
    return Answer(question, "; ".join(said), {"kv_memory_share": share, "live_share": live, "held_share": held})


def _paged(view: View) -> Answer:
    question = "Is the KV cache paged?"
    paged = view.signals.get("paged")
    engine = view.text("engine").lower()
    if paged is None:
        paged = next((value for name, value in _PAGED.items() if engine.startswith(name)), None)
    if paged is None:
        return Answer(question, NOT_SAID)
    return Answer(question, "yes: blocks on demand" if paged else "no: one piece a request, reserved in advance", paged)
