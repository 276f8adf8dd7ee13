"""What ZooKeeper holds of brokers, topics and partition states, read many at a time.

A znode that no Kafka wrote is logged and passed over: it must not keep the cluster from having a controller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from headrace.broker.errors import InvalidTopicError
from headrace.broker.replication.model import Broker, PartitionState, TopicAssignment
from headrace.broker.replication.topic_requests import check_name
from headrace.broker.structured_log import get_logger
from headrace.broker.tasks import paced
from headrace.broker.wire.partitions import PartitionKey
from headrace.broker.zk import paths
from headrace.broker.zk.client import ZooKeeperClient
from headrace.broker.zk.znodes import Znode

logger = get_logger(__name__)
READS_IN_FLIGHT_MAX = 1_000
READ_AT_ONCE = 100
"""Znodes before others have their turn: a millisecond."""
T = TypeVar("T")


async def read_brokers(zookeeper: ZooKeeperClient, names: Sequence[str]) -> dict[int, Broker]:
    """The brokers of these ids that are registered."""
    brokers: dict[int, Broker] = {}
    ids = [broker_id for name in names if (broker_id := _broker_id(name)) is not None]
    znodes = await zookeeper.get_many([paths.broker(broker_id) for broker_id in ids])
    for broker_id, znode in zip(ids, znodes, strict=True):
        if znode is not None:
            with _passing_over():
                brokers[broker_id] = paths.decode_broker(broker_id, znode.data, znode.creation_zxid)
    return brokers


def _broker_id(name: str) -> int | None:
    """The id that a znode's name is, written as Kafka writes it."""
    if name.isdecimal() and name.isascii() and str(int(name)) == name and int(name) < 2**31:
        return int(name)
    logger.error("a znode is passed over", reason=f"{paths.BROKER_IDS}/{name} is named for no broker id")
    return None


async def read_topics(zookeeper: ZooKeeperClient, names: Sequence[str]) -> dict[str, TopicAssignment]:
    """The assignments of those of these topics that there are."""
    topics: dict[str, TopicAssignment] = {}
    for first in range(0, len(names), READS_IN_FLIGHT_MAX):
        batch = names[first : first + READS_IN_FLIGHT_MAX]
        znodes = await zookeeper.get_many([paths.topic(name) for name in batch])
        async for name, znode in paced(zip(batch, znodes, strict=True), READ_AT_ONCE):
            if znode is not None:
                with _passing_over():
                    check_name(name)
                    topics[name] = paths.decode_topic(name, znode.data)
    return topics


async def read_states(
    zookeeper: ZooKeeperClient, keys: Sequence[PartitionKey]
) -> dict[PartitionKey, PartitionState | None]:
    """The states of these partitions; None where there is none yet."""
    states: dict[PartitionKey, PartitionState | None] = dict.fromkeys(keys)
    for first in range(0, len(keys), READS_IN_FLIGHT_MAX):
        batch = keys[first : first + READS_IN_FLIGHT_MAX]
        znodes = await zookeeper.get_many([paths.partition_state(*key) for key in batch])
        async for key, znode in paced(zip(batch, znodes, strict=True), READ_AT_ONCE):
            if znode is not None:
                with _passing_over():
                    path = paths.partition_state(*key)
                    states[key] = paths.decode_partition_state(
                        path, znode.data, znode.version, znode.modified_zxid
                    )
    return states


def understood(znodes: Iterable[Znode], decode: Callable[[bytes], T]) -> list[T]:
    """What these znodes say."""
    found = []
    for znode in znodes:
        with _passing_over():
            found.append(decode(znode.data))
    return found


@contextmanager
def _passing_over() -> Iterator[None]:
    try:
        yield
    except (paths.MalformedZnodeError, InvalidTopicError) as error:
        logger.error("a znode is passed over", reason=error)
