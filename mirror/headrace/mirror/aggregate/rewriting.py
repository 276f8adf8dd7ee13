"""A source's batch as it goes to the target: another producer, its sequence, a new checksum; the records stay packed.

What the source wrote of its transaction goes, since only committed batches are taken. The base offset and the leader epoch
are for the target's leader to write. Pure.
"""

from __future__ import annotations

from struct import Struct

from headrace.broker.log.segment import Place
from headrace.broker.wire.batches import (
    ATTRIBUTES_AT,
    TRANSACTIONAL_BIT,
    set_base_offset_and_epoch,
    set_crc,
)
from headrace.broker.wire.special_values import NO_EPOCH
from headrace.mirror.aggregate.position import Position

PRODUCER_EPOCH = 0
"""The same for all owners: sequences tell who is late, and a new epoch would begin with sequence 0, whatever came before it."""
_PRODUCER = Struct(">qhi")
_PRODUCER_AT = 43
_ATTRIBUTES = Struct(">h")


def rewritten(records: memoryview, place: Place, position: Position) -> bytearray:
    """The batch at `place`, whose first message has `position`."""
    begin, header = place
    batch = bytearray(records[begin : begin + header.size])
    set_base_offset_and_epoch(batch, 0, 0, NO_EPOCH)
    _ATTRIBUTES.pack_into(batch, ATTRIBUTES_AT, header.attributes & ~TRANSACTIONAL_BIT)
    _PRODUCER.pack_into(batch, _PRODUCER_AT, position.producer_id, PRODUCER_EPOCH, position.sequence)
    set_crc(batch, 0)
    return batch
