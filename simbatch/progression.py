"""Arithmetic progressions of iteration times: iteration j, from 0, lasts first + j·increment picoseconds."""

from __future__ import annotations

from math import isqrt


def span(iterations: int, first_ps: int, increment_ps: int) -> int:
    """Time of *iterations* of a progression.

    >>> span(3, 10, 2)
    36
    """
    return iterations * first_ps + increment_ps * (iterations * (iterations - 1) // 2)


def iterations_by(elapsed_ps: int, first_ps: int, increment_ps: int) -> int:
    """Iterations of a progression, at least one, that have ended by *elapsed_ps* or are then in flight.

    The smallest n with span(n) >= elapsed: what happens exactly on a boundary is seen there.

    >>> [iterations_by(elapsed, 10, 2) for elapsed in (0, 10, 11, 22, 23)]
    [1, 1, 2, 2, 3]
    """
    if elapsed_ps <= first_ps:
        return 1
    if increment_ps == 0:
        return -(-elapsed_ps // first_ps)
    # span(n) = (b·n + a·n²) / 2 with a = increment and b = 2·first - increment: the root, rounded down.
    first_ps, increment_ps, elapsed_ps = int(first_ps), int(increment_ps), int(elapsed_ps)  # beyond 64 bits
    b = 2 * first_ps - increment_ps
    n = (isqrt(max(0, b * b + 8 * increment_ps * elapsed_ps)) - b) // (2 * increment_ps)
    if increment_ps > 0:
        return n if n * first_ps + increment_ps * (n * (n - 1) // 2) >= elapsed_ps else n + 1
    # Of a falling progression the parabola turns: from the root, step by step.
    n = max(1, n)
    while span(n, first_ps, increment_ps) < elapsed_ps:
        n += 1
    while n > 1 and span(n - 1, first_ps, increment_ps) >= elapsed_ps:
        n -= 1
    return n
