"""What ZooKeeper holds of brokers, topics and partition states, read many at a time."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.broker.replication.model import Broker, PartitionState, TopicAssignment, TopicPartition
from headrace.broker.zk import paths
from headrace.broker.zk.client import ZooKeeperClient

READS_IN_FLIGHT_MAX = 200


async def read_brokers(zookeeper: ZooKeeperClient, names: Sequence[str]) -> dict[int, Broker]:
    """The brokers of these ids that are registered."""
    znodes = await zookeeper.get_many([paths.broker(int(name)) for name in names])
    return {
        int(name): paths.decode_broker(int(name), znode.data, znode.creation_zxid)
        for name, znode in zip(names, znodes, strict=True)
        if znode is not None
    }


async def read_topics(zookeeper: ZooKeeperClient, names: Sequence[str]) -> dict[str, TopicAssignment]:
    """The assignments of those of these topics that there are."""
    topics: dict[str, TopicAssignment] = {}
    for first in range(0, len(names), READS_IN_FLIGHT_MAX):
        batch = names[first : first + READS_IN_FLIGHT_MAX]
        znodes = await zookeeper.get_many([paths.topic(name) for name in batch])
        for name, znode in zip(batch, znodes, strict=True):
            if znode is not None:
                topics[name] = paths.decode_topic(name, znode.data)
    return topics


async def read_states(
    zookeeper: ZooKeeperClient, keys: Sequence[TopicPartition]
) -> dict[TopicPartition, PartitionState | None]:
    """The states of these partitions; None where there is none yet."""
    states: dict[TopicPartition, PartitionState | None] = {}
    for first in range(0, len(keys), READS_IN_FLIGHT_MAX):
        batch = keys[first : first + READS_IN_FLIGHT_MAX]
        znodes = await zookeeper.get_many([paths.partition_state(*key) for key in batch])
        for key, z in zip(batch, znodes, strict=True):
            path = paths.partition_state(*key)
            states[key] = None if z is None else paths.decode_partition_state(path, z.data, z.version)
    return states
