"""What each group of a source would lose or read twice if it went on in the copies now. Pure.

Where it would go on is `sync/groups`' to say. A group that would be left alone has the figures of moving it all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headrace.mirror.sync.groups import Copies, Offsets, landing

Row = dict[str, str | int | None]
COUNTS = ("partitions", "without_copy", "read_twice", "lost", "not_copied")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLogs:
    """Where the source's logs begin and end, by its own topics."""

    starts: Offsets
    ends: Offsets


def rows_of(group: str, committed: Offsets, copies: Copies, logs: SourceLogs, reason: str) -> list[Row]:
    """One for each topic that the group has committed in; `reason` is why it would be left alone."""
    found: dict[str, Row] = {}
    for (topic, partition), offset in sorted(committed.items()):
        if offset < 0:
            continue
        row = found.setdefault(
            topic, {"group": group, "topic": topic, **dict.fromkeys(COUNTS, 0), "reason": reason or None}
        )
        for name, count in _counts(topic, partition, offset, copies, logs).items():
            row[name] = int(row[name] or 0) + count
    return list(found.values())


def _counts(topic: str, partition: int, offset: int, copies: Copies, logs: SourceLogs) -> Mapping[str, int]:
    place = copies.of(topic, partition)
    source_end = logs.ends.get((topic, partition), offset)
    if place not in copies.starts or place not in copies.ends:
        unread = source_end - max(offset, logs.starts.get((topic, partition), 0))
        return {"partitions": 1, "without_copy": 1, "not_copied": max(0, unread)}
    found = landing(offset, copies.starts[place], copies.ends[place])
    return {
        "partitions": 1,
        "read_twice": found.not_yet,
        "lost": found.lost,
        "not_copied": max(0, source_end - max(offset, copies.ends[place])),
    }


def totals(rows: Iterable[Row]) -> dict[str, int]:
    """The sums of all rows."""
    found = dict.fromkeys(COUNTS, 0)
    for row in rows:
        for name in COUNTS:
            found[name] += int(row[name] or 0)
    return found
