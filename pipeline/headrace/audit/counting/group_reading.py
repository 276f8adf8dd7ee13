"""How far consumer groups have read what was counted: by topic and window, what lies below the offsets that they committed.

Owns the sorting of counted ranges: below a committed offset is read, above it unread, or lost where the log begins behind it, for
then retention took that before the group read it. A range that is both is counted again in the log, as far as the log still has
it (`Parting`); of what it has no longer an offset counts as an event. What a group did after it had read, and what it committed
without reading, nobody knows. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from headrace.audit.batch_counts import BatchCounts
from headrace.audit.windows import Tally

LOST_WINDOWS_MAX: Final = 100
Windows = Counter[int]
"""Window start → events."""


class Ends(NamedTuple):
    """What a group committed in a partition, and where the partition's log begins."""

    committed: int
    log_start: int


class Parting(NamedTuple):
    """Offsets [first, next) of a counted range to count again; they are read, or else unread. Of the others `read_before` events
    were read at most, where some are lost.
    """

    first: int
    next: int
    is_read: bool
    read_before: int


def events_of(tallies: Iterable[Tally], batches: BatchCounts | None, since_ms: int) -> Windows:
    """The events, or messages, of the windows since then."""
    found = Windows()
    for tally in tallies:
        found[tally.window_start] += tally.count
    if batches is not None:
        for entry in batches.entries:
            found[entry.window_start] += entry.sums.messages
    return Windows({window: count for window, count in found.items() if window >= since_ms and count})


def parting(first: int, following: int, ends: Ends) -> Parting | None:
    """What to count again of the offsets [first, following); None where all of them are the same."""
    committed, log_start = ends
    if committed >= following or (committed <= first and (log_start <= first or log_start >= following)):
        return None
    if log_start <= first:
        return Parting(first, committed, is_read=True, read_before=0)
    begin = min(max(committed, log_start), following)
    return Parting(begin, following, is_read=False, read_before=max(0, committed - first))


@dataclass(slots=True)
class Reading:
    """Of one group and topic, or of all that it reads."""

    read: Windows = field(default_factory=Windows)
    unread: Windows = field(default_factory=Windows)
    lost: Windows = field(default_factory=Windows)
    uncommitted: int = 0
    """Partitions in which it has committed nothing."""

    def add_uncommitted(self, first: int, log_start: int, events: Windows) -> None:
        """Sort the events of a range from `first` on where it has committed nothing: what the log still has is not read."""
        if first >= log_start:
            self.unread.update(events)

    def add(
        self, first: int, following: int, ends: Ends, events: Windows, again: tuple[Parting, Windows] | None
    ) -> None:
        """Sort the events of the offsets [first, following); `again` is what `parting` wanted, counted."""
        if again is None:
            self._of(first, following, ends).update(events)
            return
        wanted, found = again
        (self.read if wanted.is_read else self.unread).update(found)
        left = events - found
        if wanted.is_read or ends.log_start <= ends.committed:
            (self.unread if wanted.is_read else self.read).update(left)
            return
        before = _earliest(left, wanted.read_before)
        self.read.update(before)
        self.lost.update(left - before)

    def _of(self, first: int, following: int, ends: Ends) -> Windows:
        if ends.committed >= following:
            return self.read
        return self.lost if ends.log_start > first else self.unread

    @property
    def whole_up_to_ms(self) -> int | None:
        """The start of the first window that is not read whole; None where all are."""
        return min((*self.unread, *self.lost), default=None)


def _earliest(events: Windows, count: int) -> Windows:
    """So many of them, in the order of their windows."""
    found = Windows()
    for window, events_count in sorted(events.items()):
        found[window] = min(events_count, count)
        count -= found[window]
    return found


def as_json(group: str, topic: str, found: Reading) -> Mapping[str, object]:
    """A row for `--json`; times in milliseconds."""
    lost = sorted((window, count) for window, count in found.lost.items() if count)
    return {
        "group": group,
        "topic": topic,
        "read": found.read.total(),
        "unread": found.unread.total(),
        "lost": found.lost.total(),
        "whole_up_to_ms": found.whole_up_to_ms,
        "partitions_without_offset": found.uncommitted,
        "lost_windows": [list(item) for item in lost[:LOST_WINDOWS_MAX]],
    }
