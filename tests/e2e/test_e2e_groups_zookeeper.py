"""Offsets of version 0 in ZooKeeper: committed, read back, and moved to __consumer_offsets by the command."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import psutil
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient
from processes import DevCluster, DevProcess
from raw_client import RawClient, make_topic

from headrace.broker.client.bootstrap import Bootstrap
from headrace.cli import group_migration

OFFSET_COMMIT, OFFSET_FETCH = 8, 9


@pytest.fixture
def client(broker: DevCluster) -> Iterator[RawClient]:
    raw = RawClient(broker)
    yield raw
    raw.socket.close()


@pytest.fixture
def topic(client: RawClient) -> str:
    name = f"topic-{uuid4()}"
    make_topic(client, name)
    return name


def commit(client: RawClient, group: str, topic: str, offset: int, **fields: Any) -> list[int]:
    partitions = [
        {"partition_index": index, "committed_offset": offset, "committed_metadata": "m", **fields}
        for index in (0, 9)
    ]
    message = {"group_id": group, "topics": [{"name": topic, "partitions": partitions}]}
    return [p["error_code"] for p in client.ask(OFFSET_COMMIT, 0, message)["topics"][0]["partitions"]]


def fetch(client: RawClient, version: int, group: str, topic: str) -> list[tuple[int, int]]:
    """(offset, error) of partitions 0 and 9."""
    message = {"group_id": group, "topics": [{"name": topic, "partition_indexes": [0, 9]}]}
    found = client.ask(OFFSET_FETCH, version, message)["topics"][0]["partitions"]
    return [(p["committed_offset"], p["error_code"]) for p in found]


def headrace_groups(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headrace.cli", "groups", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_offsets_of_version_0_are_znodes(broker: DevCluster, client: RawClient, topic: str) -> None:
    assert fetch(client, 0, "old", topic) == [(-1, 3), (-1, 3)]
    assert commit(client, "old", topic, 5) == [0, 3]
    assert commit(client, "old", topic, 7) == [0, 3]
    assert fetch(client, 0, "old", topic) == [(7, 0), (-1, 3)]
    znodes = KazooClient(broker.zookeeper)
    znodes.start()
    try:
        assert znodes.get(f"/consumers/old/offsets/{topic}/0")[0] == b"7"
    finally:
        znodes.stop()
        znodes.close()


# Each is next to one of those that follow.
@pytest.mark.parametrize("group", [" ", "\x7e", "\xa0", "\ud7ff", "\uf900", "\uffef"])
def test_a_group_may_have_any_znodes_name(client: RawClient, topic: str, group: str) -> None:
    assert commit(client, group, topic, 5) == [0, 3]
    assert fetch(client, 0, group, topic) == [(5, 0), (-1, 3)]


@pytest.mark.parametrize(
    "group", ["", "a/b", "..", "\0", "\x1f", "\x7f", "\x9f", "\ue000", "\uf8ff", "\ufff0", "\U0001f600"]
)
def test_a_group_that_is_no_znodes_name_is_refused(client: RawClient, topic: str, group: str) -> None:
    assert commit(client, group, topic, 5) == [24, 3]
    assert fetch(client, 0, group, topic) == [(-1, 24), (-1, 3)]


def test_metadata_that_is_too_long_is_refused(client: RawClient, topic: str) -> None:
    assert commit(client, "long", topic, 5, committed_metadata="m" * 5000) == [12, 3]
    assert fetch(client, 0, "long", topic)[0] == (-1, 3)


def test_offsets_move_although_the_offsets_topic_takes_long_to_create(
    dev_process: Callable[..., DevProcess],
) -> None:
    """The admin client looks for a coordinator for half a second; here there is none for a second and a half."""
    cluster = dev_process(own_zookeeper=True)
    raw = RawClient(cluster)
    try:
        make_topic(raw, "slow")
        assert commit(raw, "slow", "slow", 42) == [0, 3]
    finally:
        raw.socket.close()
    zookeeper = next(
        child
        for child in psutil.Process(cluster.process.pid).children()
        if "org.apache.zookeeper" in " ".join(child.cmdline())
    )
    zookeeper.suspend()
    timer = threading.Timer(1.5, zookeeper.resume)
    timer.start()
    try:
        group_migration.commit(Bootstrap(cluster.bootstrap), "slow", {("slow", 0): 42})
    finally:
        timer.join()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    committed = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("slow")])["slow"].result()
    assert [(each.topic, each.offset) for each in committed.topic_partitions] == [("slow", 42)]


def test_a_groups_offsets_move_to_the_brokers(broker: DevCluster, client: RawClient, topic: str) -> None:
    assert commit(client, "moving", topic, 42) == [0, 3]
    place = ("--bootstrap", broker.bootstrap, "--zookeeper", broker.zookeeper)
    run = headrace_groups("migrate", "moving", *place, "--json")
    assert (run.returncode, run.stderr) == (0, "")
    rows = [{"topic": topic, "partition": 0, "offset": 42}]
    assert json.loads(run.stdout) == {"group": "moving", "moved": rows, "dropped": 0}
    assert fetch(client, 5, "moving", topic)[0] == (42, 0)
    assert fetch(client, 0, "moving", topic)[0] == (-1, 3)
    again = headrace_groups("migrate", "moving", *place)
    assert again.returncode == 1
    assert "holds no offsets" in again.stderr
