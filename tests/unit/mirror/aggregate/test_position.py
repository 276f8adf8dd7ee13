"""How far a source partition is: arithmetic of sequence numbers, and bytes that are none."""

from uuid import UUID

import pytest

from headrace.mirror.aggregate.position import SEQUENCE_COUNT, MalformedPositionError, Position, decode

POSITION = Position(producer_id=7, topic_id=UUID(int=3), offset=100, sequence=40, leader_epoch=2)


def test_it_comes_back_from_its_bytes() -> None:
    assert decode(POSITION.encode()) == POSITION


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
    ],
)
def test_other_bytes_are_none(data: bytes) -> None:
    with pytest.raises(MalformedPositionError):
        decode(data)


def test_a_batch_without_a_committed_message_moves_the_offset_alone() -> None:
    after = POSITION.passed(101, 3, 0)
    assert (after.offset, after.sequence, after.leader_epoch) == (101, 40, 3)


def test_sequence_numbers_wrap() -> None:
    last = Position(producer_id=7, topic_id=UUID(int=3), offset=5, sequence=SEQUENCE_COUNT - 1)
    assert last.passed(8, 0, 3).sequence == 2
    assert last.ahead(2) == 3
    assert last.passed(8, 0, 3).ahead(SEQUENCE_COUNT - 1) == -3
    assert last.ahead(SEQUENCE_COUNT - 1) == 0
