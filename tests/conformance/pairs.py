"""A broker of each kind with the same configuration, for scripts that ask both the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from kafka_oracle import KafkaBroker
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
    # Records that the tests date years back stay until somebody deletes them.
    "log.retention.ms": "-1",
}


@contextmanager
def chroots(zookeeper: ZooKeeperProcess) -> Iterator[KazooClient]:
    """A client of a ZooKeeper with a chroot for each broker, both with the same cluster id."""
    znodes = KazooClient(zookeeper.address)
    znodes.start()
    try:
        for chroot in ("/kafka", "/headrace"):
            znodes.create(f"{chroot}/cluster/id", CLUSTER_ID, makepath=True)
        yield znodes
    finally:
        znodes.stop()
        znodes.close()


@contextmanager
def running_pair(jars: Path, home: Path, set: Mapping[str, str] | None = None) -> Iterator[Pair]:
    """Both brokers, each in a chroot of one ZooKeeper; `set` adds to the common settings."""
    settings = {**SETTINGS, **(set or {})}
    with ExitStack() as stack:
        zookeeper = ZooKeeperProcess(home / "zookeeper")
        stack.callback(zookeeper.end)
        znodes = stack.enter_context(chroots(zookeeper))
        kafka = KafkaBroker(
            jars, home / "kafka", broker_id=1, zookeeper=f"{zookeeper.address}/kafka", set=settings
        )
        stack.callback(kafka.end)
        headrace = BrokerProcess(
            home / "headrace", broker_id=1, zookeeper=f"{zookeeper.address}/headrace", set=settings
        )
        stack.callback(headrace.end)
        kafka.wait_until_serving()
        both = Pair(headrace=headrace, kafka=kafka, znodes=znodes)
        both.wait_for_producer_ids()
        yield both
