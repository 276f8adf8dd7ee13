"""Brokers that come, go, start again or fall behind, and their data directories that fail (KIP-112).

Who starts is told of everything, the others only of who is alive. A broker that was away between two looks has a new
registration epoch and counts as gone and started.
"""

from __future__ import annotations

from headrace.broker.replication.controller.deletions import Deletions
from headrace.broker.replication.controller.elections import Elections
from headrace.broker.replication.controller.sending import leaders_to, metadata_to
from headrace.broker.replication.controller.state import ClusterState
from headrace.broker.replication.events import (
    BrokerBehind,
    BrokersChanged,
    Command,
    ForgetBroker,
    LogDirectoriesFailed,
    ReplicasAnswered,
)


class Brokers:
    """What becomes of partitions and deletions when brokers change."""

    def __init__(self, cluster: ClusterState, elections: Elections, deletions: Deletions) -> None:
        self._cluster = cluster
        self._elections = elections
        self._deletions = deletions

    def changed(self, event: BrokersChanged) -> list[Command]:
        """Elect for those that are gone, tell those that started."""
        cluster = self._cluster
        old, cluster.brokers = cluster.brokers, dict(event.brokers)
        gone = old.keys() - cluster.brokers.keys()
        restarted = frozenset(
            b for b in old.keys() & cluster.brokers.keys() if old[b].epoch != cluster.brokers[b].epoch
        )
        started = (cluster.brokers.keys() - old.keys()) | restarted
        self._forget(gone | restarted)
        if not gone and not started:
            return []
        commands: list[Command] = [ForgetBroker(broker_id=b) for b in sorted(gone | restarted)]
        commands += metadata_to(cluster, cluster.brokers.keys() - started, ())
        if started:
            commands += metadata_to(cluster, started, cluster.all_known())
        writes = self._elections.due(restarted=restarted)
        if started:
            commands += leaders_to(cluster, started, cluster.settled(writes))
        commands += self._deletions.again_to(started)
        commands += self._deletions.stop_waiting_for(gone | restarted)
        return commands + self._elections.write_leaders_first(writes)

    def _forget(self, ended: frozenset[int] | set[int]) -> None:
        """What was known of lives of brokers that are over."""
        self._cluster.leaving -= ended
        for broker_id in ended:
            self._cluster.offline.pop(broker_id, None)

    def behind(self, event: BrokerBehind) -> list[Command]:
        """Tell one broker everything again."""
        cluster = self._cluster
        to = [event.broker_id] if event.broker_id in cluster.brokers else []
        commands = metadata_to(cluster, to, cluster.all_known())
        commands += leaders_to(cluster, to, cluster.settled(()))
        return commands + self._deletions.again_to(to)

    def log_directories_failed(self, event: LogDirectoriesFailed) -> list[Command]:
        """Ask the brokers for all their replicas: their answers say which are out of reach."""
        cluster = self._cluster
        return leaders_to(cluster, event.brokers & cluster.brokers.keys(), cluster.settled(()))

    def replicas_answered(self, event: ReplicasAnswered) -> list[Command]:
        """Elect for replicas that went with a data directory, and for those that are back."""
        cluster = self._cluster
        if event.broker_id not in cluster.brokers:
            return []
        before = cluster.offline.get(event.broker_id, frozenset())
        now = cluster.offline[event.broker_id] = (before - event.online) | event.offline
        changed = {key for key in before ^ now if key in cluster.states}
        writes = self._elections.due(sorted({topic for topic, _ in changed}))
        changing = {(w.topic, w.partition) for w in writes}
        words = cluster.words({key: cluster.states[key] for key in sorted(changed - changing)})
        told = metadata_to(cluster, cluster.brokers, words) if words else []
        return told + self._elections.write(writes)
