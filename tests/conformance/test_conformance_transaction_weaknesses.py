"""Requests of a transaction that come during its producer's next one, beside Apache Kafka: what no broker of this version can
tell (KAFKA-17754 of a transaction's end, KAFKA-14402 of its batches), and what holds all the same.
"""

from __future__ import annotations

from typing import Any

import pytest
from sessions import FETCH, PRODUCE, Message, Pair, Session, batch, create_topic, produce_message
from transactional_producers import Producer, wait_for_transactions

from headrace.broker.wire import batches

# The first version whose clients know TRANSACTION_ABORTABLE is 11.
WRITE_VERSIONS = (9, 11)
NONE, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, PRODUCER_FENCED, ABORTABLE = 0, 47, 48, 90, 120


@pytest.fixture(scope="module", autouse=True)
def _coordinators(pair: Pair) -> None:
    wait_for_transactions(pair)


def begin(session: Session, topic: str, name: str) -> Producer:
    """A producer in its first transaction, which has the topic's partition."""
    create_topic(session, topic)
    producer = Producer(session, name)
    producer.begin()
    producer.add(3, {topic: [0]})
    return producer


def late(producer: Producer, topic: str, value: bytes, *, first: int) -> Message:
    """A batch that the producer has sent by now, and no broker has seen."""
    options: dict[str, Any] = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch}
    records = batch(value, base_sequence=first, transactional=True, **options)
    return {**produce_message(topic, records, acks=-1), "transactional_id": producer.name}


def committed(session: Session, topic: str) -> list[bytes]:
    """What a consumer reads that reads what is committed; that is compared, too."""
    values: list[bytes] = []
    offset: int = 0
    end: int = 1
    while offset < end:
        found = read(session, topic, offset)
        end, aborted = found["last_stable_offset"], found["aborted_transactions"] or []
        first_offsets = {each["producer_id"]: each["first_offset"] for each in aborted}
        records = bytes(found["records"])
        for position, header in batches.iter_batches(records):
            if header.is_control:
                first_offsets.pop(header.producer_id, None)
            elif first_offsets.get(header.producer_id, end) > header.base_offset:
                values += [each.value or b"" for each in batches.decode_records(records, position, header)]
            offset = header.next_offset
    session.note("committed", values)
    return values


def read(session: Session, topic: str, offset: int) -> Message:
    """From there to the end of a segment at most: markers bear another time than these batches."""
    partitions = [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}]
    message: Message = {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20}
    topics = [{"topic": topic, "partitions": partitions}]
    answer = session.look(FETCH, 11, {**message, "isolation_level": 1, "topics": topics}, noted=True)
    found: Message = answer["responses"][0]["partitions"][0]
    return found


def code_of(answer: Message) -> int:
    """Of a Produce request of one batch."""
    code: int = answer["responses"][0]["partition_responses"][0]["error_code"]
    return code


@pytest.mark.parametrize("version", range(5))
def test_an_end_that_was_on_its_way_for_long_ends_the_next_transaction(pair: Pair, version: int) -> None:
    topic = f"late-end-{version}"

    def script(session: Session) -> None:
        producer = begin(session, topic, f"late-end-{version}")
        producer.write(topic, b"first", first=0)
        # The end is sent twice, and the second one overtakes the first.
        producer.end(version, commit=True)
        producer.settle()
        producer.add(3, {topic: [0]})
        producer.write(topic, b"half of the second", first=1)
        assert committed(session, topic) == [b"first"]
        producer.end(version, commit=True)
        producer.settle()
        producer.describe()
        assert committed(session, topic) == [b"first", b"half of the second"], "this is KAFKA-17754"

    pair.compare(script)


@pytest.mark.parametrize("version", range(5))
def test_an_end_from_before_the_producer_began_anew_ends_nothing(pair: Pair, version: int) -> None:
    topic = f"void-end-{version}"

    def script(session: Session) -> None:
        producer = begin(session, topic, f"void-end-{version}")
        producer.write(topic, b"first", first=0)
        before = producer.epoch
        producer.begin()
        producer.settle()
        producer.begin()
        producer.add(3, {topic: [0]})
        producer.write(topic, b"second", first=0)
        producer.end(version, commit=True, epoch=before)
        assert committed(session, topic) == []
        producer.describe()
        producer.end(version, commit=True)
        producer.settle()
        assert committed(session, topic) == [b"second"]

    transcript = pair.compare(script)
    codes = [answer["error_code"] for label, answer in transcript if label.startswith("EndTxn")]
    assert codes == [INVALID_PRODUCER_EPOCH if version < 2 else PRODUCER_FENCED, NONE]


@pytest.mark.parametrize("version", WRITE_VERSIONS)
def test_a_batch_that_was_on_its_way_for_long_counts_in_the_next_transaction(
    pair: Pair, version: int
) -> None:
    topic = f"late-batch-{version}"

    def script(session: Session) -> None:
        producer = begin(session, topic, f"late-batch-{version}")
        on_its_way = late(producer, topic, b"aborted", first=0)
        producer.end(3, commit=False)
        producer.settle()
        producer.add(3, {topic: [0]})
        assert code_of(session.ask(PRODUCE, version, on_its_way)) == NONE
        producer.end(3, commit=True)
        producer.settle()
        assert committed(session, topic) == [b"aborted"], "this is KAFKA-14402"

    pair.compare(script)


@pytest.mark.parametrize("version", WRITE_VERSIONS)
def test_a_late_batch_leaves_nothing_hanging_between_transactions(pair: Pair, version: int) -> None:
    topic = f"late-between-{version}"

    def script(session: Session) -> None:
        producer = begin(session, topic, f"late-between-{version}")
        producer.write(topic, b"first", first=0)
        on_its_way = late(producer, topic, b"late", first=1)
        producer.end(3, commit=True)
        producer.settle()
        refused = INVALID_TXN_STATE if version < 11 else ABORTABLE
        assert code_of(session.ask(PRODUCE, version, on_its_way)) == refused
        assert committed(session, topic) == [b"first"]
        producer.add(3, {topic: [0]})
        producer.write(topic, b"second", first=1)
        producer.end(3, commit=True)
        producer.settle()
        assert committed(session, topic) == [b"first", b"second"]

    pair.compare(script)


@pytest.mark.parametrize("version", WRITE_VERSIONS)
def test_a_late_batch_from_before_the_producer_began_anew_is_refused(pair: Pair, version: int) -> None:
    topic = f"void-batch-{version}"

    def script(session: Session) -> None:
        producer = begin(session, topic, f"void-batch-{version}")
        on_its_way = late(producer, topic, b"late", first=0)
        producer.begin()
        producer.settle()
        producer.begin()
        producer.add(3, {topic: [0]})
        assert code_of(session.ask(PRODUCE, version, on_its_way)) == INVALID_PRODUCER_EPOCH
        producer.write(topic, b"second", first=0)
        producer.end(3, commit=True)
        producer.settle()
        assert committed(session, topic) == [b"second"]

    pair.compare(script)
