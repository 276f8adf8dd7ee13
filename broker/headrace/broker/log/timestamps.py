"""Finding records by time: the only place of the log that looks into batches, one batch a question."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.broker.errors import MessageTooLargeError
from headrace.broker.log.results import TimestampOffset
from headrace.broker.log.segment import Place, Segment
from headrace.broker.wire.batches import (
    PUBLISHED_RECORDS_COUNT_MAX,
    PUBLISHED_SIZE_MAX,
    records_of,
    times_of,
)


def first_at_or_after(
    segments: Iterable[Segment], timestamp_ms: int, from_offset: int
) -> TimestampOffset | None:
    """The first record at or above `from_offset` that is not older than `timestamp_ms`."""
    for segment in segments:
        if segment.next_offset <= from_offset or segment.largest_timestamp[0] < timestamp_ms:
            continue
        for place in segment.from_timestamp(timestamp_ms, from_offset):
            found = _first_in(segment, place, timestamp_ms, from_offset)
            if found is not None:
                return found
    return None


def largest(segments: Iterable[Segment]) -> TimestampOffset | None:
    """The first record with the largest timestamp of all."""
    holding = [segment for segment in segments if segment.size]
    if not holding:
        return None
    segment = max(holding, key=lambda candidate: candidate.largest_timestamp[0])
    timestamp_ms, last_offset = segment.largest_timestamp
    place = segment.find(last_offset)
    return None if place is None else _first_in(segment, place, timestamp_ms, segment.base_offset)


def _first_in(segment: Segment, place: Place, timestamp_ms: int, from_offset: int) -> TimestampOffset | None:
    """The first record of a batch that is old and far enough, with the batch's own leader epoch.

    Of a batch too large to look into while clients wait, it is the first one: whoever reads from there misses nothing.
    """
    header = place.header
    epoch = max(header.leader_epoch, -1)
    whole = TimestampOffset(max(header.base_offset, from_offset), header.max_timestamp, epoch)
    if header.timestamp_type == 1 and header.record_count == header.last_offset_delta + 1:
        return whole if header.max_timestamp >= timestamp_ms else None
    if header.record_count > PUBLISHED_RECORDS_COUNT_MAX:
        return whole
    batch = segment.log.read_at(header.size, place.position)
    try:
        records = records_of(batch, 0, header, PUBLISHED_SIZE_MAX)
    except MessageTooLargeError:
        return whole
    for offset, time_ms in times_of(bytes(records), header):
        if time_ms >= timestamp_ms and offset >= from_offset:
            return TimestampOffset(offset, time_ms, epoch)
    return None
