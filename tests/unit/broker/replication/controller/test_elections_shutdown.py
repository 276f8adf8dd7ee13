"""A broker that is about to stop: what it leads moves, what it follows is stopped, and nobody waits for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

from headrace.broker.replication import events as ev
from headrace.broker.replication.controller.machine import Controller
from headrace.broker.replication.model import Broker, PartitionState, ReplicaAssignment, TopicAssignment
from headrace.broker.wire.partitions import PartitionKey

LED, FOLLOWED, LAGGED, ALONE, LAST = (("t", p) for p in range(5))
REPLICAS = {0: (1, 2, 3), 1: (2, 1, 3), 2: (2, 1, 3), 3: (1,), 4: (1, 2)}
STATES = {LED: (1, 1, 2, 3), FOLLOWED: (2, 2, 1, 3), LAGGED: (2, 2, 3), ALONE: (1, 1), LAST: (1, 1)}


def broker(broker_id: int, epoch: int = 10) -> Broker:
    return Broker(broker_id=broker_id, epoch=epoch, endpoints=())


def brokers(*ids: int) -> dict[int, Broker]:
    return {b: broker(b) for b in ids}


def state(leader: int, *isr: int) -> PartitionState:
    return PartitionState(leader=leader, leader_epoch=4, isr=isr, controller_epoch=1)


def controller() -> Controller:
    found = Controller()
    partitions = {p: ReplicaAssignment(replicas=r) for p, r in REPLICAS.items()}
    found.handle(
        ev.Elected(
            epoch=7,
            brokers=brokers(1, 2, 3),
            topics={"t": TopicAssignment(topic="t", topic_id=UUID(int=1), partitions=partitions)},
            states={key: state(*found) for key, found in STATES.items()},
        )
    )
    return found


def changes(commands: Sequence[ev.Command]) -> dict[PartitionKey, tuple[int, int, tuple[int, ...]]]:
    """(leader, leader epoch, ISR) to be written."""
    return {
        (w.topic, w.partition): (w.state.leader, w.state.leader_epoch, w.state.isr)
        for c in commands
        if isinstance(c, ev.WriteStates)
        for w in c.writes
    }


def write_all(found: Controller, commands: Sequence[ev.Command]) -> list[ev.Command]:
    (write,) = [c for c in commands if isinstance(c, ev.WriteStates)]
    return found.handle(ev.StatesWritten(written={(w.topic, w.partition): w.state for w in write.writes}))


def led_by_broker(commands: Iterable[ev.Command]) -> dict[int, list[int]]:
    """The partitions of LeaderAndIsr, by the broker that hears it."""
    return {
        c.broker_id: [w.partition for w in c.partitions]
        for c in commands
        if isinstance(c, ev.SendLeaderAndIsr)
    }


def test_what_it_leads_moves_and_it_leaves_the_in_sync_replicas_of_the_rest() -> None:
    found = controller()
    commands = found.handle(ev.ShutdownRequested(broker_id=1))
    assert changes(commands) == {LED: (2, 5, (2, 3)), FOLLOWED: (2, 5, (2, 3))}
    assert found.cluster.remaining(1) == [LED, LAST]
    write_all(found, commands)
    assert found.cluster.remaining(1) == [LAST], "nobody else is in sync"


def test_its_followers_are_stopped_without_losing_their_logs() -> None:
    *_, stop = controller().handle(ev.ShutdownRequested(broker_id=1))
    assert stop == ev.SendStopReplica(
        broker_id=1, broker_epoch=10, partitions=(("t", 1, 4), ("t", 2, 4)), delete=False
    )


def test_it_hears_of_what_it_led_but_follows_nothing_any_more() -> None:
    found = controller()
    following = write_all(found, found.handle(ev.ShutdownRequested(broker_id=1)))
    assert led_by_broker(following) == {1: [0], 2: [0, 1], 3: [0, 1]}
    told = [c for c in following if isinstance(c, ev.SendUpdateMetadata)]
    assert [c.broker_id for c in told] == [1, 2, 3]
    assert {(w.partition, w.offline) for c in told for w in c.partitions} == {(0, (1,)), (1, (1,))}


def test_it_is_given_nothing_more_to_lead_until_it_is_back() -> None:
    found = controller()
    write_all(found, found.handle(ev.ShutdownRequested(broker_id=1)))
    fresh = TopicAssignment(
        topic="u", topic_id=UUID(int=2), partitions={0: ReplicaAssignment(replicas=(1, 2))}
    )
    assert changes(found.handle(ev.TopicsChanged(topics={"u": fresh}))) == {("u", 0): (2, 0, (2,))}
    commands = found.handle(ev.BrokersChanged(brokers={**brokers(2, 3), 1: broker(1, epoch=11)}))
    assert changes(commands)[LAST] == (1, 5, (1,))
    back = [w.partition for c in commands if isinstance(c, ev.SendLeaderAndIsr) for w in c.partitions]
    assert sorted(back) == [0, 1, 2], "it follows again"


def test_the_last_one_in_sync_stays_it_and_is_asked_for_again_and_again() -> None:
    found = controller()
    write_all(found, found.handle(ev.ShutdownRequested(broker_id=1)))
    commands = found.handle(ev.ShutdownRequested(broker_id=1))
    assert changes(commands) == {}
    (stop,) = commands
    assert isinstance(stop, ev.SendStopReplica)
    assert [partition for _, partition, _ in stop.partitions] == [0, 1, 2], "what it led is followed by now"
