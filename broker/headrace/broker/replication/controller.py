"""The controller as a state machine: a cluster event in, commands out.

Invariants: a partition's leader epoch grows with every state written; a state reaches brokers only after
it was written; a partition of a topic that is being deleted is never given a leader; at most one
`WriteStates` is out, and its outcome is the next event. The order of commands is the order in which they
must be performed. Knows nothing of ZooKeeper or sockets: `server.controller` performs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

from headrace.broker.replication.election import (
    elect_first,
    elect_for_shutdown,
    elect_offline,
    elect_preferred,
    without_leader,
)
from headrace.broker.replication.events import (
    BrokerBehind,
    BrokersChanged,
    Command,
    DeletionsRequested,
    Elected,
    EndPreferredElection,
    Event,
    ForgetBroker,
    IsrChanged,
    LogDirectoriesFailed,
    PartitionWord,
    PreferredLeadersRequested,
    RefuseDeletion,
    RemoveTopic,
    ReplicasAnswered,
    ReplicasDeleted,
    SendLeaderAndIsr,
    SendStopReplica,
    SendUpdateMetadata,
    ShutdownRequested,
    StatesWritten,
    StateWrite,
    TopicRemoved,
    TopicsChanged,
    TopicsHidden,
    WriteStates,
)
from headrace.broker.replication.model import (
    EPOCH_DURING_DELETE,
    INITIAL_LEADER_EPOCH,
    LEADER_DURING_DELETE,
    NO_LEADER,
    Broker,
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
    TopicPartition,
)


class Controller:
    """One controller's term; `unclean(topic)` says whether an out-of-sync replica may lead that topic."""

    def __init__(
        self, *, delete_topics: bool = True, unclean: Callable[[str], bool] = lambda topic: False
    ) -> None:
        self._delete_topics = delete_topics
        self._unclean = unclean
        self.epoch = 0
        self.brokers: dict[int, Broker] = {}
        self.leaving: set[int] = set()
        # Replicas in data directories that failed, by broker.
        self.offline: dict[int, frozenset[TopicPartition]] = {}
        self.topics: dict[str, TopicAssignment] = {}
        self.states: dict[TopicPartition, PartitionState] = {}
        self.deleting: dict[str, set[tuple[int, int]]] = {}
        self._showing: dict[str, set[int]] = {}
        self._created: set[TopicPartition] = set()
        # The partitions whose preferred leaders are being elected; None when nobody wants that.
        self._preferring: frozenset[TopicPartition] | None = None
        self._handlers: dict[type, Callable[..., list[Command]]] = {
            Elected: self._elected,
            BrokersChanged: self._brokers_changed,
            TopicsChanged: self._topics_changed,
            DeletionsRequested: self._deletions_requested,
            StatesWritten: self._states_written,
            ReplicasDeleted: self._replicas_deleted,
            TopicsHidden: self._topics_hidden,
            TopicRemoved: self._topic_removed,
            IsrChanged: self._isr_changed,
            LogDirectoriesFailed: self._log_directories_failed,
            ReplicasAnswered: self._replicas_answered,
            ShutdownRequested: self._shutdown_requested,
            PreferredLeadersRequested: self._preferred_leaders_requested,
            BrokerBehind: self._broker_behind,
        }

    def handle(self, event: Event) -> list[Command]:
        """Take an event; answers what to do now, in order."""
        return self._handlers[type(event)](event)

    def remaining(self, broker_id: int) -> list[TopicPartition]:
        """Replicated partitions that this broker still leads: what a controlled shutdown waits for."""
        return [
            (topic, partition)
            for topic, partition, assignment in self._partitions()
            if len(assignment.replicas) > 1
            and topic not in self.deleting
            and (state := self.states.get((topic, partition))) is not None
            and state.leader == broker_id
        ]

    def _elected(self, event: Elected) -> list[Command]:
        self.epoch = event.epoch
        self.brokers = dict(event.brokers)
        self.topics = dict(event.topics)
        self.states = dict(event.states)
        commands = self._deletions_requested(DeletionsRequested(topics=event.deletions))
        writes = self._due_writes(restarted=frozenset())
        settled = self._settled(writes)
        commands = self._metadata_to(self.brokers, settled) + commands
        return commands + self._leaders_to(self.brokers, settled) + self._write(writes)

    def _brokers_changed(self, event: BrokersChanged) -> list[Command]:
        old, self.brokers = self.brokers, dict(event.brokers)
        gone = old.keys() - self.brokers.keys()
        restarted = frozenset(
            b for b in old.keys() & self.brokers.keys() if old[b].epoch != self.brokers[b].epoch
        )
        started = (self.brokers.keys() - old.keys()) | restarted
        self.leaving -= gone | restarted
        for broker_id in gone | restarted:
            self.offline.pop(broker_id, None)
        if not gone and not started:
            return []
        commands: list[Command] = [ForgetBroker(broker_id=b) for b in sorted(gone | restarted)]
        commands += self._metadata_to(self.brokers.keys() - started, ())
        commands += self._metadata_to(started, self._all_known())
        writes = self._due_writes(restarted=restarted)
        commands += self._leaders_to(started, self._settled(writes))
        for topic in sorted(self.deleting):
            commands += self._stop_replicas(topic, started)
        return commands + self._stop_waiting_for(gone | restarted) + self._write(writes)

    def _stop_waiting_for(self, gone: Iterable[int]) -> list[Command]:
        """Brokers that went show nothing any more."""
        touched = {topic for topic, showing in self._showing.items() if showing & set(gone)}
        for topic in touched:
            self._showing[topic] -= set(gone)
        return self._finish_deletions(touched)

    def _topics_changed(self, event: TopicsChanged) -> list[Command]:
        commands: list[Command] = []
        for topic in sorted(event.removed - self.deleting.keys()):
            commands += self._forget_topic(topic)
        for topic, assignment in event.topics.items():
            known = self.topics.get(topic)
            if known is not None and known.topic_id != assignment.topic_id:
                commands += self._forget_topic(topic)
            self.topics[topic] = assignment
        return commands + self._write(self._due_writes(restarted=frozenset(), topics=event.topics))

    def _deletions_requested(self, event: DeletionsRequested) -> list[Command]:
        commands: list[Command] = []
        for topic in sorted(event.topics - self.deleting.keys()):
            if topic not in self.topics or not self._delete_topics:
                commands.append(RefuseDeletion(topic=topic))
                continue
            partitions = self.topics[topic].partitions
            self.deleting[topic] = {(p, r) for p, a in partitions.items() for r in a.replicas}
            self._showing[topic] = set(self.brokers)
            commands += self._metadata_to(self.brokers, self._words_of(topic, partitions))
            commands += self._stop_replicas(topic, self.brokers.keys())
        return commands

    def _replicas_deleted(self, event: ReplicasDeleted) -> list[Command]:
        touched = {topic for topic, _ in event.partitions} & self.deleting.keys()
        for topic in touched:
            self.deleting[topic] -= {(p, event.broker_id) for t, p in event.partitions if t == topic}
        return self._finish_deletions(touched)

    def _topics_hidden(self, event: TopicsHidden) -> list[Command]:
        touched = {t for t in event.topics & self.deleting.keys() if event.broker_id in self._showing[t]}
        for topic in touched:
            self._showing[topic].discard(event.broker_id)
        return self._finish_deletions(touched)

    def _finish_deletions(self, topics: Iterable[str]) -> list[Command]:
        """A topic goes for good once every replica is gone and no live broker shows it any more."""
        done = [t for t in sorted(topics) if not self.deleting[t] and not self._showing[t]]
        return [RemoveTopic(topic=topic) for topic in done]

    def _topic_removed(self, event: TopicRemoved) -> list[Command]:
        self.deleting.pop(event.topic, None)
        self._showing.pop(event.topic, None)
        self._drop(event.topic)
        return []

    def _isr_changed(self, event: IsrChanged) -> list[Command]:
        changed = {tp: s for tp, s in event.states.items() if tp in self.states}
        self.states.update(changed)
        return self._metadata_to(self.brokers, self._words(changed))

    def _log_directories_failed(self, event: LogDirectoriesFailed) -> list[Command]:
        return self._leaders_to(event.brokers & self.brokers.keys(), self._settled(()))

    def _replicas_answered(self, event: ReplicasAnswered) -> list[Command]:
        if event.broker_id not in self.brokers:
            return []
        before = self.offline.get(event.broker_id, frozenset())
        now = self.offline[event.broker_id] = (before - event.online) | event.offline
        changed = {key for key in before ^ now if key in self.states}
        writes = self._due_writes(restarted=frozenset(), topics=sorted({topic for topic, _ in changed}))
        changing = {(w.topic, w.partition) for w in writes}
        words = self._words({key: self.states[key] for key in sorted(changed - changing)})
        return (self._metadata_to(self.brokers, words) if words else []) + self._write(writes)

    def _online(self, topic: str, partition: int) -> AbstractSet[int]:
        """The brokers that are alive and did not lose this partition with a data directory."""
        if not self.offline:
            return self.brokers.keys()
        key = (topic, partition)
        return {b for b in self.brokers if key not in self.offline.get(b, ())}

    def _shutdown_requested(self, event: ShutdownRequested) -> list[Command]:
        self.leaving.add(event.broker_id)
        writes = []
        for topic, partition in self.remaining(event.broker_id):
            state = self.states[topic, partition]
            replicas = self.topics[topic].partitions[partition].replicas
            choice = elect_for_shutdown(replicas, state.isr, self._online(topic, partition), self.leaving)
            if choice is not None:
                writes.append(self._successor(topic, partition, state, *choice))
        return self._write(writes)

    def _preferred_leaders_requested(self, event: PreferredLeadersRequested) -> list[Command]:
        self._preferring = event.partitions
        return self._write_with_preferred([])

    def _write_with_preferred(self, due: list[StateWrite]) -> list[Command]:
        """`due`, and the preferred leaders still to be elected: a state that somebody else changed is tried again."""
        if self._preferring is None:
            return self._write(due)
        taken = {(w.topic, w.partition) for w in due}
        wanted = [w for w in map(self._preferred_write, sorted(self._preferring - taken)) if w is not None]
        if wanted:
            return self._write(due + wanted)
        self._preferring = None
        return [*self._write(due), EndPreferredElection()]

    def _preferred_write(self, key: TopicPartition) -> StateWrite | None:
        """None for what is unknown or being deleted, and when the preferred leader leads already or cannot."""
        topic, partition = key
        state = self.states.get(key)
        if state is None or topic in self.deleting or partition not in self.topics[topic].partitions:
            return None
        replicas = self.topics[topic].partitions[partition].replicas
        choice = elect_preferred(replicas, state.isr, self._online(topic, partition) - self.leaving)
        if choice is None or choice[0] == state.leader:
            return None
        return self._successor(topic, partition, state, *choice)

    def _broker_behind(self, event: BrokerBehind) -> list[Command]:
        to = [event.broker_id] if event.broker_id in self.brokers else []
        commands = self._metadata_to(to, self._all_known()) + self._leaders_to(to, self._settled(()))
        for topic in sorted(self.deleting):
            commands += self._stop_replicas(topic, to)
        return commands

    def _states_written(self, event: StatesWritten) -> list[Command]:
        written = {tp: s for tp, s in event.written.items() if tp[0] in self.topics}
        self.states.update(written)
        new = self._created & written.keys()
        self._created.clear()
        for key in event.conflicts:
            self.states.pop(key, None)
        found = {k: s for k, s in event.conflicts.items() if s is not None and k[0] in self.topics}
        self.states.update(found)
        words = self._words(written, new) + self._words(found)
        commands = self._leaders_to(self.brokers, words)
        if words:
            commands += self._metadata_to(self.brokers, words)
        return commands + self._write_with_preferred(
            self._due_writes(restarted=frozenset(), topics=sorted({topic for topic, _ in found}))
        )

    def _due_writes(
        self, *, restarted: frozenset[int], topics: Iterable[str] | None = None
    ) -> list[StateWrite]:
        """The states that the present brokers make necessary."""
        writes = []
        for topic, partition, assignment in self._partitions(topics):
            if topic not in self.deleting:
                write = self._due_write(topic, partition, assignment, restarted)
                if write is not None:
                    writes.append(write)
        return writes

    def _due_write(
        self, topic: str, partition: int, assignment: ReplicaAssignment, restarted: frozenset[int]
    ) -> StateWrite | None:
        state = self.states.get((topic, partition))
        if state is None:
            return self._first_state(topic, partition, assignment)
        live = self._online(topic, partition)
        steady = live - restarted
        if state.leader in steady:
            isr = tuple(r for r in state.isr if r in steady)
            return None if isr == state.isr else self._successor(topic, partition, state, state.leader, isr)
        choice = elect_offline(assignment.replicas, state.isr, steady) or elect_offline(
            assignment.replicas, state.isr, live, unclean=self._unclean(topic)
        )
        if choice is not None:
            return self._successor(topic, partition, state, *choice)
        isr = without_leader(state.isr, live)
        if state.leader == NO_LEADER and isr == state.isr:
            return None
        return self._successor(topic, partition, state, NO_LEADER, isr)

    def _first_state(self, topic: str, partition: int, assignment: ReplicaAssignment) -> StateWrite | None:
        choice = elect_first(assignment.replicas, self._online(topic, partition))
        if choice is None:
            return None
        state = PartitionState(
            leader=choice[0],
            leader_epoch=INITIAL_LEADER_EPOCH,
            isr=choice[1],
            controller_epoch=self.epoch,
        )
        return StateWrite(topic=topic, partition=partition, state=state, create=True)

    def _successor(
        self, topic: str, partition: int, state: PartitionState, leader: int, isr: tuple[int, ...]
    ) -> StateWrite:
        successor = replace(
            state, leader=leader, isr=isr, leader_epoch=state.leader_epoch + 1, controller_epoch=self.epoch
        )
        return StateWrite(topic=topic, partition=partition, state=successor, create=False)

    def _write(self, writes: Iterable[StateWrite]) -> list[Command]:
        batch = tuple(writes)
        self._created |= {(w.topic, w.partition) for w in batch if w.create}
        return [WriteStates(writes=batch)] if batch else []

    def _settled(self, writes: Iterable[StateWrite]) -> tuple[PartitionWord, ...]:
        """What can be said at once: the states that are not about to be replaced."""
        changing = {(w.topic, w.partition) for w in writes}
        return self._words(
            {k: s for k, s in self.states.items() if k not in changing and k[0] not in self.deleting}
        )

    def _all_known(self) -> tuple[PartitionWord, ...]:
        return self._words(self.states)

    def _words(
        self, states: Mapping[TopicPartition, PartitionState], new: Iterable[TopicPartition] = ()
    ) -> tuple[PartitionWord, ...]:
        fresh = frozenset(new)
        return tuple(
            self._word(topic, partition, state, is_new=(topic, partition) in fresh)
            for (topic, partition), state in states.items()
            if topic in self.topics and partition in self.topics[topic].partitions
        )

    def _words_of(self, topic: str, partitions: Iterable[int]) -> tuple[PartitionWord, ...]:
        """Every partition of a topic that is being deleted, with or without a state."""
        nothing = PartitionState(leader=NO_LEADER, leader_epoch=-1, isr=(), controller_epoch=self.epoch)
        return tuple(self._word(topic, p, self.states.get((topic, p), nothing)) for p in partitions)

    def _word(
        self, topic: str, partition: int, state: PartitionState, *, is_new: bool = False
    ) -> PartitionWord:
        assignment = self.topics[topic].partitions[partition]
        online = self._online(topic, partition)
        if topic in self.deleting:
            state = replace(state, leader=LEADER_DURING_DELETE)
        return PartitionWord(
            topic=topic,
            topic_id=self.topics[topic].topic_id,
            partition=partition,
            state=state,
            assignment=assignment,
            is_new=is_new,
            offline=tuple(r for r in assignment.replicas if r not in online),
        )

    def _leaders_to(self, broker_ids: Iterable[int], words: tuple[PartitionWord, ...]) -> list[Command]:
        """LeaderAndIsr to each broker for the replicas that it holds."""
        held: dict[int, list[PartitionWord]] = {broker_id: [] for broker_id in sorted(broker_ids)}
        for word in words:
            for replica in word.assignment.replicas:
                if replica in held:
                    held[replica].append(word)
        return [
            SendLeaderAndIsr(
                broker_id=broker_id,
                broker_epoch=self.brokers[broker_id].epoch,
                partitions=tuple(own),
                leaders=tuple(
                    self.brokers[b] for b in sorted({w.state.leader for w in own}) if b in self.brokers
                ),
            )
            for broker_id, own in held.items()
            if own
        ]

    def _metadata_to(self, broker_ids: Iterable[int], words: tuple[PartitionWord, ...]) -> list[Command]:
        brokers = tuple(self.brokers[b] for b in sorted(self.brokers))
        return [
            SendUpdateMetadata(
                broker_id=broker_id,
                broker_epoch=self.brokers[broker_id].epoch,
                partitions=words,
                brokers=brokers,
            )
            for broker_id in sorted(broker_ids)
        ]

    def _stop_replicas(self, topic: str, broker_ids: Iterable[int]) -> list[Command]:
        """StopReplica with delete to each of these brokers for what is left of the topic there."""
        commands: list[Command] = []
        for broker_id in sorted(broker_ids):
            own = tuple(
                (topic, p, EPOCH_DURING_DELETE) for p, r in sorted(self.deleting[topic]) if r == broker_id
            )
            if own:
                epoch = self.brokers[broker_id].epoch
                commands.append(
                    SendStopReplica(broker_id=broker_id, broker_epoch=epoch, partitions=own, delete=True)
                )
        return commands

    def _forget_topic(self, topic: str) -> list[Command]:
        """The znodes of a topic vanished without a deletion: clients must no longer see it."""
        if topic not in self.topics:
            return []
        self.deleting[topic] = set()
        words = self._words_of(topic, self.topics[topic].partitions)
        del self.deleting[topic]
        self._drop(topic)
        return self._metadata_to(self.brokers, words)

    def _drop(self, topic: str) -> None:
        assignment = self.topics.pop(topic, None)
        for partition in assignment.partitions if assignment is not None else ():
            self.states.pop((topic, partition), None)

    def _partitions(
        self, topics: Iterable[str] | None = None
    ) -> Iterable[tuple[str, int, ReplicaAssignment]]:
        for topic in self.topics if topics is None else topics:
            if topic in self.topics:
                for partition, assignment in self.topics[topic].partitions.items():
                    yield topic, partition, assignment
