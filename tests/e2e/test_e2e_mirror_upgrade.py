"""What earlier versions kept for a mirror, each broker in a partition of its own, is taken over by brokers that share topics."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic
from mirror_clusters import Cluster, copied
from processes import eventually
from zookeeper_process import ZooKeeperProcess

from headrace.mirror.memory import state as states
from headrace.mirror.memory.own_topics import ARRIVALS, FINDINGS, OWN_TOPICS, STATES, WRITTEN_PARTITION

COPY = "dc-east.events"
PLACE = f"{COPY}-0".encode()
OLD_PARTITION = 1
NEW_FIELDS = ("term", "untold")


class Kept(NamedTuple):
    """A record of a topic that the mirror keeps."""

    partition: int
    key: bytes | None
    value: bytes | None


@pytest.fixture
def clusters(tmp_path: Path, zookeeper: ZooKeeperProcess) -> Iterator[tuple[Cluster, Cluster]]:
    """(dc-east with one broker, offline with two, whose copy of `events` has stopped at a gap)."""
    east = Cluster(tmp_path / "east", zookeeper, 1)
    offline = Cluster(tmp_path / "offline", zookeeper, 2)
    east.create("events", 1)
    east.publish("events", 500)
    offline.mirror({"dc-east": east})
    copied(east, offline, "events")
    without_mirror(offline)
    east.publish("events", 500)
    gone = TopicPartition("events", 0, 700)
    east.admin.delete_records([gone])[gone].result(20)
    offline.mirror({"dc-east": east})
    eventually(lambda: state_of(offline) == "stopped", what="the stop at the gap")
    yield east, offline
    for cluster in (offline, east):
        cluster.end()


def without_mirror(offline: Cluster) -> None:
    offline.settings.clear()
    for number in offline.brokers:
        offline.kill_and_start(number)


def status(offline: Cluster) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headrace.cli", "mirror", "status", "--bootstrap", offline.bootstrap]
    return subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=60, check=False)


def state_of(offline: Cluster) -> str | None:
    """What the copy is at; None while nobody tells."""
    done = status(offline)
    rows = json.loads(done.stdout)["partitions"] if done.stdout else []
    return next((row["state"] for row in rows if row["topic"] == COPY), None)


def kept(offline: Cluster, topic: str) -> list[Kept]:
    """All records of a topic."""
    consumer = Consumer({"bootstrap.servers": offline.bootstrap, "group.id": "kept", "log_level": 0})
    found: list[Kept] = []
    for partition in consumer.list_topics(topic, 10).topics[topic].partitions:
        place = TopicPartition(topic, partition, 0)
        _, end = consumer.get_watermark_offsets(place, timeout=20)
        consumer.assign([place])
        while end and consumer.position([place])[0].offset < end:
            messages = consumer.consume(1000, timeout=0.5)
            found += [Kept(partition, m.key(), m.value()) for m in messages if m.error() is None]
    consumer.close()
    return found


def lay_out_as_before(offline: Cluster) -> None:
    """Topics with a partition for each broker, without replicas; all that is known lies in that of the second one."""
    found = {topic: kept(offline, topic) for topic in (STATES, FINDINGS, ARRIVALS)}
    (latest,) = [
        record.value
        for record in found[STATES][-1:]
        if record.value and (record.key or b"").startswith(PLACE + b"/")
    ]
    old_state = {k: v for k, v in json.loads(latest).items() if k not in NEW_FIELDS}
    assert old_state["stopped"]
    without_mirror(offline)
    for removal in offline.admin.delete_topics(list(OWN_TOPICS)).values():
        removal.result(30)
    new = [
        NewTopic(topic, 2, replica_assignment=[[0], [1]], config=dict(c)) for topic, c in OWN_TOPICS.items()
    ]
    for creation in offline.admin.create_topics(new).values():
        creation.result(30)
    producer = Producer({"bootstrap.servers": offline.bootstrap, "log_level": 0})
    producer.produce(STATES, json.dumps(old_state).encode(), PLACE, OLD_PARTITION)
    for topic in (FINDINGS, ARRIVALS):
        for record in found[topic]:
            producer.produce(topic, record.value, record.key, OLD_PARTITION)
    assert producer.flush(30) == 0


@pytest.mark.long
def test_what_earlier_versions_kept_is_taken_over(clusters: tuple[Cluster, Cluster]) -> None:
    east, offline = clusters
    lay_out_as_before(offline)
    before = {topic: kept(offline, topic) for topic in (FINDINGS, ARRIVALS)}
    assert [json.loads(record.value or b"")["kind"] for record in before[FINDINGS]] == ["gap"]
    offline.mirror({"dc-east": east})
    eventually(lambda: state_of(offline) == "stopped", what="the same stop as before")
    assert kept(offline, FINDINGS) == before[FINDINGS], "it is no other finding"
    command = [sys.executable, "-m", "headrace.cli", "mirror", "resume", COPY, "0"]
    resumed = subprocess.run(
        [*command, "--bootstrap", offline.bootstrap], capture_output=True, text=True, timeout=60, check=False
    )
    assert resumed.returncode == 0, resumed.stderr
    eventually(lambda: offline.end_offset(COPY, 0) == 1000, what="the rest of the copy")
    assert offline.batches(COPY)[0][-1] == east.batches("events")[0][-1]
    eventually(lambda: Kept(OLD_PARTITION, PLACE, None) in kept(offline, STATES), what="the old state's end")
    written = [record.key or b"" for record in kept(offline, STATES) if record.partition == WRITTEN_PARTITION]
    assert any(key.startswith(states.SEPARATOR.join((PLACE.decode(), "")).encode()) for key in written)
    old = [record.value for record in before[ARRIVALS]]
    eventually(lambda: len(kept(offline, ARRIVALS)) > len(old), what="arrivals of the rest")
    assert not {r.value for r in kept(offline, ARRIVALS) if r.partition == WRITTEN_PARTITION} & set(old)
