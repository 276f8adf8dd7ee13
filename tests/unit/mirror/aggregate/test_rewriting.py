"""What of a source's batch changes on its way to the target."""

from uuid import UUID

import pytest

from headrace.broker.log.segment import Place
from headrace.broker.log.validation import check_client_batch
from headrace.broker.wire.batches import Record, check_crc, decode_records, encode_batch, read_header
from headrace.mirror.aggregate.position import Position
from headrace.mirror.aggregate.rewriting import PRODUCER_EPOCH, rewritten


@pytest.mark.parametrize("codec", range(5))
def test_producer_sequence_and_checksum_are_the_targets_and_the_records_the_sources(codec: int) -> None:
    records = [Record(0, 1_000 + n, b"k%d" % n, b"v" * n, [("h", b"1")]) for n in range(9)]
    source = encode_batch(
        records,
        base_offset=500,
        leader_epoch=6,
        codec=codec,
        producer_id=11,
        producer_epoch=3,
        base_sequence=70,
        transactional=True,
    )
    before = bytes(source)
    data = memoryview(b"x" * 5 + source)
    position = Position(producer_id=99, topic_id=UUID(int=1), offset=500, sequence=12)
    batch = rewritten(data, Place(5, read_header(data, 5)), position)
    header = read_header(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (99, PRODUCER_EPOCH, 12)
    assert (header.base_offset, header.is_transactional, header.codec) == (0, False, codec)
    assert check_crc(batch, 0, header)
    check_client_batch(header)
    assert batch[61:] == before[61:]
    assert [r._replace(offset=0) for r in decode_records(batch, 0, header)] == records
    assert bytes(data[5:]) == before
