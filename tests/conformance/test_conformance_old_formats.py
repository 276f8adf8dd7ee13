"""Message formats 0 and 1: clients of before 0.11 write to headrace and read from it what they do from Apache Kafka."""

from __future__ import annotations

from typing import Any

import pytest
from sessions import FETCH, PRODUCE, TIMESTAMP_MS, Pair, Session, batch, create_topic, produce_message

from headrace.broker.legacy.message_sets import (
    Message,
    _encode,
    encode_messages,
    inner_messages,
    iter_messages,
)
from headrace.broker.wire.batches import RECORDS_SIZE_MAX, Record, decode_records, encode_batch, iter_batches

CODECS = range(4)


def records(count: int = 5) -> list[Record]:
    return [
        Record(
            number,
            TIMESTAMP_MS + number,
            b"key" if number % 2 else None,
            b"value" * 20 if number != 3 else None,
            [],
        )
        for number in range(count)
    ]


def fetch(session: Session, version: int, topic: str, offset: int = 0, size_max: int = 1 << 20) -> Any:
    partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": size_max}
    message: dict[str, Any] = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 1, "topics": []}
    message["topics"].append({"topic": topic, "partitions": [partition]})
    found = session.look(FETCH, version, message, noted=True)
    answer = found["responses"][0]["partitions"][0]
    return bytes(answer.pop("records") or b""), (found.get("throttle_time_ms"), session.comparable(answer))


def in_batches(data: bytes) -> list[Any]:
    """What format 2 says, but for how well a codec packs."""
    return [
        (header._replace(length=0, crc=0)._asdict(), decode_records(data, position, header))
        for position, header in iter_batches(data)
    ]


def in_messages(data: bytes) -> list[Any]:
    """What formats 0 and 1 say, but for how well a codec packs."""
    return [
        (message._replace(value=b""), inner_messages(message, RECORDS_SIZE_MAX)[0])
        if message.codec
        else message
        for message in iter_messages(data)
    ]


def cut(data: bytes) -> bytes:
    return data[:-3]


def rotten(data: bytes) -> bytes:
    return data[:-1] + bytes((data[-1] ^ 1,))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_old_messages_become_batches(pair: Pair, magic: int, codec: int) -> None:
    topic = f"old-{magic}-{codec}"

    def script(session: Session) -> None:
        create_topic(session, topic)
        data = encode_messages(records(), magic=magic, codec=codec, timestamp_type=0)
        for version in (0, 1, 2):
            session.ask(PRODUCE, version, produce_message(topic, data))
            session.ask(PRODUCE, version, produce_message(topic, data + data), note="twice")
        session.ask(PRODUCE, 2, produce_message(topic, rotten(data)), note="rotten")
        session.ask(PRODUCE, 3, produce_message(topic, data), note="too new")
        session.ask(PRODUCE, 9, produce_message(topic, data), note="much too new")
        found, answer = fetch(session, 4, topic)
        session.note("fetched", (in_batches(found), answer))

    pair.compare(script)


@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
def test_a_topics_own_rules_hold_for_old_messages(pair: Pair, timestamp_type: str) -> None:
    topic = f"old-rules-{timestamp_type}"

    def script(session: Session) -> None:
        create_topic(
            session, topic, configs={"message.timestamp.type": timestamp_type, "cleanup.policy": "compact"}
        )
        keyed = [record._replace(key=b"k") for record in records()]
        for magic in (0, 1):
            for kept in (keyed, records()):
                data = encode_messages(kept, magic=magic, codec=0, timestamp_type=0)
                session.ask(PRODUCE, 2, produce_message(topic, data))

    pair.compare(script)


@pytest.mark.parametrize("version", range(4))
def test_old_clients_read_new_batches(pair: Pair, version: int) -> None:
    topic = f"old-reader-{version}"

    def script(session: Session) -> None:
        create_topic(session, topic)
        found, answer = fetch(session, version, topic)
        session.note("empty", (found, answer))
        for codec in CODECS:
            kept = [record._replace(headers=[("h", b"x")]) for record in records()]
            session.ask(PRODUCE, 7, produce_message(topic, encode_batch(kept, codec=codec)))
        for offset in (0, 2, 7, 13, 19, 20, 21):
            found, answer = fetch(session, version, topic, offset)
            session.note(f"from {offset}", (in_messages(found), answer))

    pair.compare(script)


@pytest.mark.parametrize("version", [0, 2])
def test_old_clients_cannot_read_zstd(pair: Pair, version: int) -> None:
    topic = f"old-zstd-{version}"

    def script(session: Session) -> None:
        create_topic(session, topic)
        session.ask(PRODUCE, 7, produce_message(topic, batch(b"a", codec=4)))
        found, answer = fetch(session, version, topic)
        session.note("fetched", (found, answer))

    pair.compare(script)


def test_a_message_inside_a_compressed_one_is_not_compressed(pair: Pair) -> None:
    def script(session: Session) -> None:
        create_topic(session, "old-nested")
        inner = encode_messages(records(), magic=1, codec=1, timestamp_type=0)
        outer = _encode(Message(0, 1, 0, TIMESTAMP_MS, None, inner))
        session.ask(PRODUCE, 2, produce_message("old-nested", outer), note="not marked as compressed")
        stamped = encode_messages(records(), magic=1, codec=0, timestamp_type=1)
        session.ask(PRODUCE, 2, produce_message("old-nested", stamped), note="LogAppendTime")
        session.ask(PRODUCE, 2, produce_message("old-nested", cut(stamped)), note="cut")
        found, answer = fetch(session, 4, "old-nested")
        session.note("fetched", (in_batches(found), answer))

    pair.compare(script)
