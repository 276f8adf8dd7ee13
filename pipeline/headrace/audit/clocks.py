"""Which clocks disagree: latencies that came out negative, by the two hosts whose times they are the difference of.

Owns what is remembered of them: how many there are and by how much the earlier time is the later one. An acknowledgement
is noted when the producer hears of it, so a copy may be quicker without any clock being wrong; an event that arrives
before its own time is certain to have met two clocks. Pure; times are milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
PAIRS_MAX: Final = 1000
"""Pairs of hosts that are kept apart; beyond it both have no name."""
HOSTS_MAX: Final = 10_000
"""Names of hosts that are told from each other; beyond it a new one is nobody's."""
NOBODY: Final = ""
"""The name of a host that nobody has told."""


class Clocks(NamedTuple):
    """Two hosts at the ends of a latency."""

    datacenter: str
    span: str
    begin: str
    end: str


@dataclass(slots=True)
class Skew:
    """Negative latencies between two hosts."""

    count: int = 0
    largest_ms: int = 0
    """By how much the clock of the begin is ahead, as far as one latency shows it."""
    certain: int = 0
    """How many of the events arrived before their own time."""


@dataclass(slots=True)
class Hosts:
    """Names of hosts by small numbers, for columns of them; number 0 has no name."""

    names: list[str] = field(default_factory=lambda: [NOBODY])
    numbers: dict[str, int] = field(default_factory=lambda: {NOBODY: 0})

    def number(self, name: str) -> int:
        if name not in self.numbers:
            if len(self.names) > HOSTS_MAX:
                return 0
            self.numbers[name] = len(self.names)
            self.names.append(name)
        return self.numbers[name]


@dataclass(slots=True)
class Skews:
    """What is known of negative latencies."""

    found: dict[Clocks, Skew] = field(default_factory=dict)

    def observe(self, clocks: Clocks, behind_ms: Int64s, is_certain: npt.NDArray[np.bool_]) -> None:
        """Take latencies by how much they are below zero."""
        if clocks not in self.found and len(self.found) >= PAIRS_MAX:
            clocks = clocks._replace(begin=NOBODY, end=NOBODY)
        skew = self.found.setdefault(clocks, Skew())
        skew.count += len(behind_ms)
        skew.largest_ms = max(skew.largest_ms, int(behind_ms.max()))
        skew.certain += int(is_certain.sum())

    def as_json(self) -> list[list[Any]]:
        return [[*clocks, skew.count, skew.largest_ms, skew.certain] for clocks, skew in self.found.items()]

    @classmethod
    def from_json(cls, fields: Any) -> Skews:
        return cls({Clocks(*item[:4]): Skew(*item[4:]) for item in fields})
