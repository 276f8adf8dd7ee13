"""Fixtures of the conformance tests: Apache Kafka, and headrace beside it, asked the same questions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from kafka_oracle import KafkaBroker
from kazoo.client import KazooClient
from processes import BrokerProcess
from sessions import Pair
from zookeeper_process import ZooKeeperProcess

from headrace.bench.apache_kafka import NoKafkaError, find_jars

# Its assertions then tell what they compared.
pytest.register_assert_rewrite("swapped_broker")

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
    except NoKafkaError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def pair(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """One broker of each kind with the same configuration, shared by all tests: use topics and groups of your own."""
    with running_pair(kafka_jars, tmp_path_factory.mktemp("pair")) as both:
        yield both


@pytest.fixture
def own_pair(kafka_jars: Path, tmp_path: Path) -> Iterator[Pair]:
    """A pair for one test, which may change the brokers themselves."""
    with running_pair(kafka_jars, tmp_path) as both:
        yield both


@contextmanager
def running_pair(jars: Path, home: Path) -> Iterator[Pair]:
    """Both brokers, each in a chroot of one ZooKeeper."""
    with ExitStack() as stack:
        zookeeper = ZooKeeperProcess(home / "zookeeper")
        stack.callback(zookeeper.end)
        znodes = KazooClient(zookeeper.address)
        stack.callback(znodes.close)
        znodes.start()
        stack.callback(znodes.stop)
        for chroot in ("/kafka", "/headrace"):
            znodes.create(f"{chroot}/cluster/id", CLUSTER_ID, makepath=True)
        kafka = KafkaBroker(
            jars, home / "kafka", broker_id=1, zookeeper=f"{zookeeper.address}/kafka", set=SETTINGS
        )
        stack.callback(kafka.end)
        headrace = BrokerProcess(
            home / "headrace", broker_id=1, zookeeper=f"{zookeeper.address}/headrace", set=SETTINGS
        )
        stack.callback(headrace.end)
        kafka.wait_until_serving()
        both = Pair(headrace=headrace, kafka=kafka, znodes=znodes)
        both.wait_for_producer_ids()
        yield both
