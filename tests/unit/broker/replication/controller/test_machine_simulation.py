"""A cluster under a seeded script: brokers come and go, topics are made and deleted, controllers fail.

Each seed runs the controller's state machine against a model of ZooKeeper (states, versions, the controller's epoch) and of
brokers (which fence by epochs), and checks after every step what must always be true.
"""

from __future__ import annotations

import random
from dataclasses import replace
from uuid import UUID

import pytest

from headrace.broker.replication import events as ev
from headrace.broker.replication.assignment import assign_replicas
from headrace.broker.replication.controller import elections
from headrace.broker.replication.controller.machine import Controller
from headrace.broker.replication.model import (
    LEADER_DURING_DELETE,
    RECOVERED,
    Broker,
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
)
from headrace.broker.wire.partitions import PartitionKey

Key = tuple[str, UUID, int]

BROKER_IDS = range(1, 5)
STEPS = 60


class Node:
    """A broker process: what it leads, and the fences that real ones have."""

    def __init__(self, broker_id: int, epoch: int) -> None:
        self.broker_id = broker_id
        self.epoch = epoch
        self.controller_epoch = 0
        self.leader_epochs: dict[Key, int] = {}
        self.leads: dict[Key, bool] = {}
        self.partition_epochs: dict[Key, int] = {}
        self.metadata: dict[PartitionKey, tuple[int, int]] = {}
        self.live_brokers: set[int] = set()

    def leader_and_isr(self, command: ev.SendLeaderAndIsr, controller_epoch: int) -> None:
        if command.broker_epoch < self.epoch or controller_epoch < self.controller_epoch:
            return
        self.controller_epoch = controller_epoch
        for word in command.partitions:
            key = (word.topic, word.topic_id, word.partition)
            if word.state.leader_epoch > self.leader_epochs.get(key, -1):
                self.leader_epochs[key] = word.state.leader_epoch
                self.leads[key] = word.state.leader == self.broker_id
                self.partition_epochs[key] = word.state.zk_version

    def update_metadata(self, command: ev.SendUpdateMetadata, controller_epoch: int) -> None:
        if command.broker_epoch < self.epoch or controller_epoch < self.controller_epoch:
            return
        self.controller_epoch = controller_epoch
        self.live_brokers = {b.broker_id for b in command.brokers}
        for word in command.partitions:
            if word.state.leader == LEADER_DURING_DELETE:
                self.metadata.pop((word.topic, word.partition), None)
            else:
                self.metadata[word.topic, word.partition] = (word.state.leader, word.state.leader_epoch)


class World:
    """ZooKeeper and the brokers; `queues` holds what is on its way to each broker."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.zxid = 0
        self.epoch = 0
        self.live: dict[int, Node] = {}
        self.topics: dict[str, TopicAssignment] = {}
        self.states: dict[PartitionKey, PartitionState] = {}
        self.deletions: set[str] = set()
        self.queues: dict[int, list[tuple[ev.Command, Controller]]] = {}
        self.leaders_by_epoch: dict[tuple[Key, int], int] = {}
        self.controller: Controller | None = None
        self.wish: frozenset[PartitionKey] | None = None
        self.answers: list[ev.AnswerIsrProposal] = []
        self.moves_wished: set[PartitionKey] = set()

    def step(self) -> None:
        often = [self.start, self.deliver, self.create, self.catch_up]
        seldom = [self.kill, self.delete, self.fail_over, self.shrink, self.propose, self.retire, self.prefer]
        seldom += [self.move, self.move]
        self.random.choice(often * 2 + seldom)()
        self.check()

    def start(self) -> None:
        down = [b for b in BROKER_IDS if b not in self.live]
        if down:
            self.zxid += 1
            broker_id = self.random.choice(down)
            self.live[broker_id] = Node(broker_id, self.zxid)
            self.look()

    def kill(self) -> None:
        if self.live:
            broker_id = self.random.choice(sorted(self.live))
            del self.live[broker_id]
            self.queues.pop(broker_id, None)
            if self.random.random() < 0.3:
                self.zxid += 1
                self.live[broker_id] = Node(broker_id, self.zxid)
            self.look()

    def create(self) -> None:
        if not self.live or len(self.topics) > 5:
            return
        name = f"t{self.random.randrange(8)}"
        if name in self.topics:
            return
        self.zxid += 1
        factor = self.random.randint(1, min(2, len(self.live)))
        spread = assign_replicas(
            dict.fromkeys(self.live), self.random.randint(1, 4), factor, start=self.zxid, shift=1
        )
        partitions = {p: ReplicaAssignment(replicas=r) for p, r in spread.items()}
        self.topics[name] = TopicAssignment(topic=name, topic_id=UUID(int=self.zxid), partitions=partitions)
        self.tell(ev.TopicsChanged(topics={name: self.topics[name]}))

    def delete(self) -> None:
        if self.topics:
            self.deletions.add(self.random.choice(sorted(self.topics)))
            self.tell(ev.DeletionsRequested(topics=frozenset(self.deletions)))

    def shrink(self) -> None:
        """A leader takes a follower out of the ISR by itself; the controller does not hear of it."""
        several = [
            k
            for k, s in sorted(self.states.items())
            if len(s.isr) > 1 and s.leader in self.live and not self.assignment(k).is_moving
        ]
        if several:
            state = self.states[key := self.random.choice(several)]
            self.states[key] = replace(state, isr=(state.leader,), zk_version=state.zk_version + 1)

    def propose(self) -> None:
        """A leader, or one that does not know that it leads no longer, wants other in-sync replicas."""
        led = [
            (node, key) for node in self.live.values() for key, leads in sorted(node.leads.items()) if leads
        ]
        if not led:
            return
        node, (name, topic_id, number) = self.random.choice(led)
        key = (name, topic_id, number)
        others = [b for b in BROKER_IDS if b != node.broker_id]
        isr = (node.broker_id, *self.random.sample(others, self.random.randint(0, 2)))
        proposal = ev.ProposedIsr(
            topic=topic_id,
            partition=number,
            leader_epoch=node.leader_epochs[key],
            partition_epoch=node.partition_epochs[key],
            isr=isr,
            broker_epochs=(-1,) * len(isr),
            leader_recovery_state=0,
        )
        before = self.states.get((name, number))
        answer = self.asked(
            ev.IsrProposed(broker_id=node.broker_id, broker_epoch=node.epoch, proposals=(proposal,))
        )
        assert answer.error == 0, "the controller knows this broker"
        (after,) = answer.answers
        if not isinstance(after, PartitionState):
            assert self.states.get((name, number)) == before, "what is refused is not written"
            return
        assert after.isr == isr
        assert (after.leader, after.leader_epoch) == (node.broker_id, node.leader_epochs[key])
        if after != before:
            assert self.controller is not None
            assert set(isr) <= self.live.keys() - self.controller.cluster.leaving
        node.partition_epochs[key] = after.zk_version

    def asked(self, event: ev.IsrProposed) -> ev.AnswerIsrProposal:
        self.answers.clear()
        self.tell(event)
        (answer,) = self.answers
        return answer

    def retire(self) -> None:
        """A broker is about to stop: nobody waits for it, and others lead what they can; then it is gone."""
        if not self.live:
            return
        broker_id = self.random.choice(sorted(self.live))
        self.tell(ev.ShutdownRequested(broker_id=broker_id))
        for key, state in self.states.items():
            if len(self.topics[key[0]].partitions[key[1]].replicas) > 1 and key[0] not in self.deletions:
                assert self.controller is not None
                staying = self.live.keys() - self.controller.cluster.leaving
                if set(state.isr) & staying:
                    assert state.leader != broker_id, f"{key} is still led by broker {broker_id}"
        if self.random.random() < 0.5:
            self.deliver()
        del self.live[broker_id]
        self.queues.pop(broker_id, None)
        self.look()

    def catch_up(self) -> None:
        """A live replica comes into the ISR, or goes, by the leader's AlterPartition."""
        led = [
            k for k, s in sorted(self.states.items()) if s.leader in self.live and k[0] not in self.deletions
        ]
        if not led:
            return
        state = self.states[key := self.random.choice(led)]
        replicas = [r for r in self.assignment(key).replicas if r in self.live and r != state.leader]
        isr = (state.leader, *self.random.sample(replicas, self.random.randint(0, len(replicas))))
        proposal = ev.ProposedIsr(
            topic=key[0],
            partition=key[1],
            leader_epoch=state.leader_epoch,
            partition_epoch=state.zk_version,
            isr=isr,
            broker_epochs=(-1,) * len(isr),
            leader_recovery_state=RECOVERED,
        )
        epoch = self.live[state.leader].epoch
        self.tell(ev.IsrProposed(broker_id=state.leader, broker_epoch=epoch, proposals=(proposal,)))

    def move(self) -> None:
        """Somebody wants other replicas, sound ones or not, or none: to cancel."""
        keys = [*sorted(self.states), ("nowhere", 0)]
        targets = {}
        for key in self.random.sample(keys, self.random.randint(1, len(keys))):
            ids = self.random.choices(BROKER_IDS, k=self.random.randint(1, 3))
            targets[key] = tuple(ids) if self.random.random() < 0.8 else None
        wished = {key: target for key, target in targets.items() if target is not None}
        if self.random.random() < 0.7:
            self.tell(ev.ReassignmentsRequested(targets=targets))
        elif wished:
            self.moves_wished = set(wished)
            self.tell(ev.ReassignmentsWished(targets=wished))

    def assignment(self, key: PartitionKey) -> ReplicaAssignment:
        return self.topics[key[0]].partitions[key[1]]

    def prefer(self) -> None:
        """Somebody wants preferred leaders, also of partitions that are not there."""
        partitions = [*sorted(self.states), ("nowhere", 0), ("t0", 99)]
        wish = frozenset(self.random.sample(partitions, self.random.randint(0, len(partitions))))
        self.want(wish)
        assert self.wish is None, "the wish is never removed"
        for key in wish & self.states.keys() - {k for k in self.states if k[0] in self.deletions}:
            preferred, state = self.topics[key[0]].partitions[key[1]].replicas[0], self.states[key]
            if preferred in state.isr and preferred in self.live:
                assert state.leader == preferred

    def want(self, wish: frozenset[PartitionKey]) -> None:
        self.wish = wish
        self.tell(ev.PreferredLeadersRequested(partitions=wish))

    def deliver(self) -> None:
        """Some of what is on its way arrives."""
        for broker_id in sorted(self.queues):
            queue = self.queues[broker_id]
            for _ in range(self.random.randint(0, len(queue))):
                self.arrive(broker_id, *queue.pop(0))

    def arrive(self, broker_id: int, command: ev.Command, controller: Controller) -> None:
        node = self.live.get(broker_id)
        if node is None:
            return
        match command:
            case ev.SendLeaderAndIsr():
                node.leader_and_isr(command, controller.cluster.epoch)
            case ev.SendUpdateMetadata():
                node.update_metadata(command, controller.cluster.epoch)
                hidden = frozenset(
                    w.topic for w in command.partitions if w.state.leader == LEADER_DURING_DELETE
                )
                if hidden and controller is self.controller and command.broker_epoch >= node.epoch:
                    self.tell(ev.TopicsHidden(broker_id=broker_id, topics=hidden))
            case ev.SendStopReplica() if command.broker_epoch >= node.epoch and not command.delete:
                for topic, partition, _ in command.partitions:
                    key = (topic, controller.cluster.topics[topic].topic_id, partition)
                    assert not node.leads.get(key), "what a broker leads is moved, not stopped"
            case ev.SendStopReplica() if command.broker_epoch >= node.epoch and controller is self.controller:
                gone = {(t, p) for t, p, _ in command.partitions}
                node.leads = {k: v for k, v in node.leads.items() if (k[0], k[2]) not in gone}
                self.tell(ev.ReplicasDeleted(broker_id=broker_id, partitions=frozenset(gone)))

    def fail_over(self) -> None:
        """The controller dies, or lives on without knowing that another was elected."""
        zombie, self.controller = self.controller, None
        self.queues = {}
        self.elect()
        if zombie is not None and self.random.random() < 0.5:
            self.perform_as(zombie, ev.BrokersChanged(brokers=self.registered()))

    def elect(self) -> Controller:
        self.epoch += 1
        controller = self.controller = Controller()
        self.perform_as(
            controller,
            ev.Elected(
                epoch=self.epoch,
                brokers=self.registered(),
                topics=dict(self.topics),
                states=dict(self.states),
                deletions=frozenset(self.deletions),
            ),
        )
        if self.moves_wished:
            known = {(t, p) for t, topic in self.topics.items() for p in topic.partitions}
            wished = {k: self.assignment(k).target if k in known else (1,) for k in self.moves_wished}
            self.tell(ev.ReassignmentsWished(targets=wished))
        return controller

    def registered(self) -> dict[int, Broker]:
        return {b: Broker(broker_id=b, epoch=n.epoch, endpoints=()) for b, n in self.live.items()}

    def look(self) -> None:
        self.tell(ev.BrokersChanged(brokers=self.registered()))

    def tell(self, event: ev.Event) -> None:
        self.perform_as(self.controller or self.elect(), event)

    def perform_as(self, controller: Controller, event: ev.Event) -> None:
        pending: list[ev.Event] = [event]
        while pending:
            for command in controller.handle(pending.pop(0)):
                match command:
                    case ev.WriteStates() | ev.WriteAssignments() if controller.cluster.epoch != self.epoch:
                        return
                    case ev.WriteStates():
                        pending.append(self.write(command, controller))
                    case ev.WriteAssignments():
                        pending.append(self.assign(command))
                    case ev.LookOn():
                        pending.append(ev.LookDue())
                    case ev.RemoveTopic() if controller.cluster.epoch == self.epoch:
                        pending.append(self.remove(command.topic))
                    case ev.RefuseDeletion() | ev.EndPreferredElection() | ev.ForgetReassignmentWishes():
                        self.forget(command)
                    case ev.AnswerIsrProposal():
                        self.answers.append(command)
                    case ev.ForgetBroker() if controller is self.controller:
                        self.queues.pop(command.broker_id, None)
                    case ev.SendLeaderAndIsr() | ev.SendUpdateMetadata() | ev.SendStopReplica():
                        self.queues.setdefault(command.broker_id, []).append((command, controller))

    def write(self, command: ev.WriteStates, controller: Controller) -> ev.StatesWritten:
        written: dict[PartitionKey, PartitionState] = {}
        conflicts: dict[PartitionKey, PartitionState | None] = {}
        for w in command.writes:
            key = (w.topic, w.partition)
            found = self.states.get(key)
            assert w.topic not in controller.cluster.deleting, f"{w.topic} gets a leader while being deleted"
            if w.topic not in self.topics:
                conflicts[key] = None
            elif (found is None) != w.create or (
                found is not None and found.zk_version != w.state.zk_version
            ):
                conflicts[key] = found
            else:
                version = 0 if found is None else found.zk_version + 1
                self.states[key] = replace(w.state, zk_version=version)
                written[key] = self.states[key]
                self.check_write(key, found)
        return ev.StatesWritten(written=written, conflicts=conflicts)

    def forget(
        self, command: ev.RefuseDeletion | ev.EndPreferredElection | ev.ForgetReassignmentWishes
    ) -> None:
        """A wish in ZooKeeper is removed."""
        match command:
            case ev.RefuseDeletion():
                self.deletions.discard(command.topic)
            case ev.EndPreferredElection():
                self.wish = None
            case ev.ForgetReassignmentWishes():
                self.moves_wished -= command.partitions

    def assign(self, command: ev.WriteAssignments) -> ev.AssignmentsWritten:
        written: dict[PartitionKey, ReplicaAssignment | None] = {}
        for key, assignment in command.changes.items():
            assert assignment.target, f"{key} is left without replicas"
            known = self.topics.get(key[0])
            written[key] = None if known is None else assignment
            if known is not None:
                partitions = {**known.partitions, key[1]: assignment}
                self.topics[key[0]] = replace(known, partitions=partitions)
        return ev.AssignmentsWritten(assignments=written)

    def remove(self, topic: str) -> ev.TopicRemoved:
        del self.topics[topic]
        self.deletions.discard(topic)
        self.states = {k: s for k, s in self.states.items() if k[0] != topic}
        return ev.TopicRemoved(topic=topic)

    def is_moving(self, topic: str) -> bool:
        return any(a.is_moving for a in self.topics[topic].partitions.values())

    def check_write(self, key: PartitionKey, before: PartitionState | None) -> None:
        after = self.states[key]
        if before is not None:
            is_proposal = (after.leader, after.leader_epoch) == (before.leader, before.leader_epoch)
            assert is_proposal or after.leader_epoch > before.leader_epoch, f"{key}: {before} -> {after}"
            assert set(before.isr) & set(after.isr), f"{key}: nobody stays in sync, {before} -> {after}"
            assert after.controller_epoch >= before.controller_epoch
        assert after.isr, f"{key} has an empty ISR"
        assert after.leader == -1 or after.leader in after.isr
        assert set(after.isr) <= set(self.topics[key[0]].partitions[key[1]].replicas)

    def check(self) -> None:
        """At most one leader in each leader epoch, ever."""
        for node in self.live.values():
            for key, leads in node.leads.items():
                if leads:
                    epoch = (key, node.leader_epochs[key])
                    assert self.leaders_by_epoch.setdefault(epoch, node.broker_id) == node.broker_id

    def settle(self) -> None:
        """Everything arrives; nothing more happens."""
        if self.controller is None:
            self.elect()
        for _ in range(100):
            if not any(self.queues.values()):
                break
            for broker_id in sorted(self.queues):
                queue = self.queues.get(broker_id, [])
                while queue:
                    self.arrive(broker_id, *queue.pop(0))
        self.check()
        assert not any(self.queues.values()), "the cluster does not come to rest"


@pytest.mark.parametrize("seed", range(300))
def test_leaders_and_epochs_stay_right_whatever_happens(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elections, "LOOKED_AT_ONCE", seed % 3 or elections.LOOKED_AT_ONCE)
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    world.settle()
    # A deletion waits for moves, and clients see the topic as long as it does.
    gone = {name for name in world.deletions if not world.is_moving(name)}
    for (name, number), state in world.states.items():
        topic = world.topics[name]
        if name in gone:
            continue
        assert (state.leader in world.live) == bool(set(state.isr) & world.live.keys()), (
            f"{name}-{number}: {state}"
        )
        if not set(state.isr) & world.live.keys():
            assert state.leader == -1, f"{name}-{number} keeps a dead leader: {state}"
        if state.leader in world.live:
            node = world.live[state.leader]
            key = (name, topic.topic_id, number)
            assert node.leads.get(key), f"{name}-{number}: broker {state.leader} does not know that it leads"
            assert node.leader_epochs[key] == state.leader_epoch
    known = {k: (s.leader, s.leader_epoch) for k, s in world.states.items() if k[0] not in gone}
    for node in world.live.values():
        assert node.metadata == known, f"broker {node.broker_id} tells its clients something else"
        assert node.live_brokers == world.live.keys()
    for name in gone:
        replicas = {r for a in world.topics[name].partitions.values() for r in a.replicas}
        assert replicas - world.live.keys(), f"{name} is not deleted though all its brokers are alive"
    for name, topic in world.topics.items():
        for number, assignment in topic.partitions.items():
            if set(assignment.replicas) & world.live.keys() and name not in gone:
                assert (name, number) in world.states, f"{name}-{number} never got a state"
            if assignment.is_moving and (name, number) in world.states:
                in_sync = set(world.states[name, number].isr)
                can_end = set(assignment.target) <= in_sync and set(assignment.target) & world.live.keys()
                assert not can_end, f"{name}-{number} stays on the move: {assignment}"
    moving = {(t, p) for t, topic in world.topics.items() for p in topic.partitions if world.is_moving(t)}
    assert world.moves_wished <= moving, "what is done, or cannot be, is still wished"
