"""Fixtures of the conformance tests: Apache Kafka, and headrace beside it, asked the same questions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka_oracle import KafkaBroker, NoOracleError, find_jars
from kazoo.client import KazooClient
from processes import BrokerProcess
from sessions import Pair
from zookeeper_process import ZooKeeperProcess

CLUSTER_ID = b'{"version":"1","id":"Yz3mX2fWQ0uQk1qJ8pYb1g"}'
SETTINGS = {
    "offsets.topic.num.partitions": "5",
    "message.max.bytes": "100000",
    "socket.request.max.bytes": "1000000",
    "group.min.session.timeout.ms": "1000",
    "auto.create.topics.enable": "true",
}


@pytest.fixture(scope="session")
def kafka_jars() -> Path:
    """The folder with Apache Kafka's jars."""
    try:
        return find_jars()
    except NoOracleError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def pair(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """One broker of each kind with the same configuration, each in a chroot of one ZooKeeper."""
    home = tmp_path_factory.mktemp("pair")
    zookeeper = ZooKeeperProcess(home / "zookeeper")
    znodes = KazooClient(zookeeper.address)
    znodes.start()
    for chroot in ("/kafka", "/headrace"):
        znodes.create(f"{chroot}/cluster/id", CLUSTER_ID, makepath=True)
    kafka = KafkaBroker(
        kafka_jars, home / "kafka", broker_id=1, zookeeper=f"{zookeeper.address}/kafka", set=SETTINGS
    )
    headrace = BrokerProcess(
        home / "headrace", broker_id=1, zookeeper=f"{zookeeper.address}/headrace", set=SETTINGS
    )
    kafka.wait_until_serving()
    both = Pair(headrace=headrace, kafka=kafka, znodes=znodes)
    both.wait_for_producer_ids()
    yield both
    kafka.end()
    headrace.end()
    znodes.stop()
    znodes.close()
    zookeeper.end()
