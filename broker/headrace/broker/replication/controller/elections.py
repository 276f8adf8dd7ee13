"""Who leads: the states that partitions need, from the first one on.

Invariants: a state's leader epoch is its predecessor's and one; at most one `WriteStates` is out, and its outcome is
the next event; a partition of a topic that is being deleted is never given a leader. A new controller looks at all
partitions, some at a time, each lot written and told before the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from headrace.broker.replication.controller.sending import leaders_to, metadata_to, stops_to
from headrace.broker.replication.controller.state import ClusterState
from headrace.broker.replication.election import (
    elect_first,
    elect_for_shutdown,
    elect_offline,
    without_leader,
)
from headrace.broker.replication.events import (
    Command,
    ShutdownRequested,
    StatesWritten,
    StateWrite,
    UncleanElectionsAllowed,
    WriteStates,
)
from headrace.broker.replication.model import (
    INITIAL_LEADER_EPOCH,
    NO_LEADER,
    NO_ZXID,
    RECOVERING,
    PartitionState,
    ReplicaAssignment,
)
from headrace.broker.wire.partitions import PartitionKey

LEADER_AWAY, REPLICA_AWAY = "its leader is away", "a replica in sync is away"
NOBODY = "no replica that may lead is there"
STOPPING = "its broker is about to stop"
LOOKED_AT_ONCE = 500
"""Partitions that are decided on before others have their turn: some five milliseconds."""


class Elections:
    """The states under way; `unclean(topic)` says whether an out-of-sync replica may lead that topic.

    `notes_recovery`: whether brokers know of leaders that were elected without being in sync (KIP-704).
    """

    def __init__(
        self, cluster: ClusterState, unclean: Callable[[str], bool], *, notes_recovery: bool
    ) -> None:
        self._cluster = cluster
        self._unclean = unclean
        self._notes_recovery = notes_recovery
        self._created: set[PartitionKey] = set()
        # Of the first look in a term, what is left, the next ones last.
        self._unseen: list[PartitionKey] = []
        # To be written once nobody is without a leader who can have one.
        self._postponed: list[StateWrite] = []

    def write(self, writes: Iterable[StateWrite]) -> list[Command]:
        """The command that writes these states, if there are any."""
        batch = tuple(writes)
        self._created |= {(w.topic, w.partition) for w in batch if w.create}
        return [WriteStates(writes=batch)] if batch else []

    def write_leaders_first(self, writes: Iterable[StateWrite]) -> list[Command]:
        """`write` those of partitions that nobody leads; the others wait for `rest`."""
        urgent: list[StateWrite] = []
        for write in writes:
            (self._postponed if write.reason == REPLICA_AWAY else urgent).append(write)
        return self.write(urgent)

    def rest(self) -> list[Command]:
        """What was postponed, some at a time, once the first look is over."""
        if self.is_looking:
            return []
        due, self._postponed = self._postponed[:LOOKED_AT_ONCE], self._postponed[LOOKED_AT_ONCE:]
        return self.write(due)

    @property
    def is_looking(self) -> bool:
        """Whether the first look of this term is not over."""
        return bool(self._unseen)

    def begin_look(self) -> None:
        """A term begins."""
        self._unseen = [(topic, partition) for topic, partition, _ in self._cluster.partitions()]
        self._unseen.reverse()

    def look_on(self) -> list[Command]:
        """Tell of the next partitions' states that stay, and write those that the present brokers make necessary.

        The controller before may have been gone when brokers registered: those that did so after a state was written have
        restarted, as `due` has it.
        """
        cluster = self._cluster
        keys = [self._unseen.pop() for _ in range(min(len(self._unseen), LOOKED_AT_ONCE))]
        writes, settled = [], {}
        for key in keys:
            assignment = cluster.assignment(key)
            if assignment is None or key[0] in cluster.deleting:
                continue
            write = self._due_write(*key, assignment, self._registered_since(*key, assignment.replicas))
            if write is not None:
                writes.append(write)
            elif key in cluster.states:
                settled[key] = cluster.states[key]
        words = cluster.words(settled)
        told = metadata_to(cluster, cluster.brokers, words) + leaders_to(cluster, cluster.brokers, words)
        return told + self.write_leaders_first(writes)

    def due(
        self, topics: Iterable[str] | None = None, *, restarted: frozenset[int] = frozenset()
    ) -> list[StateWrite]:
        """The states that the present brokers make necessary, for these topics or all.

        Brokers that `restarted` since the last look lead nothing of before, and have to come into sync again: they may have
        lost what was not on their disks.
        """
        deleting = self._cluster.deleting
        looks = (
            self._due_write(topic, partition, assignment, restarted)
            for topic, partition, assignment in self._cluster.partitions(topics)
            if topic not in deleting
        )
        return [write for write in looks if write is not None]

    def successor(
        self, key: PartitionKey, state: PartitionState, leader: int, isr: tuple[int, ...], *, reason: str
    ) -> StateWrite:
        """The write of the next leader epoch, and why there is one; one who was not in sync has something to recover from."""
        is_noted = self._notes_recovery and leader not in (NO_LEADER, *state.isr)
        successor = replace(
            state,
            leader=leader,
            isr=isr,
            leader_epoch=state.leader_epoch + 1,
            controller_epoch=self._cluster.epoch,
            leader_recovery_state=RECOVERING if is_noted else state.leader_recovery_state,
        )
        return StateWrite(topic=key[0], partition=key[1], state=successor, create=False, reason=reason)

    def unclean_allowed(self, event: UncleanElectionsAllowed) -> list[Command]:
        """Replicas that are not in sync may lead from now on: they do where nobody else can."""
        return self.write(self.due(event.topics))

    def states_written(self, event: StatesWritten) -> list[Command]:
        """Tell of what was written, and of what was found instead; then decide again what is still to be done.

        Partitions with another leader are told of first: nobody serves them until brokers know.
        """
        cluster = self._cluster
        written = {tp: s for tp, s in event.written.items() if tp[0] in cluster.topics}
        led = {tp: cluster.states[tp].leader for tp in written if tp in cluster.states}
        cluster.states.update(written)
        moved = {tp: s for tp, s in written.items() if s.leader != led.get(tp)}
        written = {**moved, **written}
        new = self._created & written.keys()
        self._created.clear()
        for key in event.conflicts:
            cluster.states.pop(key, None)
        found = {k: s for k, s in event.conflicts.items() if s is not None and k[0] in cluster.topics}
        cluster.states.update(found)
        words = cluster.words(written, new) + cluster.words(found)
        commands = leaders_to(cluster, cluster.brokers, words, led)
        if words:
            commands += metadata_to(cluster, cluster.brokers, words)
        again = self.due(sorted({topic for topic, _ in found}))
        taken = {(w.topic, w.partition) for w in again}
        self._postponed = [w for w in self._postponed if (w.topic, w.partition) not in taken]
        return commands + self.write(again)

    def shutdown_requested(self, event: ShutdownRequested) -> list[Command]:
        """Another in-sync replica leads each partition of the broker, as far as there is one; what it follows is stopped
        there, and waits for it no longer.
        """
        cluster, leaving = self._cluster, event.broker_id
        cluster.leaving.add(leaving)
        writes: list[StateWrite | None] = []
        followed: list[PartitionKey] = []
        for topic, partition, assignment in cluster.replicated_on(leaving):
            state = cluster.states[topic, partition]
            if state.leader == leaving:
                writes.append(self._moved_write(topic, partition, assignment, state))
            else:
                followed.append((topic, partition))
                writes.append(self._left_write(topic, partition, state, leaving))
        return self.write(w for w in writes if w is not None) + stops_to(cluster, leaving, followed)

    def _moved_write(
        self, topic: str, partition: int, assignment: ReplicaAssignment, state: PartitionState
    ) -> StateWrite | None:
        """None when nobody else can lead."""
        online = self._cluster.online(topic, partition)
        choice = elect_for_shutdown(assignment.replicas, state.isr, online, self._cluster.leaving)
        if choice is None:
            return None
        return self.successor((topic, partition), state, *choice, reason=STOPPING)

    def _left_write(
        self, topic: str, partition: int, state: PartitionState, leaving: int
    ) -> StateWrite | None:
        """None when the broker is out of sync, or the last one that is in sync."""
        isr = tuple(r for r in state.isr if r != leaving)
        if not isr or isr == state.isr:
            return None
        return self.successor((topic, partition), state, state.leader, isr, reason=STOPPING)

    def _due_write(
        self, topic: str, partition: int, assignment: ReplicaAssignment, restarted: frozenset[int]
    ) -> StateWrite | None:
        state = self._cluster.states.get((topic, partition))
        if state is None:
            return self._first_state(topic, partition, assignment)
        live = self._cluster.online(topic, partition)
        steady = live - restarted
        eligible = live - self._cluster.leaving
        if state.leader in steady:
            isr = tuple(r for r in state.isr if r in steady)
            if isr == state.isr:
                return None
            return self.successor((topic, partition), state, state.leader, isr, reason=REPLICA_AWAY)
        choice = elect_offline(assignment.replicas, state.isr, eligible - restarted) or elect_offline(
            assignment.replicas, state.isr, eligible, unclean=self._unclean(topic)
        )
        if choice is not None:
            return self.successor((topic, partition), state, *choice, reason=LEADER_AWAY)
        isr = without_leader(state.isr, live)
        if state.leader == NO_LEADER and isr == state.isr:
            return None
        return self.successor((topic, partition), state, NO_LEADER, isr, reason=NOBODY)

    def _registered_since(self, topic: str, partition: int, replicas: Sequence[int]) -> frozenset[int]:
        """The brokers that registered after this state was written, as far as anybody knows.

        Where that is everybody in sync, those who have the partition have it; but a leader begins another epoch, for it may
        have lost batches of this one that followers have.
        """
        brokers, state = self._cluster.brokers, self._cluster.states.get((topic, partition))
        if state is None or state.written_zxid == NO_ZXID or len(replicas) == 1:
            return frozenset()
        later = frozenset(b for b, broker in brokers.items() if broker.epoch > state.written_zxid)
        is_known = state.leader in later or any(b in brokers and b not in later for b in state.isr)
        return later if is_known else frozenset()

    def _first_state(self, topic: str, partition: int, assignment: ReplicaAssignment) -> StateWrite | None:
        choice = elect_first(
            assignment.replicas, self._cluster.online(topic, partition) - self._cluster.leaving
        )
        if choice is None:
            return None
        state = PartitionState(
            leader=choice[0],
            leader_epoch=INITIAL_LEADER_EPOCH,
            isr=choice[1],
            controller_epoch=self._cluster.epoch,
        )
        return StateWrite(
            topic=topic, partition=partition, state=state, create=True, reason="the partition is new"
        )
