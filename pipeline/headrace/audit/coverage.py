"""Which of the counted ranges of a partition are believed: a chain without gap or overlap.

Ranges are published at least once, and two counters may run at the same time for a while; the tallies of a range cannot
be split. So the believed ranges are those of the longest chain in which each begins exactly where the one before ends.
The youngest ranges are held, believed or not, so that the chain may still go over to another counter's ranges when one
of two ends. Offsets behind a gap are not counted yet. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from headrace.audit.records import Counted, Standstill

HELD_MAX: Final = 64
"""Ranges of a partition that are held before the oldest of the chain is folded for good."""
WAITING_MAX: Final = 4096
"""Ranges behind a gap that are held; further ones are dropped and counted again after the counter's next start."""

Link = Counted | Standstill


@dataclass(slots=True)
class Coverage:
    """The counted ranges of one partition in one tier; a skipped range is a link without tallies."""

    origin: int = -1
    """Where counting began; -1: it has not."""
    base: int = -1
    """Below it all is folded."""
    held: list[Link] = field(default_factory=list)
    chain: list[Link] = field(default_factory=list)
    position: int = -1
    """Everything from the first range up to here is counted; -1: nothing."""

    def add(self, item: Link) -> bool:
        """Take a range; returns whether it is new (it may still overlap others and stay out of the chain)."""
        if self.base < 0:
            self.origin = self.base = self.position = item.first
        if item.next <= item.first or item.first < self.base or len(self.held) >= WAITING_MAX:
            return False
        if any((known.first, known.next) == (item.first, item.next) for known in self.held):
            return False
        self.held.append(item)
        if item.first == self.position:
            self.chain.append(item)
            self.position = item.next
        if any(known.next > self.position for known in self.held):
            self._link()
        return True

    def fold(self) -> list[Link]:
        """Take the oldest links of the chain for good, when more ranges are held than need be."""
        folded: list[Link] = []
        while len(self.held) > HELD_MAX and self.chain:
            folded.append(self.chain.pop(0))
            self.base = folded[-1].next
            self.held = [item for item in self.held if item.first >= self.base]
        return folded

    @property
    def gap(self) -> tuple[int, int] | None:
        """The offsets that are not counted although later ones are."""
        beyond = [item.first for item in self.held if item.first > self.position]
        return (self.position, min(beyond)) if beyond else None

    def _link(self) -> None:
        """Find the chain from the base that reaches furthest."""
        reached: dict[int, Link | None] = {self.base: None}
        for item in sorted(self.held, key=lambda item: (item.first, item.next)):
            if item.first in reached:
                reached.setdefault(item.next, item)
        self.position = max(reached)
        chain: list[Link] = []
        link = reached[self.position]
        while link is not None:
            chain.append(link)
            link = reached[link.first]
        self.chain = chain[::-1]
