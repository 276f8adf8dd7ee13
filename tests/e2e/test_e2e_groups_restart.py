"""Groups and offsets live in `__consumer_offsets`: they survive a broker that is killed and started again."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic
from processes import DevCluster

COMMITTED = 37


def committed(bootstrap: str) -> int:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
    try:
        (partition,) = consumer.committed([confluent_kafka.TopicPartition("t", 0)], timeout=30)
        offset: int = partition.offset
        return offset
    finally:
        consumer.close()


def test_offsets_and_members_survive_a_killed_broker(
    dev_cluster: Callable[..., DevCluster], tmp_path: Path
) -> None:
    data = tmp_path / "data"
    before = dev_cluster(data=data)
    admin = AdminClient({"bootstrap.servers": before.bootstrap})
    admin.create_topics([NewTopic("t", 1, 1)])["t"].result(20)
    producer = confluent_kafka.Producer({"bootstrap.servers": before.bootstrap})
    for number in range(100):
        producer.produce("t", str(number).encode())
    assert producer.flush(20) == 0

    settings = {"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False, "log_level": 0}
    member = confluent_kafka.Consumer({"bootstrap.servers": before.bootstrap, **settings})
    member.subscribe(["t"])
    read = 0
    deadline = time.monotonic() + 30
    while read < COMMITTED:
        assert time.monotonic() < deadline
        read += len([m for m in member.consume(COMMITTED - read, 1.0) if m.error() is None])
    member.commit(offsets=[confluent_kafka.TopicPartition("t", 0, COMMITTED)], asynchronous=False)
    before.kill_broker()

    listen = before.bootstrap
    after = dev_cluster(data=data, listen=listen)
    assert committed(after.bootstrap) == COMMITTED
    # The member itself finds its coordinator again, under the session it had.
    deadline = time.monotonic() + 40
    rest: list[int | None] = []
    while len(rest) < 100 - COMMITTED:
        assert time.monotonic() < deadline, rest
        rest += [m.offset() for m in member.consume(100, 1.0) if m.error() is None]
    assert rest == list(range(COMMITTED, 100))
    member.close()
