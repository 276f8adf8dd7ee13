"""Which of the counted ranges of a partition are believed: a chain without gap or overlap, and what it cannot tell of.

Ranges are published at least once, and two counters may run at the same time for a while; the tallies of a range cannot
be split. So the believed ranges are those of the longest chain in which each begins exactly where the one before ends,
and of equally long ones that which skips least: a skipped range has no tallies, so that it may begin anywhere within.
The youngest ranges are held for some time, believed or not, so that the chain may still go over to another counter's ranges
when one of two ends. Offsets behind a gap are not counted yet; those skipped, and those before the first range, never are. A
range that is counted by its batch headers is a link like any other, but tells of no event. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from headrace.audit.period import BEGIN_MS
from headrace.audit.records import Counted, Standstill

HELD_MAX: Final = 64
"""Ranges of a partition that are held before the oldest of the chain is folded for good."""
WAITING_MAX: Final = 4096
"""Ranges behind a gap that are held; further ones are dropped and counted again after the counter's next start."""
UNKNOWN_MS: Final = 1 << 62
"""Later than any time: nobody said when."""

Link = Counted | Standstill


class Uncounted(NamedTuple):
    """Offsets [first, next) that no count will ever tell of."""

    first: int
    next: int
    until_ms: int
    """All of them were in the log by this time of the counter's clock."""

    def overlaps(self, first: int, following: int) -> bool:
        return self.first < following and first < self.next


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
    passed: list[Uncounted] = field(default_factory=list)
    """What lies below the base and was not counted."""
    may_skip: bool = False
    """Whether a range was ever held that tells of no event."""
    is_relinked: bool = False
    """Whether the chain may have other links than before; whoever follows it clears this."""
    folded_ms: int = BEGIN_MS
    """When the last range below the base was counted."""
    folded_window: int = BEGIN_MS
    """The latest window in the last range below the base that holds events."""

    def add(self, item: Link) -> bool:
        """Take a range; returns whether it is new (it may still overlap others and stay out of the chain)."""
        if self.base < 0:
            self.origin = self.base = self.position = item.first
            self.passed = [Uncounted(0, item.first, UNKNOWN_MS)] if item.first > 0 else []
        item = self._trimmed(item)
        if item.next <= item.first or item.first < self.base or len(self.held) >= WAITING_MAX:
            return False
        if any(
            (type(known), known.first, known.next) == (type(item), item.first, item.next)
            for known in self.held
        ):
            return False
        self.held.append(item)
        self.may_skip |= _tells_nothing(item)
        if item.first == self.position:
            self.chain.append(item)
            self.position = item.next
        if any(known.next > self.position or isinstance(known, Standstill) for known in self.held):
            self._link()
        self.passed = [self._dated(hole) for hole in self.passed]
        return True

    def is_due(self, before_ms: int) -> bool:
        """Whether there is something to fold."""
        return bool(self.chain) and (len(self.held) > HELD_MAX or 0 < self.chain[0].at_ms <= before_ms)

    def counted_ms(self) -> int:
        """Return when it was last counted without a gap, by the counter's clock."""
        counted = (link.at_ms for link in self.chain if isinstance(link, Counted))
        return max(counted, default=self.folded_ms)

    def window_below(self, offset: int) -> int:
        """Return the start of the latest window in the last range below an offset that holds events."""
        below = [
            link for link in self.chain if isinstance(link, Counted) and link.next <= offset and link.tallies
        ]
        return (
            max((item.window_start for item in below[-1].tallies), default=BEGIN_MS)
            if below
            else self.folded_window
        )

    def fold(self, before_ms: int = BEGIN_MS) -> list[Link]:
        """Take the oldest links of the chain for good: those counted before a time, and where more are held than need be."""
        folded: list[Link] = []
        while self.is_due(before_ms):
            link = self.chain.pop(0)
            if isinstance(link, Standstill):
                self.passed.append(self._hole(link))
            elif link.batches is not None:
                self.folded_ms = max(link.at_ms, self.folded_ms)
                self._pass_on(self._hole(link))
            else:
                self.folded_ms = max(link.at_ms, self.folded_ms)
                self.folded_window = max(
                    (item.window_start for item in link.tallies), default=self.folded_window
                )
            folded.append(link)
            self.base = link.next
            self.held = [
                item for item in map(self._trimmed, self.held) if self.base <= item.first < item.next
            ]
        return folded

    @property
    def gap(self) -> tuple[int, int] | None:
        """The offsets that are not counted although later ones are."""
        beyond = [item.first for item in self.held if item.first > self.position]
        return (self.position, min(beyond)) if beyond else None

    @property
    def has_uncounted(self) -> bool:
        """Whether `uncounted` may yield anything."""
        return self.may_skip or bool(self.passed)

    def uncounted(self) -> Iterator[Uncounted]:
        """Yield the offsets up to the position of whose events no count tells."""
        yield from self.passed
        if not self.may_skip:
            return
        yield from (self._hole(link) for link in self.chain if _tells_nothing(link))

    def _pass_on(self, hole: Uncounted) -> None:
        """Note a hole that may go on for ever as one."""
        last = self.passed[-1] if self.passed else None
        if last is not None and last.next == hole.first:
            hole = Uncounted(last.first, hole.next, max(last.until_ms, hole.until_ms))
            self.passed.pop()
        self.passed.append(hole)

    def _hole(self, link: Link) -> Uncounted:
        return self._dated(Uncounted(link.first, link.next, link.at_ms or UNKNOWN_MS))

    def _dated(self, hole: Uncounted) -> Uncounted:
        """What was counted behind a hole was in the log after it."""
        if hole.until_ms < UNKNOWN_MS:
            return hole
        later = [item.at_ms for item in self.held if isinstance(item, Counted) and item.first >= hole.next]
        return hole._replace(until_ms=min(later, default=UNKNOWN_MS))

    def _trimmed(self, item: Link) -> Link:
        """Leave out what of a skipped range lies below the base."""
        if isinstance(item, Standstill) and item.first < self.base:
            return replace(item, first=self.base)
        return item

    def _link(self) -> None:
        """Find the chain from the base that reaches furthest, and skips least on the way."""
        self.is_relinked = True
        skipped: dict[int, int] = {self.base: 0}
        links: dict[int, Link] = {}
        for item in sorted(self.held, key=_link_order):
            begins = [item.first]
            if isinstance(item, Standstill):
                begins = [at for at in skipped if item.first <= at < item.next]
            for begin in (at for at in begins if at in skipped):
                cost = skipped[begin] + (item.next - begin if isinstance(item, Standstill) else 0)
                if cost < skipped.get(item.next, UNKNOWN_MS):
                    skipped[item.next] = cost
                    links[item.next] = replace(item, first=begin) if begin != item.first else item
        self.position = max(skipped)
        chain: list[Link] = []
        at = self.position
        while at in links:
            chain.append(links[at])
            at = links[at].first
        self.chain = chain[::-1]


def _tells_nothing(link: Link) -> bool:
    return isinstance(link, Standstill) or link.batches is not None


def _link_order(item: Link) -> tuple[int, int, int]:
    """A range comes after all that may end where it begins; one that is skipped may begin anywhere within."""
    if isinstance(item, Standstill):
        return (item.next, 0, item.first)
    return (item.first, 1, item.next)
