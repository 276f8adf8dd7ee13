"""Who waits for a leader is served first."""

from __future__ import annotations

from uuid import UUID

from headrace.broker.replication import events as ev
from headrace.broker.replication.controller.machine import Controller
from headrace.broker.replication.model import Broker, PartitionState, ReplicaAssignment, TopicAssignment


def test_partitions_with_another_leader_are_told_of_before_those_that_lost_a_follower() -> None:
    brokers = {b: Broker(broker_id=b, epoch=10, endpoints=()) for b in (1, 2, 3)}
    replicas = {p: (1 + p % 3, 1 + (p + 1) % 3, 1 + (p + 2) % 3) for p in range(9)}
    controller = Controller()
    controller.handle(
        ev.Elected(
            epoch=7,
            brokers=brokers,
            topics={
                "t": TopicAssignment(
                    topic="t",
                    topic_id=UUID(int=1),
                    partitions={p: ReplicaAssignment(replicas=r) for p, r in replicas.items()},
                )
            },
            states={
                ("t", p): PartitionState(leader=r[0], leader_epoch=4, isr=r, controller_epoch=1)
                for p, r in replicas.items()
            },
        )
    )
    commands = controller.handle(ev.BrokersChanged(brokers={b: brokers[b] for b in (1, 2)}))
    (write,) = [c for c in commands if isinstance(c, ev.WriteStates)]
    written = {(w.topic, w.partition): w.state for w in write.writes}
    told = controller.handle(ev.StatesWritten(written=written))
    for command in told:
        assert isinstance(command, ev.SendLeaderAndIsr | ev.SendUpdateMetadata)
        assert [w.partition for w in command.partitions] == [2, 5, 8, 0, 1, 3, 4, 6, 7]
