"""Which batches lie in fetched bytes, and which offsets one with a wrong checksum stands for: its header may lie too. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.broker.errors import KafkaError
from headrace.broker.log.segment import Place
from headrace.broker.wire.batches import BatchHeader, check_crc, iter_batches
from headrace.mirror.questions import UNKNOWN


def places(records: memoryview) -> tuple[list[Place], KafkaError | None]:
    """The whole batches, and what is wrong behind them."""
    found: list[Place] = []
    try:
        found.extend(Place(position, header) for position, header in iter_batches(records))
    except KafkaError as error:
        return found, error
    return found, None


def rotten_offsets(records: memoryview, rotten: Place, high_watermark: int) -> tuple[int, int]:
    """First and last offset of a batch with a wrong checksum; -1 for a last one that nothing tells.

    The good batch behind it is believed before its own header. Without one the header is, if its two counts agree, which
    they do not in what a cleaner has written anew.
    """
    header = rotten.header
    first, last = header.base_offset, header.last_offset
    following = next(_good(records[rotten.position + header.size :]), None)
    if following is not None and following.base_offset > first:
        return first, following.base_offset - 1
    is_told = header.record_count == header.last_offset_delta + 1 and first <= last < high_watermark
    return first, last if is_told else UNKNOWN


def _good(records: memoryview) -> Iterator[BatchHeader]:
    for place in places(records)[0]:
        if not check_crc(records, *place):
            return
        yield place.header
