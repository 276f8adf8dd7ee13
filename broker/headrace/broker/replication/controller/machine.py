"""The controller as a state machine: a cluster event in, commands out.

Invariants: a partition's leader epoch grows with every state written; a state reaches brokers only after
it was written; a partition of a topic that is being deleted is never given a leader; at most one
`WriteStates` is out, and its outcome is the next event. The order of commands is the order in which they
must be performed. Knows nothing of ZooKeeper or sockets: `server.control.controller` performs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from headrace.broker.replication.controller.balance import Balance
from headrace.broker.replication.controller.brokers import Brokers
from headrace.broker.replication.controller.deletions import Deletions
from headrace.broker.replication.controller.elections import Elections
from headrace.broker.replication.controller.isr import IsrChanges
from headrace.broker.replication.controller.reassignments import Reassignments
from headrace.broker.replication.controller.sending import metadata_to
from headrace.broker.replication.controller.state import ClusterState
from headrace.broker.replication.events import (
    AssignmentsWritten,
    BalanceDue,
    BrokerBehind,
    BrokersChanged,
    Command,
    DeletionsRequested,
    Elected,
    Event,
    IsrChanged,
    IsrProposed,
    LeadersRequested,
    LogDirectoriesFailed,
    LookDue,
    LookOn,
    PreferredLeadersRequested,
    ReassignmentsAsked,
    ReassignmentsRequested,
    ReassignmentsWished,
    ReplicasAnswered,
    ReplicasDeleted,
    ShutdownRequested,
    StatesWritten,
    TopicRemoved,
    TopicsChanged,
    TopicsHidden,
    UncleanElectionsAllowed,
    WriteAssignments,
    WriteStates,
)
from headrace.broker.replication.model import TopicAssignment


class Controller:
    """One controller's term; `cluster` is what it knows."""

    def __init__(
        self,
        *,
        delete_topics: bool = True,
        unclean: Callable[[str], bool] = lambda topic: False,
        imbalance_percentage: int = 10,
        notes_recovery: bool = True,
    ) -> None:
        """`unclean(topic)` says whether an out-of-sync replica may lead that topic, `notes_recovery` whether that is noted.

        `imbalance_percentage` of the partitions whose first replica a broker holds may be led by others.
        """
        self.cluster = ClusterState()
        self._elections = elections = Elections(self.cluster, unclean, notes_recovery=notes_recovery)
        self._deletions = deletions = Deletions(self.cluster, allowed=delete_topics)
        self._isr_changes = isr_changes = IsrChanges(self.cluster)
        self._balance = balance = Balance(self.cluster, elections, imbalance_percentage=imbalance_percentage)
        self._reassignments = reassignments = Reassignments(self.cluster, elections, deletions)
        brokers = Brokers(self.cluster, elections, deletions)
        self._handlers: dict[type, Callable[..., list[Command]]] = {
            Elected: self._elected,
            TopicsChanged: self._topics_changed,
            IsrChanged: self._isr_changed,
            IsrProposed: isr_changes.proposed,
            StatesWritten: self._states_written,
            LookDue: self._look_due,
            ShutdownRequested: elections.shutdown_requested,
            UncleanElectionsAllowed: elections.unclean_allowed,
            PreferredLeadersRequested: balance.preferred_leaders_requested,
            LeadersRequested: balance.leaders_requested,
            BalanceDue: balance.due,
            ReassignmentsRequested: reassignments.requested,
            ReassignmentsWished: reassignments.wished,
            ReassignmentsAsked: reassignments.asked,
            AssignmentsWritten: self._assignments_written,
            BrokersChanged: brokers.changed,
            BrokerBehind: brokers.behind,
            LogDirectoriesFailed: brokers.log_directories_failed,
            ReplicasAnswered: brokers.replicas_answered,
            DeletionsRequested: deletions.requested,
            ReplicasDeleted: deletions.replicas_deleted,
            TopicsHidden: deletions.topics_hidden,
            TopicRemoved: deletions.topic_removed,
        }

    def handle(self, event: Event) -> list[Command]:
        """Take an event; answers what to do now, in order."""
        commands = self._handlers[type(event)](event)
        if any(isinstance(command, WriteStates | WriteAssignments) for command in commands):
            return commands
        return commands + self._going_on()

    def _going_on(self) -> list[Command]:
        """What else is to be done, there being no write out that may change it: first the look of a term, then what was
        postponed, then what moves and wishes need.
        """
        if self._elections.is_looking:
            return [LookOn()]
        rest = self._elections.rest()
        if rest:
            return rest
        writes = self._reassignments.writes()
        if self._balance.is_wished:
            wanted = self._balance.writes({(w.topic, w.partition) for w in writes})
            if not wanted:
                return self._elections.write(writes) + self._balance.ended()
            writes += wanted
        return self._elections.write(writes)

    def _elected(self, event: Elected) -> list[Command]:
        cluster = self.cluster
        cluster.epoch = event.epoch
        cluster.brokers = dict(event.brokers)
        cluster.topics = dict(event.topics)
        cluster.states = dict(event.states)
        self._reassignments.resume()
        deletions = self._deletions.requested(DeletionsRequested(topics=event.deletions))
        self._elections.begin_look()
        return deletions + self._elections.look_on()

    def _look_due(self, event: LookDue) -> list[Command]:
        return self._elections.look_on()

    def _topics_changed(self, event: TopicsChanged) -> list[Command]:
        cluster = self.cluster
        commands: list[Command] = []
        for topic in sorted(event.removed - cluster.deleting.keys()):
            commands += self._deletions.vanished(topic)
        for topic, assignment in event.topics.items():
            known = cluster.topics.get(topic)
            if known is not None and known.topic_id != assignment.topic_id:
                commands += self._deletions.vanished(topic)
                known = None
            cluster.topics[topic] = assignment if known is None else _grown(known, assignment)
        return commands + self._elections.write(self._elections.due(event.topics))

    def _states_written(self, event: StatesWritten) -> list[Command]:
        """Who wanted the write hears of its outcome; what others wrote instead is an election's matter."""
        if not self._isr_changes.is_under_way:
            self._reassignments.states_written(event)
            commands = self._elections.states_written(event)
            return commands + self._reassignments.states_told(event)
        commands = self._isr_changes.written(event)
        if event.conflicts:
            commands += self._elections.states_written(replace(event, written={}))
        return commands

    def _assignments_written(self, event: AssignmentsWritten) -> list[Command]:
        """A partition that never had a leader may have one among the added replicas."""
        commands = self._reassignments.assignments_written(event)
        return commands + self._elections.write(
            self._elections.due(sorted({t for t, _ in event.assignments}))
        )

    def _isr_changed(self, event: IsrChanged) -> list[Command]:
        cluster = self.cluster
        changed = {tp: s for tp, s in event.states.items() if tp in cluster.states}
        cluster.states.update(changed)
        return metadata_to(cluster, cluster.brokers, cluster.words(changed))


def _grown(known: TopicAssignment, read: TopicAssignment) -> TopicAssignment:
    """Partitions are added by whoever writes the topic's znode; what replicas the others have is the controller's matter."""
    return replace(read, partitions={**read.partitions, **known.partitions})
