"""A controller finds assignments and states that no Kafka wrote: it says what it can of them, and all others get on."""

from __future__ import annotations

import random
from typing import Any
from uuid import UUID

import pytest

from headrace.broker.replication import events as ev
from headrace.broker.replication.controller.machine import Controller
from headrace.broker.replication.model import Broker, PartitionState, ReplicaAssignment, TopicAssignment
from headrace.broker.replication.requests import Maker
from headrace.broker.replication.versions import versions_of

IDS = (1, 2, 3, 7, 2**31 - 1)
SOUND = ("sound", 0)


def odd_ids(chance: random.Random) -> tuple[int, ...]:
    return tuple(chance.choice(IDS) for _ in range(chance.randrange(4)))


def brokers(*ids: int, epoch: int = 10) -> dict[int, Broker]:
    return {b: Broker(broker_id=b, epoch=epoch, endpoints=()) for b in ids}


class World:
    """A controller whose commands are performed and encoded."""

    def __init__(self, chance: random.Random) -> None:
        self.controller = Controller()
        self.maker = Maker(controller_id=1, controller_epoch=7, listener="P", versions=versions_of("3.9"))
        self.chance = chance

    def tell(self, event: ev.Event) -> None:
        pending: list[ev.Event] = [event]
        for _ in range(50):
            if not pending:
                return
            for command in self.controller.handle(pending.pop(0)):
                match command:
                    case ev.WriteStates():
                        pending.append(
                            ev.StatesWritten(
                                written={(w.topic, w.partition): w.state for w in command.writes}
                            )
                        )
                    case ev.WriteAssignments():
                        pending.append(ev.AssignmentsWritten(assignments=dict(command.changes)))
                    case ev.SendLeaderAndIsr() | ev.SendUpdateMetadata() | ev.SendStopReplica():
                        for _, request in self.maker.requests(command):
                            assert request.encode_request(request.version, command.broker_epoch)
        raise AssertionError("the controller never comes to rest")

    def topic(self, name: str, number: int) -> TopicAssignment:
        chance = self.chance
        assignment = ReplicaAssignment(
            replicas=odd_ids(chance), adding=odd_ids(chance), removing=odd_ids(chance)
        )
        return TopicAssignment(topic=name, topic_id=UUID(int=number), partitions={0: assignment})

    def state(self) -> PartitionState:
        chance = self.chance
        return PartitionState(
            leader=chance.choice((-1, -2, -(2**31), *IDS)),
            leader_epoch=chance.choice((-1, 0, 5, -(2**31))),
            isr=odd_ids(chance),
            controller_epoch=chance.choice((-1, 0, 2**31 - 1)),
            zk_version=chance.choice((0, 3)),
        )


@pytest.mark.parametrize("seed", range(60))
def test_a_partition_beside_odd_ones_is_led_all_the_same(seed: int) -> None:
    chance = random.Random(seed)
    world = World(chance)
    topics = {f"odd-{n}": world.topic(f"odd-{n}", n + 2) for n in range(6)}
    sound = ReplicaAssignment(replicas=(1, 2, 3))
    topics["sound"] = TopicAssignment(topic="sound", topic_id=UUID(int=1), partitions={0: sound})
    states = {(name, 0): world.state() for name in topics if chance.random() < 0.8}
    states[SOUND] = PartitionState(leader=1, leader_epoch=4, isr=(1, 2, 3), controller_epoch=1)
    world.tell(ev.Elected(epoch=7, brokers=brokers(1, 2, 3), topics=topics, states=states))
    keys = frozenset((name, 0) for name in topics)
    events: list[Any] = [
        ev.BrokersChanged(brokers=brokers(2, 3)),
        ev.BrokersChanged(brokers=brokers(1, 2, 3)),
        ev.PreferredLeadersRequested(partitions=keys),
        ev.LeadersRequested(partitions=keys, unclean=True),
        ev.BalanceDue(),
        ev.ReassignmentsRequested(targets=dict.fromkeys(keys - {SOUND})),
        ev.ReassignmentsAsked(partitions=None),
        ev.ShutdownRequested(broker_id=2),
        ev.BrokerBehind(broker_id=1),
        ev.LogDirectoriesFailed(brokers=frozenset({1})),
        ev.UncleanElectionsAllowed(topics=None),
        ev.TopicsChanged(topics={"odd-0": world.topic("odd-0", 99)}),
    ]
    for event in chance.sample(events, len(events)):
        world.tell(event)
    world.tell(ev.BrokersChanged(brokers=brokers(1, epoch=20)))
    assert world.controller.cluster.states[SOUND].leader in (-1, 1)
    world.tell(ev.BrokersChanged(brokers=brokers(1, 2, 3, epoch=30)))
    assert world.controller.cluster.states[SOUND].leader in (1, 2, 3)
    assert world.controller.cluster.offline_partition_count() <= 6
    assert world.controller.cluster.imbalance_count() <= 7
