"""Finding the partition a request names, with the leader epoch it believes in (KIP-320)."""

from __future__ import annotations

from headrace.broker.errors import (
    FencedLeaderEpochError,
    NotLeaderOrFollowerError,
    UnknownLeaderEpochError,
)
from headrace.broker.handlers.services import Partitions
from headrace.broker.replication.partition import Partition
from headrace.broker.wire.special_values import NO_EPOCH


def led_partition(partitions: Partitions, topic: str, index: int, leader_epoch: int = NO_EPOCH) -> Partition:
    """The partition when this broker leads it in that epoch (-1: in any); raises as `readable_partition`."""
    return readable_partition(partitions, topic, index, leader_epoch, is_from_leader=True)


def readable_partition(
    partitions: Partitions, topic: str, index: int, leader_epoch: int, *, is_from_leader: bool
) -> Partition:
    """The partition when this broker leads it, or only holds it unless it `is_from_leader`, in that epoch (-1: in any).

    Raises NotLeaderOrFollowerError, StorageError, UnknownTopicOrPartitionError, FencedLeaderEpochError (the client's
    epoch is old) or UnknownLeaderEpochError (this broker's is). The epoch comes first, as in Kafka: a client that knows
    of an old leader is to look for the new one.
    """
    partition = partitions.replica(topic, index)
    if leader_epoch not in (NO_EPOCH, partition.leader_epoch):
        if leader_epoch < partition.leader_epoch:
            raise FencedLeaderEpochError(f"{topic}-{index} is in epoch {partition.leader_epoch}")
        raise UnknownLeaderEpochError(f"{topic}-{index} is in epoch {partition.leader_epoch} here")
    if is_from_leader and not partition.is_leader:
        raise NotLeaderOrFollowerError(f"this broker does not lead {topic}-{index}")
    return partition
