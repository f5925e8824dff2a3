"""The address space of contiguous memory over time: whose piece lies where, and what is in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from simbatch.errors import UsageError
from simbatch.show.plot.memory import COLOURS
from simbatch.show.plot.style import one_result, styled
from simbatch.units import PS_PER_NS, PS_PER_S

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from simbatch.result import Result

NS_PER_S = PS_PER_S // PS_PER_NS
_PARTS = {
    "live": "tokens in the cache",
    "reserved": "will be filled",
    "internal": "reserved, never filled",
    "external": "rounded away",
}


class Piece(NamedTuple):
    """One stay of a request at one place."""

    start: int
    """First token of the address space."""
    size: int
    reserved: int
    """The part of *size* that the reservation asked for."""
    times_s: list[float]
    """Starts of iterations, and the end of the last."""
    live: list[int]
    """Tokens in the cache at each of them."""
    fills: int
    """Tokens in the cache at the end of the request."""


@styled
def address_space(result: Result, ax: Axes, *, from_s: float = 0.0, to_s: float | None = None) -> None:
    """Pieces of contiguous memory between *from_s* and *to_s*, one rectangle per stay, coloured by use.

    Holes stay white: those between two pieces that are too small for whoever waits are external fragmentation.
    Raises UsageError for a run that was not taken step by step, or of a memory without addresses.
    """
    from matplotlib.patches import Patch

    end_s = float("inf") if to_s is None else to_s
    shown = [piece for piece in pieces_of(result) if piece.times_s[0] < end_s and piece.times_s[-1] > from_s]
    for piece in shown:
        times, bottom = piece.times_s, piece.start
        live = [bottom + tokens for tokens in piece.live]
        filled, held, top = (bottom + tokens for tokens in (piece.fills, piece.reserved, piece.size))
        flat = [bottom] * len(times)
        ax.fill_between(times, flat, live, step="post", color=COLOURS["live"], linewidth=0)
        ax.fill_between(
            times, live, [max(filled, tokens) for tokens in live], step="post", color=COLOURS["reserved"], linewidth=0
        )
        ax.fill_between(times, filled, held, color=COLOURS["internal"], linewidth=0)
        ax.fill_between(times, held, top, color=COLOURS["external"], linewidth=0)
        ax.plot(
            [times[0], times[-1], times[-1], times[0], times[0]],
            [bottom, bottom, top, top, bottom],
            color="white",
            linewidth=0.6,
        )
    ax.set_ylim(0, result.facts.capacity_tokens)
    if shown:
        ax.set_xlim(
            max(from_s, min(piece.times_s[0] for piece in shown)), min(end_s, max(piece.times_s[-1] for piece in shown))
        )
    ax.set_xlabel("simulated time (s)")
    ax.set_ylabel("address (tokens)")
    memory = result.config.get("memory") or {}
    ax.set_title(f"Who lies where: reserve {memory.get('reserve')}, placed {memory.get('placement')}")
    ax.grid(False)
    ax.legend(
        handles=[
            *(Patch(color=COLOURS[name], label=f"{name}: {meaning}") for name, meaning in _PARTS.items()),
            Patch(facecolor="white", edgecolor="#9A9A9A", label="free"),
        ],
        loc="upper center",
        bbox_to_anchor=(0.5, -0.16),
        ncols=3,
        fontsize="small",
    )


def pieces_of(result: Result) -> list[Piece]:
    """Every stay of a request in contiguous memory, in order of its start."""
    if one_result(result).facts.replicas > 1:
        raise UsageError("several replicas have an address space each. Draw a run of one.")
    if not result.decisions or "pieces" not in result.decisions[0]:
        raise UsageError(
            "the run does not say where pieces lay. Run it step by step in contiguous memory: "
            "simulate(..., system='orca-max', step=True)."
        )
    lengths = {
        str(id_): int(prompt + output) - 1
        for id_, prompt, output in zip(
            result.facts.ids,
            result.facts.requests["prompt_tokens"],
            result.facts.requests["output_tokens"],
            strict=True,
        )
    }
    open_: dict[tuple[Any, ...], Piece] = {}
    found: list[Piece] = []
    end_s = 0.0
    for step in result.decisions:
        begin_s = step["t0"] / NS_PER_S
        computed = {who: before for who, _, before in step["sched"]}
        now = {tuple(piece) for piece in step["pieces"]}
        for key in [key for key in open_ if key not in now]:
            _close(open_.pop(key), end_s)
        for key in now:
            who, start, size, reserved = key
            if key not in open_:
                open_[key] = Piece(start, size, reserved, [], [], min(reserved, lengths[who]))
                found.append(open_[key])
            piece = open_[key]
            piece.times_s.append(begin_s)
            piece.live.append(computed.get(who, piece.live[-1] if piece.live else 0))
        end_s = step["t1"] / NS_PER_S
    for piece in open_.values():
        _close(piece, end_s)
    return found


def _close(piece: Piece, end_s: float) -> None:
    piece.times_s.append(end_s)
    piece.live.append(piece.live[-1])
