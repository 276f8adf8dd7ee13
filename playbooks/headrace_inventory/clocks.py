"""Clocks of machines that contradict each other, from what each showed while it was asked."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

APART_S_MAX = 0.5


def clock_problems(looks: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """One sentence for each machine whose clock is surely too far from that of the one that contradicts the fewest.

    `looks` are the results of headrace_machine by host; a host's `clock_ahead_s` are the bounds of how far its clock is ahead
    of the one that asked. A machine that is drained (`away`) counts for nothing.
    """
    bounds = {
        host: look["clock_ahead_s"]
        for host, look in looks.items()
        if "clock_ahead_s" in look and not look.get("away")
    }
    against: dict[str, set[str]] = {host: set() for host in bounds}
    for one, other in combinations(bounds, 2):
        if apart_s(bounds[one], bounds[other]) > APART_S_MAX:
            against[one].add(other)
            against[other].add(one)
    if not against:
        return []
    judge = min(against, key=lambda host: len(against[host]))
    return [
        f"The clock of {host} is {middle(bounds[host]) - middle(bounds[judge]):+.1f} s off that of {judge}: they must be within "
        f"{APART_S_MAX * 1000:.0f} ms, so have chrony keep it (chronyc makestep)."
        for host in sorted(against[judge])
    ]


def apart_s(one: list[float], other: list[float]) -> float:
    """How far the two are apart at least."""
    return max(one[0] - other[1], other[0] - one[1], 0.0)


def middle(bounds: list[float]) -> float:
    return sum(bounds) / 2
