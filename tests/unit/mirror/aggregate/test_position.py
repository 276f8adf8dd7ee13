"""How far a source partition is: arithmetic of sequence numbers, and bytes that are none."""

from dataclasses import replace
from uuid import UUID

import pytest

from headrace.broker.wire.batches import BatchHeader, Record, encode_batch, read_header
from headrace.mirror.aggregate.position import SEQUENCE_COUNT, MalformedPositionError, Position, Tail, decode

POSITION = Position(
    producer_id=7, topic_id=UUID(int=3), offset=100, sequence=40, leader_epoch=2, tail=Tail(90, 200, 5)
)


def header(base: int, count: int, epoch: int) -> BatchHeader:
    records = [Record(0, 1, None, b"v", [])] * count
    return read_header(encode_batch(records, base_offset=base, leader_epoch=epoch))


def test_it_comes_back_from_its_bytes() -> None:
    assert decode(POSITION.encode()) == POSITION
    first = replace(POSITION, tail=None, target_offset=12)
    assert decode(first.encode()) == first
    earlier = first.encode().replace(b',"target_offset":12', b"")
    assert decode(earlier) == replace(first, target_offset=-1), "of a version that did not write it"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"7",
        b'{"version":2}',
        b'{"version":1}',
        POSITION.encode().replace(b":100", b":-1"),
        POSITION.encode().replace(b":100", b":true1"),
        POSITION.encode().replace(b":100", b':"100"'),
        POSITION.encode().replace(b"-0000-", b""),
        POSITION.encode().replace(b"[90,200,5]", b"[90]"),
        POSITION.encode().replace(b"[90,200,5]", b"5"),
    ],
)
def test_other_bytes_are_none(data: bytes) -> None:
    with pytest.raises(MalformedPositionError):
        decode(data)


def test_a_batch_without_a_committed_message_moves_the_offset_alone() -> None:
    marker = header(100, 1, 3)
    after = POSITION.passed(marker, 0)
    assert (after.offset, after.sequence, after.leader_epoch) == (101, 40, 3)
    assert after.tail is not None
    assert after.tail.header._replace(attributes=0)[:5] == marker._replace(leader_epoch=-1)[:5]


def test_sequence_numbers_wrap() -> None:
    last = Position(producer_id=7, topic_id=UUID(int=3), offset=5, sequence=SEQUENCE_COUNT - 1)
    assert last.passed(header(5, 3, 0), 3).sequence == 2
    assert last.ahead(2) == 3
    assert last.passed(header(5, 3, 0), 3).ahead(SEQUENCE_COUNT - 1) == -3
    assert last.ahead(SEQUENCE_COUNT - 1) == 0
