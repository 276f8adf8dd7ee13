"""Finding the partition a request names, with the leader epoch it believes in (KIP-320)."""

from __future__ import annotations

from headrace.broker.errors import FencedLeaderEpochError, UnknownLeaderEpochError
from headrace.broker.handlers.services import Partitions
from headrace.broker.replication.partition import Partition
from headrace.broker.wire.special_values import NO_EPOCH


def led_partition(partitions: Partitions, topic: str, index: int, leader_epoch: int = NO_EPOCH) -> Partition:
    """The partition when this broker leads it in that epoch (-1: in any).

    Raises NotLeaderOrFollowerError, UnknownTopicOrPartitionError, FencedLeaderEpochError (the client's epoch is old) or
    UnknownLeaderEpochError (this broker's is).
    """
    partition = partitions.leader_of(topic, index)
    if leader_epoch not in (NO_EPOCH, partition.leader_epoch):
        if leader_epoch < partition.leader_epoch:
            raise FencedLeaderEpochError(f"{topic}-{index} is led in epoch {partition.leader_epoch}")
        raise UnknownLeaderEpochError(f"{topic}-{index} is led here in epoch {partition.leader_epoch}")
    return partition
