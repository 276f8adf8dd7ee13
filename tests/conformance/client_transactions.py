"""Transactions of client libraries: each writes some, with a group's offsets, and reads what is committed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

import aiokafka
import confluent_kafka
import kafka
from kafka.structs import OffsetAndMetadata

WAIT_S = 30


class Step(NamedTuple):
    """A transaction: its values, which go to partition 0, the group's offset in it, and whether it is committed."""

    values: Sequence[bytes]
    offset: int
    is_commit: bool


class Seen(NamedTuple):
    """What a reader of committed messages gets up to the end, and what the group has committed."""

    values: list[bytes]
    offset: int


Transact = Callable[[str, str, Sequence[Step]], Seen]
"""(bootstrap, topic, steps): the topic's name is that of the group and of the transactional id, too."""


def librdkafka(bootstrap: str, topic: str, steps: Sequence[Step]) -> Seen:
    common = {"bootstrap.servers": bootstrap, "log_level": 0}
    producer = confluent_kafka.Producer({**common, "transactional.id": topic})
    producer.init_transactions(WAIT_S)
    settings = {"group.id": topic, "isolation.level": "read_committed", "enable.partition.eof": True}
    consumer = confluent_kafka.Consumer({**common, **settings, "enable.auto.commit": False})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    for step in steps:
        producer.begin_transaction()
        for value in step.values:
            producer.produce(topic, value, partition=0)
        position = [confluent_kafka.TopicPartition(topic, 0, step.offset)]
        producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), WAIT_S)
        (producer.commit_transaction if step.is_commit else producer.abort_transaction)(WAIT_S)
    values: list[bytes] = []
    while True:
        message = consumer.poll(WAIT_S)
        assert message is not None, "no end"
        error = message.error()
        if error is not None:
            assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
            break
        values.append(message.value() or b"")
    (committed,) = consumer.committed([confluent_kafka.TopicPartition(topic, 0)], WAIT_S)
    consumer.close()
    return Seen(values, committed.offset)


def kafka_python(bootstrap: str, topic: str, steps: Sequence[Step]) -> Seen:
    place = kafka.TopicPartition(topic, 0)
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic)
    producer.init_transactions()
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=topic,
        isolation_level="read_committed",
        enable_auto_commit=False,
    )
    consumer.assign([place])
    consumer.seek_to_beginning(place)
    for step in steps:
        producer.begin_transaction()
        for value in step.values:
            producer.send(topic, value, partition=0)
        producer.send_offsets_to_transaction(
            {place: OffsetAndMetadata(step.offset, "", -1)}, consumer.group_metadata()
        )
        (producer.commit_transaction if step.is_commit else producer.abort_transaction)()
    values: list[bytes] = []
    end = consumer.end_offsets([place])[place]
    while consumer.position(place) < end:
        for records in consumer.poll(timeout_ms=1000).values():
            values += [record.value for record in records]
    committed = consumer.committed(place)
    consumer.close()
    producer.close()
    return Seen(values, committed)


def aio(bootstrap: str, topic: str, steps: Sequence[Step]) -> Seen:
    return asyncio.run(asyncio.wait_for(_aio(bootstrap, topic, steps), WAIT_S))


async def _aio(bootstrap: str, topic: str, steps: Sequence[Step]) -> Seen:
    place = aiokafka.TopicPartition(topic, 0)
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic) as producer:
        for step in steps:
            await producer.begin_transaction()
            for value in step.values:
                await producer.send(topic, value, partition=0)
            await producer.send_offsets_to_transaction({place: step.offset}, topic)
            await (producer.commit_transaction if step.is_commit else producer.abort_transaction)()
    settings = {"group_id": topic, "isolation_level": "read_committed", "enable_auto_commit": False}
    async with aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, **settings) as consumer:
        consumer.assign([place])
        await consumer.seek_to_beginning(place)
        end = (await consumer.end_offsets([place]))[place]
        values: list[bytes] = []
        while await consumer.position(place) < end:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                values += [record.value or b"" for record in records]
        committed = await consumer.committed(place)
    return Seen(values, -1 if committed is None else committed)


TRANSACTIONS: dict[str, Transact] = {"librdkafka": librdkafka, "kafka-python": kafka_python, "aiokafka": aio}
