"""Partitions that a transaction has not: what is refused before it is written, beside Apache Kafka (KIP-890)."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from processes import eventually
from sessions import (
    INCREMENTAL_ALTER_CONFIGS,
    PRODUCE,
    TXN_OFFSET_COMMIT,
    Message,
    Pair,
    Session,
    batch,
    create_topic,
)
from transactional_producers import Producer, wait_for_transactions

VERSIONS = (3, 8, 9, 10, 11)
BROKER, SET, DELETE = 4, 0, 1
KEY = "transaction.partition.verification.enable"


@pytest.fixture(scope="module", autouse=True)
def _coordinators(pair: Pair) -> None:
    wait_for_transactions(pair)


def written(producer: Producer, first: int, *, transactional: bool = True, **other: Any) -> bytes:
    options: Message = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch, **other}
    return bytes(batch(b"value", base_sequence=first, transactional=transactional, **options))


def write(
    producer: Producer,
    version: int,
    topic: str,
    records: dict[int, bytes],
    *,
    name: str | None = "",
    acks: int = -1,
) -> Message:
    """Write to the topic's partitions; `name` stands for the producer's own unless it is given."""
    partitions = [{"index": index, "records": data} for index, data in records.items()]
    message: Message = {"acks": acks, "timeout_ms": 5000}
    message["topic_data"] = [{"name": topic, "partition_data": partitions}]
    return producer.session.ask(PRODUCE, version, {**message, "transactional_id": name or producer.name})


@pytest.mark.parametrize("version", VERSIONS)
def test_what_the_transaction_has_not_is_refused(pair: Pair, version: int) -> None:
    topic = f"verified-{version}"

    def script(session: Session) -> None:
        create_topic(session, topic, partitions=3)
        producer = Producer(session, f"verified-writer-{version}")
        producer.begin()
        write(producer, version, topic, {0: written(producer, 0)})
        producer.add(3, {topic: [0]})
        write(producer, version, topic, {0: written(producer, 0), 1: written(producer, 0)})
        write(producer, version, topic, {0: written(producer, 0)})
        write(producer, version, topic, {0: written(producer, 1)})
        write(producer, version, topic, {0: written(producer, 2, transactional=False)})
        write(producer, version, topic, {0: written(producer, 2), 7: written(producer, 0)})
        producer.end(3, commit=True)
        producer.settle()
        write(producer, version, topic, {0: written(producer, 2)})
        write(producer, version, topic, {0: written(producer, 3)})
        producer.describe()

    pair.compare(script)


@pytest.mark.parametrize("version", VERSIONS)
def test_who_is_not_the_transactions_producer_is_refused(pair: Pair, version: int) -> None:
    topic = f"verified-others-{version}"

    def script(session: Session) -> None:
        create_topic(session, topic, partitions=2)
        producer = Producer(session, f"verified-other-{version}")
        producer.begin()
        producer.begin()
        producer.add(3, {topic: [0, 1]})
        others: list[Message] = [
            {"producer_id": producer.producer_id + (1 << 40)},
            {"producer_epoch": producer.epoch + 1},
            {"producer_epoch": producer.epoch - 1},
        ]
        for other in others:
            write(producer, version, topic, {1: written(producer, 0, **other)})
        write(producer, version, topic, {1: written(producer, 0)}, name="nobody")
        both = {0: written(producer, 0), 1: written(producer, 0, producer_id=producer.producer_id + 1)}
        write(producer, version, topic, both)
        write(producer, version, topic, {0: written(producer, 0), 1: bytes(batch(b"plain"))})
        write(producer, version, topic, {1: written(producer, 0)}, acks=1)
        producer.end(3, commit=False)
        producer.settle()
        write(producer, version, topic, {0: written(producer, 1)})

    pair.compare(script)


def test_no_batch_overtakes_one_that_was_refused(pair: Pair) -> None:
    topic = "verified-sequences"

    def script(session: Session) -> None:
        create_topic(session, topic)
        for version in VERSIONS:
            producer = Producer(session, f"verified-sequence-{version}")
            producer.begin()
            write(producer, version, topic, {0: written(producer, 4)})
            producer.add(3, {topic: [0]})
            write(producer, version, topic, {0: written(producer, 5)})
            write(producer, version, topic, {0: written(producer, 4)})
            write(producer, version, topic, {0: written(producer, 5)})
            producer.end(3, commit=True)
            producer.settle()
            write(producer, version, topic, {0: written(producer, 6)})
            producer.begin()
            producer.add(3, {topic: [0]})
            write(producer, version, topic, {0: written(producer, 0)})
            producer.end(3, commit=False)
            producer.settle()

    pair.compare(script)


@pytest.mark.parametrize("version", range(5))
def test_offsets_need_their_group_in_the_transaction(pair: Pair, version: int) -> None:
    topic, group = "verified-groups", f"verified-group-{version}"

    def commit(producer: Producer, **other: Any) -> None:
        partitions = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}]
        message = {
            **producer.whoever(**other),
            "group_id": group,
            "topics": [{"name": topic, "partitions": partitions}],
        }
        if version >= 3:
            message |= {"member_id": "", "generation_id": -1}
        producer.session.ask(TXN_OFFSET_COMMIT, version, message)

    def script(session: Session) -> None:
        create_topic(session, topic)
        producer = Producer(session, f"verified-copier-{version}")
        commit(producer, producer_id=77, epoch=0)
        producer.begin()
        producer.begin()
        commit(producer)
        producer.add_offsets(3, group)
        commit(producer, producer_id=producer.producer_id + (1 << 40))
        commit(producer, epoch=producer.epoch + 1)
        commit(producer, epoch=producer.epoch - 1)
        commit(producer)
        producer.end(3, commit=True)
        producer.settle()
        commit(producer)

    pair.compare(script)


def alter(session: Session, operation: int, value: str | None) -> None:
    change = {"name": KEY, "config_operation": operation, "value": value}
    resource = {"resource_type": BROKER, "resource_name": "", "configs": [change]}
    session.ask(INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False})


def test_verification_is_switched_off_while_the_broker_runs(pair: Pair) -> None:
    topic = "verified-or-not"

    def script(session: Session) -> None:
        create_topic(session, topic, partitions=2)
        producer = Producer(session, "verified-or-not")
        producer.begin()
        strangers = count(1 << 40)

        def is_taken() -> bool:
            """Whether a producer that nobody knows may write."""
            records = written(producer, 0, producer_id=next(strangers))
            message: Message = {"acks": -1, "timeout_ms": 5000, "transactional_id": producer.name}
            message["topic_data"] = [{"name": topic, "partition_data": [{"index": 1, "records": records}]}]
            answer = session.look(PRODUCE, 9, message)["responses"][0]["partition_responses"][0]
            return bool(answer["error_code"] == 0)

        write(producer, 9, topic, {0: written(producer, 0)})
        alter(session, SET, "perhaps")
        alter(session, SET, "false")
        eventually(is_taken, what="a batch that nobody verifies")
        write(producer, 9, topic, {0: written(producer, 0)})
        alter(session, DELETE, None)
        eventually(lambda: not is_taken(), what="a batch that somebody verifies")
        write(producer, 9, topic, {0: written(producer, 1)})
        another = Producer(session, "verified-again")
        another.begin()
        write(another, 9, topic, {0: written(another, 0)})

    pair.compare(script)
