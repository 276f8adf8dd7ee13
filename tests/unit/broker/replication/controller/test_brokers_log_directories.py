"""What the controller does about data directories that fail: scripts of events and the expected commands (KIP-112)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

from headrace.broker.replication import events as ev
from headrace.broker.replication import requests
from headrace.broker.replication.controller.machine import Controller
from headrace.broker.replication.model import (
    Broker,
    Endpoint,
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
)
from headrace.broker.wire.partitions import PartitionKey

TOPIC_ID = UUID(int=1)
MOVED, HELD, LONELY = ("t", 0), ("t", 1), ("t", 2)


def broker(broker_id: int, epoch: int = 10) -> Broker:
    endpoint = Endpoint(listener="PLAINTEXT", security_protocol="PLAINTEXT", host="h", port=9000 + broker_id)
    return Broker(broker_id=broker_id, epoch=epoch, endpoints=(endpoint,))


def state(leader: int, *isr: int, epoch: int = 4) -> PartitionState:
    return PartitionState(leader=leader, leader_epoch=epoch, isr=isr, controller_epoch=1)


def controller() -> Controller:
    """Broker 1 leads two partitions that broker 2 has as well, and one that nobody else has."""
    replicas = {0: (1, 2), 1: (1, 2), 2: (1,)}
    partitions = {p: ReplicaAssignment(replicas=r) for p, r in replicas.items()}
    found = Controller()
    found.handle(
        ev.Elected(
            epoch=7,
            brokers={b: broker(b) for b in (1, 2)},
            topics={"t": TopicAssignment(topic="t", topic_id=TOPIC_ID, partitions=partitions)},
            states={MOVED: state(1, 1, 2), HELD: state(1, 1, 2), LONELY: state(1, 1)},
        )
    )
    return found


def answered(
    found: Controller, *, offline: Iterable[PartitionKey] = (), online: Iterable[PartitionKey] = ()
) -> list[ev.Command]:
    return found.handle(
        ev.ReplicasAnswered(broker_id=1, offline=frozenset(offline), online=frozenset(online))
    )


def states(commands: Sequence[ev.Command]) -> dict[PartitionKey, tuple[int, int, tuple[int, ...]]]:
    """(leader, leader epoch, ISR) to be written."""
    return {
        (w.topic, w.partition): (w.state.leader, w.state.leader_epoch, w.state.isr)
        for c in commands
        if isinstance(c, ev.WriteStates)
        for w in c.writes
    }


def write(found: Controller, commands: Sequence[ev.Command]) -> list[ev.Command]:
    """Perform the writes; answers what follows."""
    written = {
        (w.topic, w.partition): w.state for c in commands if isinstance(c, ev.WriteStates) for w in c.writes
    }
    return found.handle(ev.StatesWritten(written=written))


def offline_in(commands: Sequence[ev.Command]) -> dict[PartitionKey, tuple[int, ...]]:
    return {
        (w.topic, w.partition): w.offline
        for c in commands
        if isinstance(c, ev.SendUpdateMetadata)
        for w in c.partitions
    }


def test_a_broker_with_a_failed_directory_is_asked_for_all_its_replicas() -> None:
    commands = controller().handle(ev.LogDirectoriesFailed(brokers=frozenset({1, 9})))
    (asked,) = commands
    assert isinstance(asked, ev.SendLeaderAndIsr)
    assert asked.broker_id == 1
    assert [(w.partition, w.is_new) for w in asked.partitions] == [(0, False), (1, False), (2, False)]


def test_replicas_in_it_lose_their_lead_and_are_offline_to_everyone() -> None:
    found = controller()
    commands = answered(found, offline=[MOVED, LONELY])
    assert states(commands) == {MOVED: (2, 5, (2,)), LONELY: (-1, 5, (1,))}
    assert offline_in(write(found, commands)) == {MOVED: (1,), LONELY: (1,)}
    assert found.cluster.states[HELD].leader == 1
    assert answered(found, offline=[MOVED, LONELY]) == [], "nothing new"


def test_a_follower_in_it_leaves_the_isr() -> None:
    found = controller()
    commands = found.handle(
        ev.ReplicasAnswered(broker_id=2, offline=frozenset({HELD}), online=frozenset({MOVED}))
    )
    assert states(commands) == {HELD: (1, 5, (1,))}
    assert offline_in(write(found, commands)) == {HELD: (2,)}


def test_what_a_broker_can_take_again_is_led_again() -> None:
    found = controller()
    write(found, answered(found, offline=[LONELY]))
    commands = answered(found, online=[LONELY])
    assert states(commands) == {LONELY: (1, 6, (1,))}
    assert offline_in(write(found, commands)) == {LONELY: ()}


def test_a_broker_that_starts_again_is_believed_to_have_everything_until_it_says_otherwise() -> None:
    found = controller()
    write(found, answered(found, offline=[LONELY]))
    commands = found.handle(ev.BrokersChanged(brokers={1: broker(1, epoch=11), 2: broker(2)}))
    assert states(commands)[LONELY] == (1, 6, (1,))


def test_an_answer_of_a_broker_that_is_gone_changes_nothing() -> None:
    found = controller()
    found.handle(ev.BrokersChanged(brokers={2: broker(2)}))
    assert answered(found, offline=[HELD]) == []
    assert found.cluster.offline == {}


def sent_leader_and_isr() -> ev.SendLeaderAndIsr:
    word = ev.PartitionWord(
        topic="t",
        topic_id=TOPIC_ID,
        partition=0,
        state=state(1, 1),
        assignment=ReplicaAssignment(replicas=(1,)),
    )
    return ev.SendLeaderAndIsr(broker_id=1, broker_epoch=10, partitions=(word,), leaders=())


def test_a_response_tells_what_is_offline_and_what_was_taken() -> None:
    codes = {0: 56, 1: 0, 2: 11, 3: 6}
    errors = [{"partition_index": p, "error_code": code} for p, code in codes.items()]
    response = {"error_code": 0, "topics": [{"topic_id": TOPIC_ID, "partition_errors": errors}]}
    assert requests.answered_replicas(sent_leader_and_isr(), response) == ev.ReplicasAnswered(
        broker_id=1, offline=frozenset({MOVED}), online=frozenset({HELD, LONELY})
    )


def test_a_refused_response_tells_nothing_of_partitions() -> None:
    errors = [{"partition_index": 0, "error_code": 11}]
    response = {"error_code": 11, "topics": [{"topic_id": TOPIC_ID, "partition_errors": errors}]}
    assert requests.answered_replicas(sent_leader_and_isr(), response) == ev.ReplicasAnswered(
        broker_id=1, offline=frozenset(), online=frozenset()
    )
