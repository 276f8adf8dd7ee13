"""How long records wait for schemas that the registry does not know, yet. Pure.

One wait is enough for all that could have begun with it: an id has been waited for since it was first met, and a record
since its partition first stood still while it was in the log. So a partition with a thousand unknown ids in its log stands
still once. What is kept has bounds: ids by `IDS_MAX`, and a few marks a partition.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from headrace.broker.wire.partitions import TopicPartition

IDS_MAX: Final = 10_000
"""Ids remembered; the first met is forgotten when there are more."""
MARKS_PER_WAIT: Final = 8

TopicSchema = tuple[str, int]
"""A topic and a schema id: each datacenter's registry gives ids of its own."""


class SchemaWaits:
    """What is waited for and since when; `now` is in seconds of a clock that never goes back."""

    def __init__(self, wait_seconds: float) -> None:
        self._wait_seconds = wait_seconds
        self._since: dict[TopicSchema, float] = {}
        self._marks: dict[TopicPartition, list[tuple[float, int]]] = {}

    def note(self, place: TopicPartition, ids: Iterable[int], log_end: int, now: float) -> list[int]:
        """Let a partition that stands still wait for ids, and with it all that its log holds; return the ids new here."""
        new = [schema_id for schema_id in ids if (place.topic, schema_id) not in self._since]
        for schema_id in new:
            self._since[place.topic, schema_id] = now
            if len(self._since) > IDS_MAX:
                del self._since[next(iter(self._since))]
        marks = self._marks.setdefault(place, [])
        if marks and marks[-1][1] > log_end:
            marks.clear()  # another log, of a topic made anew
        if not marks or (
            log_end > marks[-1][1] and now - marks[-1][0] >= self._wait_seconds / MARKS_PER_WAIT
        ):
            marks.append((now, log_end))
        return new

    def passed(self, place: TopicPartition, next_offset: int) -> None:
        """Forget the marks below a partition's position."""
        left = [mark for mark in self._marks.pop(place, ()) if mark[1] > next_offset]
        if left:
            self._marks[place] = left

    def given_up(self, now: float) -> frozenset[TopicSchema]:
        """Return the ids that were waited for long enough."""
        limit = now - self._wait_seconds
        return frozenset(each for each, since in self._since.items() if since <= limit)

    def given_up_before(self, place: TopicPartition, now: float) -> int:
        """Return the offset below which no record of a partition waits any longer."""
        marks = self._marks.get(place, [])
        over = [end for since, end in marks if since <= now - self._wait_seconds]
        if len(over) > 1:
            del marks[: len(over) - 1]
        return over[-1] if over else 0
