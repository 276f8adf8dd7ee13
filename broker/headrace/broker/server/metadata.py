"""What this broker knows of the cluster, as the controller's UpdateMetadata requests told it.

Invariants: only UpdateMetadata changes the cache, but for topics that were deleted while this broker was away
(`forget`); a topic has the partitions of one topic id; `version` grows with each change, so that encoded
Metadata bodies can be cached by it; a topic is here only with at least one partition. Must not know
ZooKeeper: what a broker tells its clients is what the controller said last, also while ZooKeeper is away.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from uuid import UUID

from headrace.broker.replication.control_requests import ToldPartition, UpdateMetadata
from headrace.broker.replication.model import LEADER_DURING_DELETE, Broker, Endpoint, PartitionMetadata
from headrace.broker.wire.fields import ZERO_UUID


class MetadataCache:
    """Brokers, topics and the controller; `on_change` callbacks run after each update."""

    def __init__(self, cluster_id: str = "") -> None:
        self.cluster_id = cluster_id
        self.controller_id = -1
        self.controller_epoch = -1
        self.version = 0
        self._brokers: dict[int, Broker] = {}
        self._topics: dict[str, dict[int, PartitionMetadata]] = {}
        self._topic_ids: dict[str, UUID] = {}
        self._topic_names: dict[UUID, str] = {}
        self._expected: set[str] = set()
        self._callbacks: list[Callable[[], None]] = []

    @property
    def brokers(self) -> Mapping[int, Broker]:
        """The brokers that are alive."""
        return MappingProxyType(self._brokers)

    def is_alive(self, broker_id: int) -> bool:
        """Whether the controller's last word has that broker among the living."""
        return broker_id in self._brokers

    def topic_names(self) -> list[str]:
        """All topics, sorted."""
        return sorted(self._topics)

    def topics(self, name: str) -> Mapping[int, PartitionMetadata] | None:
        """The partitions of a topic by number, or None when there is no such topic."""
        return self._topics.get(name)

    def partition(self, topic: str, partition: int) -> PartitionMetadata | None:
        """One partition, or None when it is unknown."""
        return self._topics.get(topic, {}).get(partition)

    def is_expected(self, topic: str) -> bool:
        """Whether the topic is there, and the controller has yet to tell of it."""
        return topic in self._expected

    def topic_id(self, name: str) -> UUID:
        """The topic's id; the zero UUID when the topic is unknown or has none."""
        return self._topic_ids.get(name, ZERO_UUID)

    def topic_name(self, topic_id: UUID) -> str | None:
        """The topic of that id, or None."""
        return self._topic_names.get(topic_id)

    def endpoint(self, broker_id: int, listener: str) -> Endpoint | None:
        """Where clients of that listener reach that broker, or None when it is not alive or has no such
        listener.
        """
        broker = self._brokers.get(broker_id)
        return None if broker is None else broker.endpoint(listener)

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call `callback()` after each update."""
        self._callbacks.append(callback)

    def update(self, request: UpdateMetadata) -> None:
        """Apply a request of the controller's; fencing is done by the caller."""
        self.controller_id = request.controller_id
        self.controller_epoch = request.controller_epoch
        self._brokers = {broker.broker_id: broker for broker in request.brokers}
        for told in request.partitions:
            self._update_partition(told)
        self._changed()

    def forget(self, topic: str) -> None:
        """The topic is gone."""
        self._remove_topic(topic)
        self._changed()

    def expect(self, topics: Collection[str]) -> None:
        """These topics are there, of some of which the controller may have yet to tell."""
        self._expected = {topic for topic in topics if topic not in self._topics}
        self._changed()

    def set_cluster_id(self, cluster_id: str) -> None:
        """Say which cluster this is; known once ZooKeeper answered."""
        self.cluster_id = cluster_id
        self._changed()

    def _update_partition(self, told: ToldPartition) -> None:
        topic, topic_id = told.topic, told.topic_id
        self._expected.discard(topic)
        if told.metadata.leader == LEADER_DURING_DELETE:
            self._remove_partition(topic, told.partition)
            return
        old_id = self._topic_ids.get(topic, ZERO_UUID)
        if topic_id not in (ZERO_UUID, old_id):
            self._remove_topic(topic)
            self._topic_ids[topic] = topic_id
            self._topic_names[topic_id] = topic
        self._topics.setdefault(topic, {})[told.partition] = told.metadata

    def _remove_partition(self, topic: str, partition: int) -> None:
        partitions = self._topics.get(topic)
        if partitions is None:
            return
        partitions.pop(partition, None)
        if not partitions:
            self._remove_topic(topic)

    def _remove_topic(self, topic: str) -> None:
        self._topics.pop(topic, None)
        self._topic_names.pop(self._topic_ids.pop(topic, ZERO_UUID), None)

    def _changed(self) -> None:
        self.version += 1
        for callback in self._callbacks:
            callback()
