"""What must be done to the turns of a conversation when all rows of a file are there.

Both functions change a table in place: one adds the history to prompts that hold only what is new,
the other names conversations whose rows point at the turn before.
"""

from __future__ import annotations

from array import array

from simbatch.errors import UsageError
from simbatch.trace.columns import MAX_TOKENS, NOT_GIVEN, PREFIX
from simbatch.trace.identity import Segment, segments_of
from simbatch.trace.table import NO_TIME, Table


def accumulate_turns(table: Table) -> None:
    """Each turn's prompt becomes all prompts and answers before it, then its own; says so in segments.

    A turn without a time gets that of its session's first: it comes when the turn before has ended.
    Raises UsageError where a first turn has no time and others do.
    """
    columns = table.columns
    columns.setdefault("id", [str(place) for place in table.order])
    _give_times(table)
    ids = columns["id"]
    names = [name for name in PREFIX if name in columns]
    identity = {name: columns.pop(name) for name in names}
    history: dict[str, list[Segment]] = {}
    segments = []
    prompts, outputs = columns["prompt_tokens"], columns["output_tokens"]
    for row, session in enumerate(columns["session"]):
        new = segments_of(identity, row, ids[row], prompts[row]) or ((f"r:{ids[row]}", 0, prompts[row]),)
        before = history.setdefault(session, []) if session else []
        whole = [*before, *new]
        prompts[row] = sum(length for _, _, length in whole)
        if prompts[row] > MAX_TOKENS:
            raise UsageError(
                f"{table.name} line {table.lines[row]}: with its history the prompt has {prompts[row]} tokens, "
                f"but the most that can be simulated is {MAX_TOKENS}. Cut the session."
            )
        segments.append(tuple(whole))
        before[:] = [*whole, (f"o{ids[row]}", 0, outputs[row])]
    columns["segments"] = segments


def _give_times(table: Table) -> None:
    times = table.columns.get("arrival_s")
    if times is None:
        return
    starts: dict[str, int] = {}
    for row, session in enumerate(table.columns["session"]):
        if times[row] == NO_TIME:
            if session not in starts:
                raise UsageError(
                    f"{table.name} line {table.lines[row]}: the first turn of a session has no timestamp, "
                    "but others have. Give it one, or take all of them out."
                )
            times[row] = starts[session]
        starts.setdefault(session, times[row])
    table.put(sorted(range(len(times)), key=lambda row: times[row]))


def name_by_root(table: Table) -> None:
    """Labels of sessions become the id of their first turn: rows name the turn before them, or -1."""
    columns = table.columns
    root: dict[str, str] = {}
    for row, (id, before) in enumerate(zip(columns["id"], columns["session"], strict=True)):
        root[id] = columns["session"][row] = id if before in ("-1", "") else root.get(before, before)
    turns = columns.get("turn")
    if turns is not None and NOT_GIVEN not in turns and min(turns) > 0:
        columns["turn"] = array("q", [turn - 1 for turn in turns])
