"""Three client libraries behind one small face, so that one script runs through each of them.

A driver lives for one script on one broker. `Record` is what a client gives back of a message; a `Member` is a consumer
in a group. Nothing here asserts: the scripts do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, TypeVar

import aiokafka
import confluent_kafka
import kafka
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.coordinator.assignors import range as kafka_range

T = TypeVar("T")
WAIT_S = 20
SESSION_MS = 6_000
# A static member that is away for less keeps its partitions, and on a busy machine a program takes seconds to come back.
STATIC_SESSION_MS = 30_000
HEARTBEAT_MS = 300
REFUSED_BY_A_REBALANCE = {"REBALANCE_IN_PROGRESS", "ILLEGAL_GENERATION", "_NO_OFFSET"}


class Record(NamedTuple):
    """A message as it came back."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]


class Member(Protocol):
    """A consumer in a group that reads from the earliest offset and commits when it is told to."""

    seen: set[tuple[int, int]]
    """(partition, offset) of what it read."""

    def poll(self) -> None: ...
    def owned(self) -> set[int]: ...
    def commit(self) -> None:
        """Commit its positions; a commit that a rebalance refuses is left to the next one."""
        ...

    def committed(self, partition: int) -> int | None: ...
    def close(self) -> None: ...


class Driver(Protocol):
    """One client library, connected to one broker."""

    def produce(self, topic: str, records: Sequence[Record], codec: str, partition: int = 0) -> list[int]:
        """The offsets that they got."""
        ...

    def read(self, topic: str, count: int) -> list[Record]:
        """The first `count` records of partition 0."""
        ...

    def offset_at(self, topic: str, timestamp_ms: int) -> int | None:
        """The first offset of partition 0 with that time or a later one."""
        ...

    def member(self, topic: str, group: str, assignor: str, instance: str | None = None) -> Member: ...
    def close(self) -> None: ...


class Librdkafka:
    """confluent-kafka."""

    assignors = ("range", "roundrobin", "cooperative-sticky")

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._producers: dict[str, Any] = {}

    def _producer(self, codec: str) -> Any:
        """One for each codec: it takes half a second until such a producer has its id."""
        if codec not in self._producers:
            settings = {"compression.type": codec, "enable.idempotence": True, "linger.ms": 50}
            self._producers[codec] = confluent_kafka.Producer(
                {"bootstrap.servers": self.bootstrap, **settings}
            )
        return self._producers[codec]

    def produce(self, topic: str, records: Sequence[Record], codec: str, partition: int = 0) -> list[int]:
        producer = self._producer(codec)
        offsets: list[int] = []
        for record in records:
            producer.produce(
                topic,
                record.value,
                record.key,
                partition,
                timestamp=record.timestamp_ms,
                headers=record.headers,
                on_delivery=lambda error, message: offsets.append(-1 if error else message.offset()),
            )
        producer.flush(WAIT_S)
        return offsets

    def _consumer(self, **settings: Any) -> Any:
        defaults = {"bootstrap.servers": self.bootstrap, "group.id": "nobody", "enable.auto.commit": False}
        return confluent_kafka.Consumer({**defaults, **settings})

    def read(self, topic: str, count: int) -> list[Record]:
        consumer = self._consumer()
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        messages = consumer.consume(count, WAIT_S)
        consumer.close()
        return [Record(m.offset(), m.timestamp()[1], m.key(), m.value(), m.headers() or []) for m in messages]

    def offset_at(self, topic: str, timestamp_ms: int) -> int | None:
        consumer = self._consumer()
        wanted = [confluent_kafka.TopicPartition(topic, 0, timestamp_ms)]
        found: int = consumer.offsets_for_times(wanted, timeout=WAIT_S)[0].offset
        consumer.close()
        return found if found >= 0 else None

    def member(self, topic: str, group: str, assignor: str, instance: str | None = None) -> Member:
        settings = {
            "group.id": group,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": assignor,
            "session.timeout.ms": STATIC_SESSION_MS if instance else SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            **({"group.instance.id": instance} if instance else {}),
        }
        return _LibrdkafkaMember(self._consumer(**settings), topic)

    def close(self) -> None:
        self._producers.clear()


class _LibrdkafkaMember:
    def __init__(self, consumer: Any, topic: str) -> None:
        self._consumer, self._topic = consumer, topic
        self.seen: set[tuple[int, int]] = set()
        consumer.subscribe([topic])

    def poll(self) -> None:
        found = [m for m in self._consumer.consume(100, 0.1) if m.error() is None]
        self.seen.update((m.partition(), m.offset()) for m in found)

    def owned(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def commit(self) -> None:
        try:
            self._consumer.commit(asynchronous=False)
        except confluent_kafka.KafkaException as error:
            if error.args[0].name() not in REFUSED_BY_A_REBALANCE:
                raise

    def committed(self, partition: int) -> int | None:
        wanted = [confluent_kafka.TopicPartition(self._topic, partition)]
        found: int = self._consumer.committed(wanted, timeout=WAIT_S)[0].offset
        return found if found >= 0 else None

    def close(self) -> None:
        self._consumer.close()


class KafkaPython:
    """kafka-python. Its members (3.0.12) sometimes stay out of the next rebalance for good, with either broker."""

    assignors = ()

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._members: list[Any] = []

    def produce(self, topic: str, records: Sequence[Record], codec: str, partition: int = 0) -> list[int]:
        settings = {"compression_type": None if codec == "none" else codec, "linger_ms": 50}
        producer = kafka.KafkaProducer(bootstrap_servers=self.bootstrap, enable_idempotence=True, **settings)
        futures = [
            producer.send(topic, r.value, r.key, r.headers, partition, r.timestamp_ms) for r in records
        ]
        offsets = [future.get(timeout=WAIT_S).offset for future in futures]
        producer.close()
        return offsets

    def _consumer(self, **settings: Any) -> Any:
        return kafka.KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            consumer_timeout_ms=WAIT_S * 1000,
            **settings,
        )

    def read(self, topic: str, count: int) -> list[Record]:
        consumer = self._consumer()
        consumer.assign([kafka.TopicPartition(topic, 0)])
        found = [message for _, message in zip(range(count), consumer, strict=False)]
        consumer.close()
        return [Record(m.offset, m.timestamp, m.key, m.value, list(m.headers)) for m in found]

    def offset_at(self, topic: str, timestamp_ms: int) -> int | None:
        consumer = self._consumer()
        place = kafka.TopicPartition(topic, 0)
        found = consumer.offsets_for_times({place: timestamp_ms})[place]
        consumer.close()
        return None if found is None else int(found.offset)

    def member(self, topic: str, group: str, assignor: str, instance: str | None = None) -> Member:
        strategies = {"range": kafka_range.RangePartitionAssignor}
        consumer = self._consumer(
            group_id=group,
            partition_assignment_strategy=[strategies[assignor]],
            session_timeout_ms=STATIC_SESSION_MS if instance else SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            group_instance_id=instance,
        )
        self._members.append(consumer)
        return _KafkaPythonMember(consumer, topic)

    def close(self) -> None:
        """End the threads of members that a failed script left: they draw random numbers while other tests run."""
        for consumer in self._members:
            consumer.close(timeout_ms=1000)


class _KafkaPythonMember:
    def __init__(self, consumer: Any, topic: str) -> None:
        self._consumer, self._topic = consumer, topic
        self.seen: set[tuple[int, int]] = set()
        # A static member of this library that leads before it knows the topic gives nobody anything, for good.
        consumer.partitions_for_topic(topic)
        consumer.subscribe([topic])

    def poll(self) -> None:
        for found in self._consumer.poll(timeout_ms=100).values():
            self.seen.update((m.partition, m.offset) for m in found)

    def owned(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def commit(self) -> None:
        with suppress(kafka.errors.RebalanceInProgressError, kafka.errors.CommitFailedError):
            self._consumer.commit()

    def committed(self, partition: int) -> int | None:
        found: int | None = self._consumer.committed(kafka.TopicPartition(self._topic, partition))
        return found

    def close(self) -> None:
        self._consumer.close()


class Aiokafka:
    """aiokafka, on an event loop of its own, which turns while a call runs."""

    assignors = ("range", "roundrobin", "sticky")

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._loop = asyncio.new_event_loop()

    def run(self, awaitable: Awaitable[T]) -> T:
        """Turn the loop until it is done."""
        return self._loop.run_until_complete(asyncio.wait_for(awaitable, WAIT_S))

    def produce(self, topic: str, records: Sequence[Record], codec: str, partition: int = 0) -> list[int]:
        return self.run(self._produce(topic, records, None if codec == "none" else codec, partition))

    async def _produce(
        self, topic: str, records: Sequence[Record], codec: str | None, partition: int
    ) -> list[int]:
        settings = {"bootstrap_servers": self.bootstrap, "compression_type": codec, "linger_ms": 50}
        async with aiokafka.AIOKafkaProducer(enable_idempotence=True, **settings) as producer:
            sent = [
                await producer.send(
                    topic,
                    r.value,
                    r.key,
                    partition=partition,
                    timestamp_ms=r.timestamp_ms,
                    headers=r.headers,
                )
                for r in records
            ]
            return [(await future).offset for future in sent]

    def read(self, topic: str, count: int) -> list[Record]:
        return self.run(self._read(topic, count))

    async def _read(self, topic: str, count: int) -> list[Record]:
        settings = {"bootstrap_servers": self.bootstrap, "auto_offset_reset": "earliest"}
        async with aiokafka.AIOKafkaConsumer(**settings) as consumer:
            consumer.assign([aiokafka.TopicPartition(topic, 0)])
            found = [await consumer.getone() for _ in range(count)]
        return [Record(m.offset, m.timestamp, m.key, m.value, list(m.headers)) for m in found]

    def offset_at(self, topic: str, timestamp_ms: int) -> int | None:
        return self.run(self._offset_at(topic, timestamp_ms))

    async def _offset_at(self, topic: str, timestamp_ms: int) -> int | None:
        place = aiokafka.TopicPartition(topic, 0)
        async with aiokafka.AIOKafkaConsumer(bootstrap_servers=self.bootstrap) as consumer:
            found = (await consumer.offsets_for_times({place: timestamp_ms}))[place]
        return None if found is None else int(found.offset)

    def member(self, topic: str, group: str, assignor: str, instance: str | None = None) -> Member:
        strategies = {
            "range": RangePartitionAssignor,
            "roundrobin": RoundRobinPartitionAssignor,
            "sticky": StickyPartitionAssignor,
        }
        settings = {
            "group_id": group,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "partition_assignment_strategy": [strategies[assignor]],
            "session_timeout_ms": STATIC_SESSION_MS if instance else SESSION_MS,
            "heartbeat_interval_ms": HEARTBEAT_MS,
            "group_instance_id": instance,
        }
        return _AiokafkaMember(self, topic, settings)

    def close(self) -> None:
        self._loop.close()


class _AiokafkaMember:
    def __init__(self, driver: Aiokafka, topic: str, settings: dict[str, Any]) -> None:
        self._driver, self._topic = driver, topic
        self.seen: set[tuple[int, int]] = set()
        self._consumer: Any = driver.run(self._started(settings))
        # Once it has started: a start waits for an assignment, and so for members that nobody polls meanwhile.
        self._consumer.subscribe([topic])

    async def _started(self, settings: dict[str, Any]) -> Any:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=self._driver.bootstrap, **settings)
        await consumer.start()
        return consumer

    def poll(self) -> None:
        for found in self._driver.run(self._polled()).values():
            self.seen.update((m.partition, m.offset) for m in found)

    async def _polled(self) -> dict[Any, Any]:
        # In a rebalance it waits for the other members, whom nobody polls meanwhile, beyond its own time-out.
        with suppress(TimeoutError):
            found: dict[Any, Any] = await asyncio.wait_for(self._consumer.getmany(timeout_ms=100), 0.3)
            return found
        return {}

    def owned(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def commit(self) -> None:
        with suppress(aiokafka.errors.CommitFailedError):
            self._driver.run(self._consumer.commit())

    def committed(self, partition: int) -> int | None:
        found: int | None = self._driver.run(
            self._consumer.committed(aiokafka.TopicPartition(self._topic, partition))
        )
        return found

    def close(self) -> None:
        self._driver.run(self._consumer.stop())


# In the order in which they join a group: see what becomes of the last one's members in a rebalance.
DRIVERS: dict[str, Any] = {"librdkafka": Librdkafka, "aiokafka": Aiokafka, "kafka-python": KafkaPython}
