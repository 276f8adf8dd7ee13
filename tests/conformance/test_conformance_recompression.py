"""compression.type: a topic's own codec, whatever the producer used."""

from __future__ import annotations

from typing import Any

import pytest
from sessions import FETCH, PRODUCE, TIMESTAMP_MS, Pair, Session, batch, create_topic, produce_message

from headrace.broker.wire.batches import Record, decode_records, encode_batch, iter_batches


def fetched(session: Session, topic: str) -> list[Any]:
    """Every batch but for how well its codec packs and for broker time, with its records."""
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    message = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 1}
    answer = session.look(FETCH, 10, {**message, "topics": [{"topic": topic, "partitions": [partition]}]})
    data = bytes(answer["responses"][0]["partitions"][0]["records"])
    found = []
    for position, header in iter_batches(data):
        records = decode_records(data, position, header)
        kept = header._replace(length=0, crc=0)
        if header.timestamp_type:
            assert header.max_timestamp > TIMESTAMP_MS
            kept = kept._replace(base_timestamp=0, max_timestamp=0)
            records = [record._replace(timestamp_ms=0) for record in records]
        found.append((kept._asdict(), records))
    return found


@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("codec", ["uncompressed", "gzip", "snappy", "lz4", "zstd", "producer"])
def test_every_codec_becomes_the_topics(pair: Pair, codec: str, timestamp_type: str) -> None:
    topic = f"recompress-{codec}-{timestamp_type}"

    def script(session: Session) -> None:
        create_topic(
            session, topic, configs={"compression.type": codec, "message.timestamp.type": timestamp_type}
        )
        records = [
            Record(0, TIMESTAMP_MS + number, b"key", b"value" * 50 if number != 2 else None, [("h", b"x")])
            for number in range(5)
        ]
        for number in range(5):
            data = encode_batch(
                records, codec=number, producer_id=90_000 + number, producer_epoch=0, base_sequence=0
            )
            session.ask(PRODUCE, 7, produce_message(topic, data), note=f"codec {number}")
            session.ask(PRODUCE, 7, produce_message(topic, data), note="again")
        session.note("fetched", fetched(session, topic))

    pair.compare(script)


def test_what_unpacks_beyond_the_largest_batch_is_refused(pair: Pair) -> None:
    def script(session: Session) -> None:
        create_topic(session, "recompress-large", configs={"compression.type": "uncompressed"})
        data = batch(b"x" * 200_000, codec=4)
        session.ask(PRODUCE, 7, produce_message("recompress-large", data))

    pair.compare(script)
