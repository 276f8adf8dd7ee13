"""What topics may be created or grown, and which brokers get their replicas.

Checks come in Kafka's order and change nothing; what fails one raises a KafkaError with Kafka's words.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from headrace.broker.config.broker import BrokerConfig
from headrace.broker.config.topics import LogConfig
from headrace.broker.errors import (
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidRequestError,
    InvalidTopicError,
    TopicExistsError,
)
from headrace.broker.replication.assignment import assign_replicas
from headrace.broker.replication.model import TopicAssignment
from headrace.broker.replication.topic_requests import NewTopic, check_name
from headrace.broker.server.metadata import MetadataCache

PARTITION_COUNT_MAX = 10_000


class TopicChecks:
    """The rules of this broker's configuration, over the topics and brokers of the metadata cache."""

    def __init__(self, config: BrokerConfig, metadata: MetadataCache) -> None:
        self._config = config
        self._metadata = metadata
        self._defaults = LogConfig.from_broker(config)

    def partitions_of(self, topic: NewTopic, doomed: set[str]) -> dict[int, tuple[int, ...]]:
        """The replicas of a topic that may be created, as far as its configuration allows; checked in Kafka's order."""
        if self._metadata.topics(topic.name) is not None:
            raise TopicExistsError(f"Topic '{topic.name}' already exists.")
        nulls = sorted(name for name, value in topic.configs.items() if value is None)
        if nulls:
            raise InvalidConfigError(f"Null value not supported for topic configs: {','.join(nulls)}")
        partitions = self._assignment(topic)
        check_name(topic.name)
        if topic.name in doomed:
            raise TopicExistsError(f"Topic '{topic.name}' is marked for deletion.")
        self._check_collisions(topic.name)
        if topic.assignments:
            self._check_assignments(partitions)
            if list(partitions) != list(range(len(partitions))):
                raise InvalidReplicaAssignmentError(
                    "partitions should be a consecutive 0-based integer sequence"
                )
        return partitions

    def added_partitions(
        self, old: TopicAssignment, count: int, assignments: Sequence[Sequence[int]] | None
    ) -> dict[int, tuple[int, ...]]:
        present = len(old.partitions)
        if count == present:
            raise InvalidPartitionsError(f"Topic already has {present} partitions.")
        if count < present:
            raise InvalidPartitionsError(
                f"Topic currently has {present} partitions, which is higher than the requested {count}."
            )
        _check_count(count)
        brokers = {b.broker_id: b.rack for b in self._metadata.brokers.values()}
        first = old.partitions[0].replicas
        if assignments is None:
            start = next((i for i, b in enumerate(sorted(brokers)) if b >= first[0]), 0)
            return assign_replicas(
                brokers, count - present, len(first), start=start, shift=start, first_partition=present
            )
        if len(assignments) != count - present:
            raise InvalidReplicaAssignmentError(
                f"Increasing the number of partitions by {count - present} "
                f"but {len(assignments)} assignments provided."
            )
        partitions = {present + i: tuple(replicas) for i, replicas in enumerate(assignments)}
        if any(len(replicas) != len(first) for replicas in partitions.values()):
            raise InvalidReplicaAssignmentError("All partitions should have the same number of replicas")
        self._check_assignments(partitions)
        return partitions

    def configs_of(self, topic: NewTopic) -> dict[str, str]:
        configs = {name: value for name, value in topic.configs.items() if value is not None}
        self._defaults.with_overrides(configs)
        return configs

    def _check_collisions(self, name: str) -> None:
        if "." in name or "_" in name:
            unified = name.replace(".", "_")
            colliding = [t for t in self._metadata.topic_names() if t.replace(".", "_") == unified]
            if colliding:
                raise InvalidTopicError(
                    f"Topic '{name}' collides with existing topics: {', '.join(colliding)}"
                )

    def _assignment(self, topic: NewTopic) -> dict[int, tuple[int, ...]]:
        if topic.assignments:
            return self._manual_assignment(topic)
        count = topic.partition_count
        factor = topic.replication_factor
        if count == -1:
            count = self._config.topics.num_partitions
        if factor == -1:
            factor = self._config.topics.default_replication_factor
        _check_count(count)
        brokers = {b.broker_id: b.rack for b in self._metadata.brokers.values()}
        size = max(1, len(brokers))
        return assign_replicas(
            brokers, count, factor, start=random.randrange(size), shift=random.randrange(size)
        )

    def _manual_assignment(self, topic: NewTopic) -> dict[int, tuple[int, ...]]:
        if topic.partition_count != -1 or topic.replication_factor != -1:
            raise InvalidRequestError(
                "Both numPartitions or replicationFactor and replicasAssignments were set. "
                "Both cannot be used at the same time."
            )
        _check_count(len(topic.assignments))
        return {p: tuple(brokers) for p, brokers in sorted(topic.assignments.items())}

    def _check_assignments(self, partitions: dict[int, tuple[int, ...]]) -> None:
        if len({len(brokers) for brokers in partitions.values()}) != 1:
            raise InvalidReplicaAssignmentError("All partitions should have the same number of replicas")
        if any(len(set(brokers)) != len(brokers) or not brokers for brokers in partitions.values()):
            raise InvalidReplicaAssignmentError("Duplicate or missing replicas in an assignment")
        named = {broker for brokers in partitions.values() for broker in brokers}
        unknown = sorted(named - self._metadata.brokers.keys())
        if unknown:
            raise InvalidReplicaAssignmentError(f"Unknown broker(s) in replica assignment: {unknown}.")


def _check_count(count: int) -> None:
    if count > PARTITION_COUNT_MAX:
        raise InvalidPartitionsError(f"Number of partitions must be at most {PARTITION_COUNT_MAX}.")
