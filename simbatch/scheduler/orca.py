"""Orca's iteration-level scheduling: join and leave at every iteration, in the order of arrival.

A request is admitted when a seat is free and its whole reservation can be placed, so nobody ever
lacks room later and nobody is preempted. Prompts are computed whole, beside whatever decodes.
"""

from __future__ import annotations

from simbatch.scheduler.continuous import Continuous


class Orca(Continuous):
    """First come, first served, as far as seats and reservations go (Yu et al., OSDI 2022, algorithm 1).

    With a memory that reserves nothing (paged), it preempts the newest like `Continuous`.
    """
