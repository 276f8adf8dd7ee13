"""What scripts of the controller's machine share: small clusters, and a ZooKeeper that takes every write."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar
from uuid import UUID

from headrace.broker.replication import events as ev
from headrace.broker.replication.controller.machine import Controller
from headrace.broker.replication.model import (
    Broker,
    Endpoint,
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
)
from headrace.broker.wire.partitions import PartitionKey

Command = TypeVar("Command")


def broker(broker_id: int, epoch: int = 10) -> Broker:
    endpoint = Endpoint(listener="PLAINTEXT", security_protocol="PLAINTEXT", host="h", port=9000 + broker_id)
    return Broker(broker_id=broker_id, epoch=epoch, endpoints=(endpoint,))


def brokers(*ids: int) -> dict[int, Broker]:
    return {b: broker(b) for b in ids}


def topic(name: str, *replicas: tuple[int, ...], topic_id: int = 1) -> TopicAssignment:
    partitions = {p: ReplicaAssignment(replicas=r) for p, r in enumerate(replicas)}
    return TopicAssignment(topic=name, topic_id=UUID(int=topic_id), partitions=partitions)


def state(leader: int, epoch: int, *isr: int, version: int = 0) -> PartitionState:
    return PartitionState(leader=leader, leader_epoch=epoch, isr=isr, controller_epoch=1, zk_version=version)


def of(kind: type[Command], commands: Iterable[ev.Command]) -> list[Command]:
    return [c for c in commands if isinstance(c, kind)]


class Script:
    """A controller with what it rests on: `topics` and `states` are the znodes, `said` all commands since the last event."""

    def __init__(
        self,
        *topics: TopicAssignment,
        states: Mapping[PartitionKey, PartitionState],
        live: Sequence[int] = (1, 2, 3, 4, 5, 6),
        deletions: Iterable[str] = (),
        unclean: bool = False,
        epoch: int = 7,
    ) -> None:
        self.topics = {t.topic: t for t in topics}
        self.states = dict(states)
        self.live = brokers(*live)
        self.said: list[ev.Command] = []
        self.unclean = unclean
        self.elect(epoch, deletions)

    def elect(self, epoch: int, deletions: Iterable[str] = ()) -> list[ev.Command]:
        """A controller begins with what the znodes say."""
        self.controller = Controller(unclean=lambda topic: self.unclean)
        return self.tell(
            ev.Elected(
                epoch=epoch,
                brokers=self.live,
                topics=self.topics,
                states=self.states,
                deletions=frozenset(deletions),
            )
        )

    def tell(self, event: ev.Event) -> list[ev.Command]:
        """Perform an event and all that follows from it; answers the commands in their order."""
        self.said, pending = [], [event]
        while pending:
            for command in self.controller.handle(pending.pop(0)):
                self.said.append(command)
                if isinstance(command, ev.WriteStates):
                    pending.append(self._write_states(command))
                elif isinstance(command, ev.WriteAssignments):
                    pending.append(self._write_assignments(command))
                elif isinstance(command, ev.LookOn):
                    pending.append(ev.LookDue())
        return self.said

    def live_are(self, *ids: int) -> list[ev.Command]:
        self.live = brokers(*ids)
        return self.tell(ev.BrokersChanged(brokers=self.live))

    def in_sync(self, key: PartitionKey, *isr: int) -> list[ev.Command]:
        """The leader has these replicas in sync, and the controller hears of it."""
        old = self.states[key]
        self.states[key] = replace(old, isr=isr, zk_version=old.zk_version + 1)
        return self.tell(ev.IsrChanged(states={key: self.states[key]}))

    def _write_states(self, command: ev.WriteStates) -> ev.StatesWritten:
        written = {}
        conflicts = {}
        for write in command.writes:
            key = (write.topic, write.partition)
            found = self.states.get(key)
            if found is not None and found.zk_version != write.state.zk_version:
                conflicts[key] = found
                continue
            version = 0 if found is None else found.zk_version + 1
            written[key] = self.states[key] = replace(write.state, zk_version=version)
        return ev.StatesWritten(written=written, conflicts=conflicts)

    def _write_assignments(self, command: ev.WriteAssignments) -> ev.AssignmentsWritten:
        written: dict[PartitionKey, ReplicaAssignment | None] = {}
        for key, assignment in command.changes.items():
            old = self.topics.get(key[0])
            written[key] = None if old is None else assignment
            if old is not None:
                self.topics[key[0]] = replace(old, partitions={**old.partitions, key[1]: assignment})
        return ev.AssignmentsWritten(assignments=written)
