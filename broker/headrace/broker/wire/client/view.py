"""What a client believes of a cluster: its brokers' addresses, who leads which partition, the topics' ids. Pure.

Owns which failure makes what of it stale. A view is only ever what the last answers said: it asks nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from headrace.broker.errors import ErrorCode, KafkaError
from headrace.broker.wire.fields import ZERO_UUID
from headrace.broker.wire.partitions import PartitionKey
from headrace.broker.wire.special_values import NO_EPOCH

Address = tuple[str, int]
"""Topic and partition."""
NO_LEADER = -1
MOVED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Answers that fresh metadata and a moment's patience may cure."""


def is_lost(failure: Exception) -> bool:
    """Whether connections are of no use after this failure."""
    return isinstance(failure, OSError)


def is_moved(failure: Exception) -> bool:
    """Whether another broker may answer what this one refused."""
    return isinstance(failure, KafkaError) and failure.code in MOVED


def by_leader(
    leaders: Mapping[PartitionKey, int], places: Iterable[PartitionKey]
) -> dict[int, list[PartitionKey]]:
    """Those of these partitions that each broker leads; without those that have no leader."""
    led: dict[int, list[PartitionKey]] = {}
    for place in places:
        led.setdefault(leaders.get(place, NO_LEADER), []).append(place)
    led.pop(NO_LEADER, None)
    return led


def addresses_of(metadata: Mapping[str, Any]) -> dict[int, Address]:
    """Where an answer to Metadata says that the brokers are."""
    return {broker["node_id"]: (broker["host"], broker["port"]) for broker in metadata["brokers"]}


class ClusterView:
    """Filled by answers to Metadata; `addresses` by broker, `leaders` by topic and partition, -1 without a leader; the same of
    `controller_id`.
    """

    def __init__(self) -> None:
        self.addresses: dict[int, Address] = {}
        self.leaders: dict[PartitionKey, int] = {}
        self.topic_ids: dict[str, UUID] = {}
        self.cluster_id: str | None = None
        self.controller_id = NO_LEADER
        self._leader_epochs: dict[PartitionKey, int] = {}

    def take(self, metadata: Mapping[str, Any], *, is_whole: bool) -> None:
        """Believe an answer to Metadata; `is_whole` says whether all topics were asked for: others are no more."""
        self.addresses = addresses_of(metadata)
        self.cluster_id = metadata.get("cluster_id")
        self.controller_id = metadata.get("controller_id", NO_LEADER)
        if is_whole:
            self.leaders.clear()
            self._leader_epochs.clear()
            self.topic_ids.clear()
        for topic in metadata["topics"]:
            if topic.get("topic_id", ZERO_UUID) != ZERO_UUID:
                self.topic_ids[topic["name"]] = topic["topic_id"]
            for partition in topic["partitions"]:
                place = topic["name"], partition["partition_index"]
                self.leaders[place] = partition["leader_id"]
                self._leader_epochs[place] = partition.get("leader_epoch", NO_EPOCH)

    def leader_of(self, place: PartitionKey) -> Address | None:
        """The address of a partition's leader; None where none is known."""
        return self.addresses.get(self.leaders.get(place, NO_LEADER))

    def leader_epoch_of(self, place: PartitionKey) -> int:
        """The epoch that a partition's leader was last seen in; -1 where none is known."""
        return self._leader_epochs.get(place, NO_EPOCH)

    def forget_leaders(self, topic: str | None) -> None:
        """The leaders of a topic, or of all, may be others by now."""
        self.leaders = {
            place: leader for place, leader in self.leaders.items() if topic not in (None, place[0])
        }
