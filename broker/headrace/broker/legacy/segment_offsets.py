"""ListOffsets version 0: begins of segments, found by the age of their files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.broker.legacy.segment_ages import segment_ages
from headrace.broker.log.files import OsFiles
from headrace.broker.wire.special_values import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

if TYPE_CHECKING:
    from headrace.broker.replication.partition import Partition


def offsets_before(
    partition: Partition, timestamp: int, count_max: int, *, is_consumer: bool, now_ms: int
) -> list[int]:
    """At most `count_max` offsets of segments not younger than `timestamp`, the latest first. Raises StorageError.

    A consumer sees the high watermark in place of what lies above it.
    """
    log = partition.log
    ages = segment_ages(OsFiles(), log.directory)
    places = [(max(age.base_offset, log.log_start_offset), age.modified_ms) for age in ages]
    if ages and ages[-1].size:
        places.append((log.log_end_offset, now_ms))
    offsets = _at_or_before(places, timestamp)[: max(count_max, 0)]
    high_watermark = log.high_watermark
    if is_consumer and any(offset > high_watermark for offset in offsets):
        return [high_watermark, *(offset for offset in offsets if offset <= high_watermark)]
    return offsets


def _at_or_before(places: Sequence[tuple[int, int]], timestamp: int) -> list[int]:
    """The offsets up to the last of the places (offset, time) that is not younger than `timestamp`, descending."""
    if timestamp == LATEST_TIMESTAMP:
        last = len(places) - 1
    elif timestamp == EARLIEST_TIMESTAMP:
        last = 0
    else:
        aged = [i for i, (_, time_ms) in enumerate(places) if time_ms <= timestamp]
        last = aged[-1] if aged else -1
    return sorted((offset for offset, _ in places[: last + 1]), reverse=True)
