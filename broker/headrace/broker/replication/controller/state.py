"""What a controller knows of its cluster, and what it says of a partition.

Invariant: a partition of a topic that is being deleted is spoken of as `LEADER_DURING_DELETE`, whatever its state. The
themes beside this file change it; it decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from headrace.broker.replication.events import PartitionWord, StateWrite
from headrace.broker.replication.model import (
    LEADER_DURING_DELETE,
    NO_LEADER,
    Broker,
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
)
from headrace.broker.wire.partitions import PartitionKey


@dataclass(slots=True)
class ClusterState:
    """One term's view of the cluster."""

    epoch: int = 0
    brokers: dict[int, Broker] = field(default_factory=dict)
    # Brokers that are about to stop.
    leaving: set[int] = field(default_factory=set)
    # Replicas in data directories that failed, by broker.
    offline: dict[int, frozenset[PartitionKey]] = field(default_factory=dict)
    topics: dict[str, TopicAssignment] = field(default_factory=dict)
    states: dict[PartitionKey, PartitionState] = field(default_factory=dict)
    # The replicas, (partition, broker), that are still to be deleted, by topic.
    deleting: dict[str, set[tuple[int, int]]] = field(default_factory=dict)
    # Topics whose deletion begins once none of their partitions is on the move any more.
    doomed: set[str] = field(default_factory=set)
    # The partitions on their way to other brokers, by topic.
    moving: dict[str, set[int]] = field(default_factory=dict)

    def online(self, topic: str, partition: int) -> AbstractSet[int]:
        """The brokers that are alive and did not lose this partition with a data directory."""
        if not self.offline:
            return self.brokers.keys()
        key = (topic, partition)
        return {b for b in self.brokers if key not in self.offline.get(b, ())}

    def is_doomed(self, topic: str) -> bool:
        """Whether the topic is being deleted, or will be as soon as that may begin."""
        return topic in self.deleting or topic in self.doomed

    def assignment(self, key: PartitionKey) -> ReplicaAssignment | None:
        """The replicas of a partition, if there is such a one."""
        topic = self.topics.get(key[0])
        return None if topic is None else topic.partitions.get(key[1])

    def assign(self, assignments: Mapping[PartitionKey, ReplicaAssignment]) -> None:
        """These partitions, which are known, have other replicas."""
        by_topic: dict[str, dict[int, ReplicaAssignment]] = {}
        for (topic, partition), assignment in assignments.items():
            by_topic.setdefault(topic, {})[partition] = assignment
        for topic, partitions in by_topic.items():
            known = self.topics[topic]
            self.topics[topic] = replace(known, partitions={**known.partitions, **partitions})

    def partitions(self, topics: Iterable[str] | None = None) -> Iterable[tuple[str, int, ReplicaAssignment]]:
        """(topic, partition, assignment) of these topics, or of all."""
        for topic in self.topics if topics is None else topics:
            if topic in self.topics:
                for partition, assignment in self.topics[topic].partitions.items():
                    yield topic, partition, assignment

    def replicated_on(self, broker_id: int) -> Iterable[tuple[str, int, ReplicaAssignment]]:
        """Partitions with a state of which this broker has a replica, and others too."""
        for topic, partition, assignment in self.partitions():
            is_replicated = len(assignment.replicas) > 1 and broker_id in assignment.replicas
            if is_replicated and topic not in self.deleting and (topic, partition) in self.states:
                yield topic, partition, assignment

    def remaining(self, broker_id: int) -> list[PartitionKey]:
        """Replicated partitions that this broker still leads: what a controlled shutdown waits for."""
        return [
            (topic, partition)
            for topic, partition, _ in self.replicated_on(broker_id)
            if self.states[topic, partition].leader == broker_id
        ]

    def offline_partition_count(self) -> int:
        """Partitions that no live broker leads, those that are being deleted left aside."""
        return sum(
            (state := self.states.get((topic, partition))) is None or state.leader not in self.brokers
            for topic, partition, _ in self.partitions()
            if topic not in self.deleting
        )

    def imbalance_count(self) -> int:
        """Partitions that another than their first replica leads, those that are being deleted left aside."""
        return sum(
            (state := self.states.get((topic, partition))) is not None
            and state.leader != assignment.replicas[0]
            for topic, partition, assignment in self.partitions()
            if topic not in self.deleting and assignment.replicas
        )

    def drop(self, topic: str) -> None:
        """Forget a topic with the states of its partitions."""
        self.doomed.discard(topic)
        self.moving.pop(topic, None)
        assignment = self.topics.pop(topic, None)
        for partition in assignment.partitions if assignment is not None else ():
            self.states.pop((topic, partition), None)

    def settled(self, writes: Iterable[StateWrite]) -> tuple[PartitionWord, ...]:
        """What can be said at once: the states that are not about to be replaced."""
        changing = {(w.topic, w.partition) for w in writes}
        return self.words(
            {k: s for k, s in self.states.items() if k not in changing and k[0] not in self.deleting}
        )

    def all_known(self) -> tuple[PartitionWord, ...]:
        """What there is to say of every partition with a state."""
        return self.words(self.states)

    def words(
        self, states: Mapping[PartitionKey, PartitionState], new: Iterable[PartitionKey] = ()
    ) -> tuple[PartitionWord, ...]:
        """What to say of these states; the partitions in `new` have just been made."""
        fresh = frozenset(new)
        return tuple(
            self._word(topic, partition, state, is_new=(topic, partition) in fresh)
            for (topic, partition), state in states.items()
            if topic in self.topics and partition in self.topics[topic].partitions
        )

    def words_of(self, topic: str, partitions: Iterable[int]) -> tuple[PartitionWord, ...]:
        """Every partition of a topic that is being deleted, with or without a state."""
        nothing = PartitionState(leader=NO_LEADER, leader_epoch=-1, isr=(), controller_epoch=self.epoch)
        return tuple(self._word(topic, p, self.states.get((topic, p), nothing)) for p in partitions)

    def _word(
        self, topic: str, partition: int, state: PartitionState, *, is_new: bool = False
    ) -> PartitionWord:
        assignment = self.topics[topic].partitions[partition]
        online = self.online(topic, partition)
        if topic in self.deleting:
            state = replace(state, leader=LEADER_DURING_DELETE)
        return PartitionWord(
            topic=topic,
            topic_id=self.topics[topic].topic_id,
            partition=partition,
            state=state,
            assignment=assignment,
            is_new=is_new,
            offline=tuple(r for r in assignment.replicas if r not in online or r in self.leaving),
        )
