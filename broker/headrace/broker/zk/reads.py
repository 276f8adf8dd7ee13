"""What ZooKeeper holds of brokers, topics and partition states, read many at a time.

A znode that no Kafka wrote is logged and passed over: it must not keep the cluster from having a controller.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from headrace.broker.replication.model import Broker, PartitionState, TopicAssignment, TopicPartition
from headrace.broker.structured_log import get_logger
from headrace.broker.zk import paths
from headrace.broker.zk.client import ZooKeeperClient

log = get_logger(__name__)
READS_IN_FLIGHT_MAX = 200


async def read_brokers(zookeeper: ZooKeeperClient, names: Sequence[str]) -> dict[int, Broker]:
    """The brokers of these ids that are registered."""
    znodes = await zookeeper.get_many([paths.broker(int(name)) for name in names])
    brokers: dict[int, Broker] = {}
    for name, znode in zip(names, znodes, strict=True):
        if znode is not None:
            with _passing_over():
                brokers[int(name)] = paths.decode_broker(int(name), znode.data, znode.creation_zxid)
    return brokers


async def read_topics(zookeeper: ZooKeeperClient, names: Sequence[str]) -> dict[str, TopicAssignment]:
    """The assignments of those of these topics that there are."""
    topics: dict[str, TopicAssignment] = {}
    for first in range(0, len(names), READS_IN_FLIGHT_MAX):
        batch = names[first : first + READS_IN_FLIGHT_MAX]
        znodes = await zookeeper.get_many([paths.topic(name) for name in batch])
        for name, znode in zip(batch, znodes, strict=True):
            if znode is not None:
                with _passing_over():
                    topics[name] = paths.decode_topic(name, znode.data)
    return topics


async def read_states(
    zookeeper: ZooKeeperClient, keys: Sequence[TopicPartition]
) -> dict[TopicPartition, PartitionState | None]:
    """The states of these partitions; None where there is none yet."""
    states: dict[TopicPartition, PartitionState | None] = dict.fromkeys(keys)
    for first in range(0, len(keys), READS_IN_FLIGHT_MAX):
        batch = keys[first : first + READS_IN_FLIGHT_MAX]
        znodes = await zookeeper.get_many([paths.partition_state(*key) for key in batch])
        for key, znode in zip(batch, znodes, strict=True):
            if znode is not None:
                with _passing_over():
                    path = paths.partition_state(*key)
                    states[key] = paths.decode_partition_state(path, znode.data, znode.version)
    return states


@contextmanager
def _passing_over() -> Iterator[None]:
    try:
        yield
    except paths.MalformedZnodeError as error:
        log.error("a znode is passed over", reason=error)
