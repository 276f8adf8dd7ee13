"""How a topic goes: hidden from clients, its replicas deleted, then its znodes removed.

Invariant: the znodes go once every replica is gone and no live broker shows the topic any more; a broker that is away
is waited for while it has replicas. A topic with partitions on their way to other brokers stays until those are there.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.broker.replication.controller.sending import deletions_to, metadata_to
from headrace.broker.replication.controller.state import ClusterState
from headrace.broker.replication.events import (
    Command,
    DeletionsRequested,
    RefuseDeletion,
    RemoveTopic,
    ReplicasDeleted,
    TopicRemoved,
    TopicsHidden,
)


class Deletions:
    """The deletions under way; none are begun when they are not `allowed` (`delete.topic.enable`)."""

    def __init__(self, cluster: ClusterState, *, allowed: bool) -> None:
        self._cluster = cluster
        self._allowed = allowed
        # The brokers that still show a topic to their clients.
        self._showing: dict[str, set[int]] = {}

    def requested(self, event: DeletionsRequested) -> list[Command]:
        """Begin with those that are not under way; refuse those that there are not."""
        cluster = self._cluster
        commands: list[Command] = []
        for topic in sorted(event.topics - cluster.deleting.keys()):
            if topic not in cluster.topics or not self._allowed:
                commands.append(RefuseDeletion(topic=topic))
                continue
            if topic in cluster.moving:
                cluster.doomed.add(topic)
                continue
            cluster.doomed.discard(topic)
            partitions = cluster.topics[topic].partitions
            cluster.deleting[topic] = {(p, r) for p, a in partitions.items() for r in a.replicas}
            self._showing[topic] = set(cluster.brokers)
            commands += metadata_to(cluster, cluster.brokers, cluster.words_of(topic, partitions))
            commands += deletions_to(cluster, cluster.brokers, topic)
        return commands

    def again_to(self, broker_ids: Iterable[int]) -> list[Command]:
        """Tell brokers that may not have heard of it what they are to delete."""
        to = list(broker_ids)
        topics = sorted(self._cluster.deleting)
        return [command for topic in topics for command in deletions_to(self._cluster, to, topic)]

    def stop_waiting_for(self, gone: Iterable[int]) -> list[Command]:
        """Brokers that went show nothing any more."""
        touched = {topic for topic, showing in self._showing.items() if showing & set(gone)}
        for topic in touched:
            self._showing[topic] -= set(gone)
        return self._finish(touched)

    def replicas_deleted(self, event: ReplicasDeleted) -> list[Command]:
        """A broker has fewer replicas left to delete."""
        deleting = self._cluster.deleting
        touched = {topic for topic, _ in event.partitions} & deleting.keys()
        for topic in touched:
            deleting[topic] -= {(p, event.broker_id) for t, p in event.partitions if t == topic}
        return self._finish(touched)

    def topics_hidden(self, event: TopicsHidden) -> list[Command]:
        """A broker shows these topics no longer."""
        hidden = event.topics & self._cluster.deleting.keys()
        touched = {t for t in hidden if event.broker_id in self._showing[t]}
        for topic in touched:
            self._showing[topic].discard(event.broker_id)
        return self._finish(touched)

    def topic_removed(self, event: TopicRemoved) -> list[Command]:
        """The end of a topic."""
        self._cluster.deleting.pop(event.topic, None)
        self._showing.pop(event.topic, None)
        self._cluster.drop(event.topic)
        return []

    def vanished(self, topic: str) -> list[Command]:
        """The znodes of a topic vanished without a deletion: clients must no longer see it."""
        cluster = self._cluster
        if topic not in cluster.topics:
            return []
        cluster.deleting[topic] = set()
        words = cluster.words_of(topic, cluster.topics[topic].partitions)
        del cluster.deleting[topic]
        cluster.drop(topic)
        return metadata_to(cluster, cluster.brokers, words)

    def _finish(self, topics: Iterable[str]) -> list[Command]:
        deleting = self._cluster.deleting
        done = [t for t in sorted(topics) if not deleting[t] and not self._showing[t]]
        return [RemoveTopic(topic=topic) for topic in done]
