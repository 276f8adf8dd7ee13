"""A batch in another codec."""

from __future__ import annotations

import pytest

from headrace.broker.wire.batches import Record, decode_records, encode_batch, iter_batches, read_header
from headrace.broker.wire.recompression import recompressed

RECORDS = [Record(n, 1000 + n, b"k%d" % n if n % 2 else None, b"value" * 20, []) for n in range(7)]


@pytest.mark.parametrize("codec", range(5))
def test_a_batch_changes_its_codec_and_nothing_else(codec: int) -> None:
    batch = encode_batch(RECORDS, codec=1, producer_id=7, producer_epoch=1, base_sequence=3)
    header = read_header(batch)
    changed = recompressed(batch, header, codec)
    ((_, found),) = iter_batches(changed)
    assert found._replace(length=0, crc=0, attributes=0) == header._replace(length=0, crc=0, attributes=0)
    assert found.codec == codec
    assert decode_records(changed, 0, found) == RECORDS
