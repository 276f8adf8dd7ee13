"""The life that clients lead with one broker, whichever engine runs it.

What the clients were told is kept here; every new engine has to know it all.
"""

from __future__ import annotations

import time
from collections import defaultdict
from contextlib import closing
from itertools import product
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from processes import eventually
from sessions import FETCH, PRODUCE, Session, batch, produce_message
from swapped_broker import SwappedBroker

from headrace.broker.wire.partitions import PartitionKey

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
PARTITIONS = 2
GROUPED, COMPACTED, SEQUENCED, LIVELY = "grouped", "compacted", "sequenced", "lively"
TRANSACTED = "transacted"
READERS, COPIERS = "readers", "copiers"
PRODUCER_ID = 900_000
KEYS = 10
SMALL_SEGMENTS = {"segment.bytes": "6000", "index.interval.bytes": "500"}


class Life:
    """What clients do with the broker, engine after engine; every method asserts that the past is remembered."""

    def __init__(self, broker: SwappedBroker) -> None:
        self._broker = broker
        self.written: dict[PartitionKey, list[Any]] = defaultdict(list)
        self.committed: dict[PartitionKey, int] = defaultdict(int)
        self.latest: dict[bytes, bytes | None] = {}
        self.sequence = 0
        self.last_batch: tuple[bytes, int] | None = None
        self.lively = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "log_level": 0,
            }
        )
        self.lively_count = 0
        self.told_of_aborted: list[Any] = []
        # What the group that commits in transactions has come to; offsets are negative before.
        self.copied = OFFSET_INVALID
        # Producers silent for a day and records older than retention.ms are forgotten.
        self.begun_ms = time.time_ns() // 1_000_000
        self.admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})

    def begin(self) -> None:
        """Topics with all codecs and kinds of timestamps, and those that the groups and producers use."""
        topics = [
            NewTopic(
                f"{codec}-{kind}", PARTITIONS, 1, config={**SMALL_SEGMENTS, "message.timestamp.type": kind}
            )
            for codec in CODECS
            for kind in TIMESTAMP_TYPES
        ]
        topics += [
            NewTopic(name, PARTITIONS, 1, config=SMALL_SEGMENTS) for name in (GROUPED, LIVELY, TRANSACTED)
        ]
        topics.append(NewTopic(SEQUENCED, 1, 1, config=SMALL_SEGMENTS))
        compact = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": "3000"}
        topics.append(NewTopic(COMPACTED, 1, 1, config=compact))
        for future in self.admin.create_topics(topics, operation_timeout=20).values():
            future.result(30)
        change = ConfigEntry("max.message.bytes", "54321", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource("TOPIC", GROUPED, incremental_configs=[change])
        for altered in self.admin.incremental_alter_configs([resource]).values():
            altered.result(20)

    def go_on(self, engine: str) -> None:
        """The same after every start: remember all, then do more of it."""
        self.check_configs()
        self.check_groups()
        self.check_aborted()
        self.read_everything()
        self.consume_on()
        self.write_on(engine)
        self.write_sequences()
        self.compact_on(engine)
        self.consume_on()
        self.read_everything()
        self.told_of_aborted = self._aborted()

    # -- writing

    def write_on(self, engine: str) -> None:
        """Some more records of every codec; each is acknowledged by all."""
        for codec in CODECS:
            settings = {
                "bootstrap.servers": self._broker.bootstrap,
                "compression.type": codec,
                "batch.num.messages": 20,
                "linger.ms": 5,
                "log_level": 0,
            }
            producer = Producer(settings)
            names = [f"{codec}-{kind}" for kind in TIMESTAMP_TYPES]
            for number in range(160):
                for name in (*names, GROUPED) if codec == "none" else names:
                    self._send(producer, name, number, f"{engine} {number} ".encode() * 4)
            assert producer.flush(30) == 0
        for number in range(40):
            self._send(self.lively, LIVELY, number, b"%d" % (self.lively_count + number))
        self.lively_count += 40
        assert self.lively.flush(30) == 0
        self._write_transactions()

    def _write_transactions(self) -> None:
        """Some are aborted: their records are written all the same, and nobody may be told of them."""
        producer = self._transactional_producer()
        for number in range(9):
            is_aborted = number % 3 == 1
            producer.begin_transaction()
            for record in range(6):
                value = f"transaction {number} {record}".encode() * 5
                self._send(producer, TRANSACTED, record, value, is_kept=not is_aborted)
            end(producer, is_aborted=is_aborted)
        consumer = self._consumer(COPIERS)
        for offset, is_aborted in ((7, False), (99, True)):
            producer.begin_transaction()
            place = TopicPartition(TRANSACTED, 0, offset)
            producer.send_offsets_to_transaction([place], consumer.consumer_group_metadata(), 30)
            end(producer, is_aborted=is_aborted)
        consumer.close()
        self.copied = 7

    def _transactional_producer(self) -> Producer:
        producer = Producer(
            {"bootstrap.servers": self._broker.bootstrap, "transactional.id": "mover", "log_level": 0}
        )
        producer.init_transactions(60)
        return producer

    def _send(
        self, producer: Producer, topic: str, number: int, value: bytes, *, is_kept: bool = True
    ) -> None:
        def delivered(error: KafkaError | None, message: Message) -> None:
            assert error is None, error
            place = topic, message.partition() or 0
            if is_kept:
                self.written[place].append((message.offset(), value))

        producer.produce(
            topic,
            value,
            b"key",
            partition=number % PARTITIONS,
            timestamp=self.begun_ms - 5000 + number,
            headers=[("h", b"x")],
            on_delivery=delivered,
        )

    def write_sequences(self) -> None:
        """An idempotent producer with an id of its own: its last batch is known, a gap is refused, the next one goes in."""
        host, _, port = self._broker.bootstrap.rpartition(":")
        session = Session((host, int(port)))
        if self.last_batch is not None:
            data, offset = self.last_batch
            repeated = self._produce(session, data)
            assert repeated == (0, offset), "the repetition of the last batch"
            assert self._produce(session, self._sequenced(self.sequence + 5))[0] == 45, "out of order"
            assert self._produce(session, self._sequenced(self.sequence, epoch=1))[0] == 47, "fenced"
        for _ in range(6):
            data = self._sequenced(self.sequence)
            error_code, offset = self._produce(session, data)
            assert error_code == 0
            self.written[SEQUENCED, 0] += [(offset + n, b"sequenced %d" % n) for n in range(3)]
            self.sequence += 3
            self.last_batch = data, offset
        session.close()

    def _sequenced(self, sequence: int, epoch: int = 3) -> bytes:
        values = [b"sequenced %d" % n for n in range(3)]
        return bytes(
            batch(
                *values,
                timestamp_ms=self.begun_ms,
                producer_id=PRODUCER_ID,
                producer_epoch=epoch,
                base_sequence=sequence,
                codec=sequence % 5,
            )
        )

    @staticmethod
    def _produce(session: Session, data: bytes) -> tuple[int, int]:
        answer = session.look(PRODUCE, 9, produce_message(SEQUENCED, data, acks=-1))
        partition = answer["responses"][0]["partition_responses"][0]
        return partition["error_code"], partition["base_offset"]

    def compact_on(self, engine: str) -> None:
        """Keys written over and over, some ended by a tombstone, until the cleaner has been there."""
        before = self._broker.clean_offset(COMPACTED)
        self._compact_transactions()
        producer = Producer(
            {"bootstrap.servers": self._broker.bootstrap, "batch.num.messages": 5, "log_level": 0}
        )
        for number in range(200):
            key = b"%d" % (number % KEYS)
            value = None if number % 23 == 22 else f"{engine} {number} ".encode() * 8
            producer.produce(COMPACTED, value, key)
            self.latest[key] = value
        assert producer.flush(30) == 0
        eventually(lambda: self._broker.clean_offset(COMPACTED) > before, what=f"{engine}'s compaction")

    def _compact_transactions(self) -> None:
        producer = self._transactional_producer()
        for number in range(12):
            is_aborted = number % 2 == 1
            producer.begin_transaction()
            for record in range(3):
                key, value = b"%d" % ((number + record) % KEYS), f"transaction {number} ".encode() * 8
                producer.produce(COMPACTED, value, key)
                if not is_aborted:
                    self.latest[key] = value
            end(producer, is_aborted=is_aborted)

    # -- reading

    def read_everything(self) -> None:
        """From the begin to the end of every partition."""
        places = [*self.written, (COMPACTED, 0)]
        # Whatever the cleaner does while all is read.
        clean = self._broker.clean_offset(COMPACTED)
        found = read(self._broker.bootstrap, places)
        for (topic, partition), written in self.written.items():
            messages = found[topic, partition]
            assert [(m.offset(), m.value()) for m in messages] == written, (topic, partition)
            if topic.endswith("CreateTime"):
                assert all(m.timestamp()[1] < self.begun_ms for m in messages)
            elif topic.endswith("LogAppendTime"):
                assert {m.timestamp()[0] for m in messages} == {2}
                assert all(m.timestamp()[1] >= self.begun_ms for m in messages)
        compacted = found[COMPACTED, 0]
        assert {m.key(): m.value() for m in compacted} == self.latest
        keys = [m.key() for m in compacted if (m.offset() or 0) < clean]
        assert len(keys) == len(set(keys)), "it is clean"

    def consume_on(self) -> None:
        """Two members of a group go on exactly where the group committed last, and commit a part of what there is."""
        wanted = {
            place: min(self.committed[place] + 30, len(written))
            for place, written in self.written.items()
            if place[0] == GROUPED
        }
        if not wanted:
            return
        with closing(self._member()) as first, closing(self._member()) as second:
            for place, offsets in consumed((first, second), wanted):
                assert offsets == list(range(self.committed[place], self.committed[place] + len(offsets)))
            places = [TopicPartition(*place, end) for place, end in wanted.items()]
            first.commit(offsets=places, asynchronous=False)
        self.committed.update(wanted)

    def _member(self) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self._broker.bootstrap,
                "group.id": READERS,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "heartbeat.interval.ms": 200,
                "partition.assignment.strategy": "cooperative-sticky",
                "log_level": 0,
            }
        )
        consumer.subscribe([GROUPED])
        return consumer

    # -- what is known

    def check_configs(self) -> None:
        """Configurations that were changed while a broker ran."""

        def is_known() -> bool:
            # A client that was told of no controller, at the wrong moment, asks again after minutes only.
            admin = AdminClient({"bootstrap.servers": self._broker.bootstrap, "log_level": 0})
            (future,) = admin.describe_configs(
                [ConfigResource("TOPIC", GROUPED)], request_timeout=10
            ).values()
            try:
                return bool(future.result()["max.message.bytes"].value == "54321")
            except KafkaException as error:
                # A broker serves before the controller has told it of the topics.
                print(f"the configuration is not described: {error}")
                return False

        eventually(is_known, what="the changed configuration")

    def check_aborted(self) -> None:
        """What readers of committed records are told of aborted transactions, frame by frame."""
        if self.told_of_aborted:
            assert self._aborted() == self.told_of_aborted

    def _aborted(self) -> list[Any]:
        host, _, port = self._broker.bootstrap.rpartition(":")
        session = Session((host, int(port)))
        found = []
        for partition, offset, size_max in product(range(PARTITIONS), (0, 9, 20), (1, 800, 1 << 20)):
            wanted = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": size_max}
            message = {"max_wait_ms": 0, "min_bytes": 0, "isolation_level": 1, "topics": []}
            message["topics"] = [{"topic": TRANSACTED, "partitions": [wanted]}]
            answer = session.look(FETCH, 11, message)["responses"][0]["partitions"][0]
            answer["records"] = bytes(answer["records"] or b"")
            found.append(answer)
        session.close()
        return found

    def check_groups(self) -> None:
        """The offsets that the group committed."""
        if not self.committed:
            return
        places = sorted(self.committed)
        found = self._committed(READERS, *places)
        assert found == [self.committed[place] for place in places]
        assert self._committed(COPIERS, (TRANSACTED, 0)) == [self.copied]

    def _committed(self, group: str, *places: PartitionKey) -> list[int]:
        consumer = self._consumer(group)
        found = consumer.committed([TopicPartition(*place) for place in places], timeout=30)
        consumer.close()
        return [place.offset for place in found]

    def _consumer(self, group: str) -> Consumer:
        return Consumer({"bootstrap.servers": self._broker.bootstrap, "group.id": group, "log_level": 0})


def end(producer: Producer, *, is_aborted: bool) -> None:
    """End a transaction whose records are all in the log."""
    assert producer.flush(30) == 0
    if is_aborted:
        producer.abort_transaction(30)
    else:
        producer.commit_transaction(30)


def read(bootstrap: str, places: list[PartitionKey]) -> dict[PartitionKey, list[Message]]:
    """All messages of partitions, read as a consumer does who wants committed ones only."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in places])
    found: dict[PartitionKey, list[Message]] = {place: [] for place in places}
    ended: set[PartitionKey] = set()

    def is_read() -> bool:
        for message in consumer.consume(1000, timeout=0.1):
            place = message.topic() or "", message.partition() or 0
            error = message.error()
            if error is None:
                found[place].append(message)
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(place)
        return len(ended) == len(places)

    eventually(is_read, what="the end of every partition")
    consumer.close()
    return found


def consumed(
    members: tuple[Consumer, ...], wanted: dict[PartitionKey, int]
) -> list[tuple[PartitionKey, list[int]]]:
    """The offsets that members of a group get until they have come to those wanted, one partition each.

    By member, and since it last got the partition, for one that changes hands is read from the committed offset again.
    """
    seen: dict[tuple[int, PartitionKey], list[int]] = defaultdict(list)

    def is_done() -> bool:
        for number, member in enumerate(members):
            for message in member.consume(100, timeout=0.1):
                assert message.error() is None, message.error()
                topic, partition, offset = message.topic(), message.partition(), message.offset()
                assert topic is not None
                assert partition is not None
                assert offset is not None
                offsets = seen[number, (topic, partition)]
                if offsets and offset <= offsets[-1]:
                    offsets.clear()  # it has lost the partition and got it back
                offsets.append(offset)
        ends = {place: offsets[-1] + 1 for (_, place), offsets in seen.items()}
        has_come = all(ends.get(place, 0) >= end for place, end in wanted.items())
        return has_come and all(len(member.assignment()) == 1 for member in members)

    eventually(is_done, what="the group's messages")
    return [(place, offsets) for (_, place), offsets in seen.items()]
