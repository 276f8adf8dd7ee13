"""What is in a partition and who wrote it: deleting records, directories, producers, offsets of old clients."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from processes import DevCluster
from raw_client import LIST_OFFSETS, METADATA, RawClient, make_topic, produce

CREATE_TOPICS, DELETE_RECORDS, DESCRIBE_LOG_DIRS, DESCRIBE_PRODUCERS = 19, 21, 35, 61


@pytest.fixture
def client(broker: DevCluster) -> Iterator[RawClient]:
    raw = RawClient(broker)
    yield raw
    raw.socket.close()


@pytest.fixture
def topic(client: RawClient) -> str:
    name = f"topic-{uuid4()}"
    make_topic(client, name)
    for _ in range(10):
        assert produce(client, name, b"x" * 100)["error_code"] == 0
    return name


def delete(client: RawClient, topic: str, offset: int, *, partition: int = 0) -> tuple[int, int]:
    """(error, low watermark)."""
    partitions = [{"partition_index": partition, "offset": offset}]
    message = {"topics": [{"name": topic, "partitions": partitions}], "timeout_ms": 5000}
    found = client.ask(DELETE_RECORDS, 2, message)["topics"][0]["partitions"][0]
    return found["error_code"], found["low_watermark"]


def offsets(client: RawClient, version: int, topic: str, *times: int, **fields: Any) -> list[dict[str, Any]]:
    partitions = [{"partition_index": 0, "timestamp": time, **fields} for time in times]
    message = {"replica_id": -1, "topics": [{"name": topic, "partitions": partitions}]}
    found: list[dict[str, Any]] = client.ask(LIST_OFFSETS, version, message)["topics"][0]["partitions"]
    return found


def test_records_are_deleted_up_to_an_offset_and_never_come_back(client: RawClient, topic: str) -> None:
    assert delete(client, topic, 4) == (0, 4)
    assert offsets(client, 5, topic, -2)[0]["offset"] == 4
    assert delete(client, topic, 2) == (0, 4)
    assert delete(client, topic, -1) == (0, 10)
    assert delete(client, topic, 11) == (1, -1)
    assert delete(client, topic, -5) == (1, -1)


def test_records_of_compacted_internal_and_unknown_topics_stay(client: RawClient, topic: str) -> None:
    compacted = f"compacted-{uuid4()}"
    configs = [{"name": "cleanup.policy", "value": "compact"}]
    wish = {"name": compacted, "num_partitions": 1, "replication_factor": 1, "configs": configs}
    client.ask(CREATE_TOPICS, 5, {"topics": [wish], "timeout_ms": 5000})
    assert delete(client, compacted, 0) == (44, -1)
    assert delete(client, "unknown", 0) == (3, -1)
    assert delete(client, topic, 0, partition=7) == (3, -1)
    client.ask(METADATA, 5, {"topics": [{"name": "__consumer_offsets"}], "allow_auto_topic_creation": True})
    make_topic(client, "__consumer_offsets")
    assert delete(client, "__consumer_offsets", 0) == (17, -1)


@pytest.mark.parametrize("version", range(5))
def test_directories_tell_what_they_hold(
    broker: DevCluster, client: RawClient, topic: str, version: int
) -> None:
    whole = client.ask(DESCRIBE_LOG_DIRS, version, {"topics": None})["results"]
    named = client.ask(DESCRIBE_LOG_DIRS, version, {"topics": [{"topic": topic, "partitions": [0, 9]}]})[
        "results"
    ]
    (directory,) = named
    (held,) = directory["topics"]
    (partition,) = held["partitions"]
    path = os.path.join(directory["log_dir"], f"{topic}-0", f"{0:020d}.log")
    assert (held["name"], partition["partition_index"]) == (topic, 0)
    assert partition["partition_size"] == os.path.getsize(path) > 1000
    assert (partition["offset_lag"], partition["is_future_key"]) == (0, False)
    assert held in whole[0]["topics"]
    if version >= 4:
        assert 0 < directory["usable_bytes"] <= directory["total_bytes"]


def test_producers_of_a_partition_are_described(broker: DevCluster, client: RawClient, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for _ in range(3):
        producer.produce(topic, b"x", partition=0)
        producer.flush(10)
    wish = {
        "topics": [
            {"name": topic, "partition_indexes": [0, 5]},
            {"name": "bad name", "partition_indexes": [0]},
        ]
    }
    described, invalid = client.ask(DESCRIBE_PRODUCERS, 0, wish)["topics"]
    led, unknown = described["partitions"]
    (active,) = led["active_producers"]
    assert (active["producer_epoch"], active["last_sequence"]) == (0, 2)
    assert (active["coordinator_epoch"], active["current_txn_start_offset"]) == (-1, -1)
    assert (unknown["error_code"], invalid["partitions"][0]["error_code"]) == (3, 17)


def test_offsets_of_version_0_are_begins_of_segments(client: RawClient, topic: str) -> None:
    def ask(time: int, count: int) -> list[int]:
        found: list[int] = offsets(client, 0, topic, time, max_num_offsets=count)[0]["old_style_offsets"]
        return found

    assert [ask(-1, 1), ask(-1, 5), ask(-2, 5), ask(10**15, 5), ask(0, 5), ask(-1, 0)] == [
        [10],
        [10, 0],
        [0],
        [10, 0],
        [],
        [],
    ]


def test_a_partition_that_is_asked_for_twice_is_refused(client: RawClient, topic: str) -> None:
    assert [p["error_code"] for p in offsets(client, 1, topic, -1, -2)] == [42, 42]
