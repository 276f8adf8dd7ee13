"""Transactions of librdkafka on one broker: what readers of committed records see, fencing, offsets of groups, kills."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from processes import BrokerProcess, eventually, free_port
from zookeeper_process import ZooKeeperProcess

SECONDS = 60
PARTITIONS = (0, 1)


@pytest.fixture
def broker(
    broker_process: Callable[..., BrokerProcess],
    zookeeper: ZooKeeperProcess,
    tmp_path_factory: pytest.TempPathFactory,
) -> BrokerProcess:
    """One that keeps its port over a kill."""
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{free_port()}",
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.num.partitions": "3",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }
    place = zookeeper.under_chroot(tmp_path_factory.mktemp("transactions"))
    broker = broker_process(broker_id=1, zookeeper=place, set=settings)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topics = [NewTopic(name, len(PARTITIONS), 1) for name in ("source", "target")]
    for made in admin.create_topics(topics, operation_timeout=SECONDS).values():
        made.result(SECONDS)
    return broker


def producer(broker: BrokerProcess, name: str = "copier", **settings: Any) -> Producer:
    made = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": name,
            "log_level": 0,
            # Otherwise librdkafka 2.16 gives its handles of brokers up once all are down, but remembers that of the group's
            # coordinator and waits for it for ever in `send_offsets_to_transaction`, with Apache Kafka 3.9.2 just the same.
            "metadata.recovery.strategy": "none",
            **settings,
        }
    )
    made.init_transactions(SECONDS)
    return made


def consumer(broker: BrokerProcess, group: str, isolation: str = "read_committed") -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )


def write(writer: Producer, topic: str, values: list[str]) -> None:
    for number, value in enumerate(values):
        writer.produce(topic, value.encode(), partition=number % len(PARTITIONS))
    assert writer.flush(SECONDS) == 0


def read(broker: BrokerProcess, topic: str, isolation: str = "read_committed") -> list[str]:
    """All values up to where that kind of reader sees the end."""
    reader = consumer(broker, "nobody", isolation)
    reader.assign([TopicPartition(topic, partition, 0) for partition in PARTITIONS])
    values: list[str] = []
    ends: set[int | None] = set()
    while len(ends) < len(PARTITIONS):
        message = reader.poll(SECONDS)
        assert message is not None, f"no end of {topic}"
        error = message.error()
        if error is None:
            values.append((message.value() or b"").decode())
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ends.add(message.partition())
    reader.close()
    return sorted(values)


def messages(reader: Consumer) -> Iterator[str]:
    """Values as they come."""
    while True:
        message = reader.poll(SECONDS)
        assert message is not None, "nothing came"
        if message.error() is None:
            yield (message.value() or b"").decode()


def restart(broker: BrokerProcess) -> None:
    broker.kill()
    broker.start()


def lines(broker: BrokerProcess, what: str) -> list[str]:
    return [line for line in broker.log.read_text().splitlines() if what in line]


def test_a_transaction_over_its_time_is_aborted_and_one_that_wants_too_much_time_is_refused(
    broker: BrokerProcess,
) -> None:
    late = producer(broker, "late", **{"transaction.timeout.ms": 1000})
    late.begin_transaction()
    write(late, "source", ["in", "vain"])
    eventually(
        lambda: read(broker, "source") == [] and lines(broker, "transaction timed out"), what="its end"
    )
    with pytest.raises(KafkaException) as fenced:
        late.commit_transaction(SECONDS)
    assert fenced.value.args[0].fatal() or fenced.value.args[0].txn_requires_abort()
    with pytest.raises(KafkaException) as refused:
        producer(broker, "long", **{"transaction.timeout.ms": 900_001})
    assert refused.value.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT
    (line,) = lines(broker, "INVALID_TRANSACTION_TIMEOUT")
    assert "long" in line


def test_readers_of_committed_records_see_what_was_committed(broker: BrokerProcess) -> None:
    writer = producer(broker, "writer")
    expected = []
    for number in range(4):
        values = [f"{number}-{record}" for record in range(5)]
        writer.begin_transaction()
        write(writer, "source", values)
        if number % 2:
            writer.abort_transaction(SECONDS)
        else:
            writer.commit_transaction(SECONDS)
            expected += values
    writer.begin_transaction()
    write(writer, "source", ["open", "too"])
    assert read(broker, "source") == sorted(expected)
    assert len(read(broker, "source", "read_uncommitted")) == 22
    restart(broker)
    assert read(broker, "source") == sorted(expected)

    successor = producer(broker, "writer")
    with pytest.raises(KafkaException) as fenced:
        writer.commit_transaction(SECONDS)
    assert fenced.value.args[0].code() == KafkaError._FENCED
    (line,) = lines(broker, "transactional request refused")
    assert all(word in line for word in ("EndTransaction", "PRODUCER_FENCED", "writer"))
    successor.begin_transaction()
    write(successor, "source", ["last", "ones"])
    successor.commit_transaction(SECONDS)
    eventually(lambda: read(broker, "source") == sorted([*expected, "last", "ones"]), what="the last ones")


def test_what_is_copied_in_transactions_is_there_once_whatever_is_killed(broker: BrokerProcess) -> None:
    feeder = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    values = [str(number) for number in range(24)]
    write(feeder, "source", values)

    copied = 0
    for life in range(3):
        copier, reader = producer(broker), consumer(broker, "copiers")
        reader.subscribe(["source"])
        for value in messages(reader):
            copier.begin_transaction()
            copier.produce("target", value.encode(), partition=copied % len(PARTITIONS))
            position = reader.position(reader.assignment())
            copier.send_offsets_to_transaction(position, reader.consumer_group_metadata(), SECONDS)
            if copied % 8 == 3:
                # The broker comes back with the transaction open, and its producer ends it.
                assert copier.flush(SECONDS) == 0
                restart(broker)
            if copied % 8 == 7 and life < 2:
                # Nobody ends this one: the next life aborts it and does its work again.
                assert copier.flush(SECONDS) == 0
                copied += 1
                break
            copier.commit_transaction(SECONDS)
            copied += 1
            if copied == len(values) + 2:
                break
        reader.close()
    assert read(broker, "target") == sorted(values)
