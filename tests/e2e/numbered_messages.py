"""Numbered messages of several sources: publish them, and read which of them are in a topic, in their order there."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable

from confluent_kafka import Consumer, Producer, TopicPartition

Brought = dict[tuple[str, int], list[int]]
"""(source, its partition) → the numbers of its messages, in the order in which they lie there."""


def publish_while(
    bootstrap: str, name: str, topic: str, partition_count: int, goes_on: Callable[[], bool]
) -> None:
    """Numbered messages to each partition in turn, for as long as that is so."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "log_level": 0})
    number = 0
    while goes_on():
        for partition in range(partition_count):
            producer.produce(topic, f"{name} {partition} {number}".encode().ljust(200), partition=partition)
        number += 1
        producer.poll(0)
        if number % 10 == 0:
            time.sleep(0.01)
    assert producer.flush(60) == 0


def numbers_in(bootstrap: str, topic: str) -> Brought:
    """All that lies there now."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "test",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    found: Brought = defaultdict(list)
    partitions = list(consumer.list_topics(topic, 10).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
    ended: set[int] = set()
    while len(ended) < len(partitions):
        message = consumer.poll(10)
        assert message is not None, "the topic cannot be read"
        if message.error() is not None:
            ended.add(message.partition() or 0)
            continue
        name, partition, number = (message.value() or b"").decode().split()
        assert int(partition) == message.partition()
        found[name, int(partition)].append(int(number))
    consumer.close()
    return found
