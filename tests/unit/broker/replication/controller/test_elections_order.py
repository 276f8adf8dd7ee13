"""Who waits for a leader is served first."""

from __future__ import annotations

from uuid import UUID

import pytest

from headrace.broker.replication import events as ev
from headrace.broker.replication.controller import elections
from headrace.broker.replication.controller.machine import Controller
from headrace.broker.replication.model import Broker, PartitionState, ReplicaAssignment, TopicAssignment
from headrace.broker.wire.partitions import PartitionKey

BROKERS = {b: Broker(broker_id=b, epoch=10, endpoints=()) for b in (1, 2, 3)}
REPLICAS = {p: (1 + p % 3, 1 + (p + 1) % 3, 1 + (p + 2) % 3) for p in range(9)}
LED_BY_3 = [2, 5, 8]
LED_BY_OTHERS = [0, 1, 3, 4, 6, 7]


def elected(brokers: dict[int, Broker]) -> tuple[Controller, list[ev.Command]]:
    """A controller, and what it does first."""
    controller = Controller()
    commands = controller.handle(
        ev.Elected(
            epoch=7,
            brokers=brokers,
            topics={
                "t": TopicAssignment(
                    topic="t",
                    topic_id=UUID(int=1),
                    partitions={p: ReplicaAssignment(replicas=r) for p, r in REPLICAS.items()},
                )
            },
            states={
                ("t", p): PartitionState(leader=r[0], leader_epoch=4, isr=r, controller_epoch=1)
                for p, r in REPLICAS.items()
            },
        )
    )
    return controller, commands


def writes_of(commands: list[ev.Command]) -> dict[PartitionKey, PartitionState]:
    """What the only write among the commands, which is the last of them, writes."""
    (write,) = [c for c in commands if isinstance(c, ev.WriteStates)]
    assert write is commands[-1]
    return {(w.topic, w.partition): w.state for w in write.writes}


def told(commands: list[ev.Command]) -> list[list[int]]:
    return [
        [w.partition for w in command.partitions]
        for command in commands
        if isinstance(command, ev.SendLeaderAndIsr | ev.SendUpdateMetadata) and command.partitions
    ]


@pytest.mark.parametrize("is_new_term", [False, True])
def test_partitions_that_lost_their_leader_wait_for_no_others(is_new_term: bool) -> None:
    two = {b: BROKERS[b] for b in (1, 2)}
    if is_new_term:
        controller, commands = elected(two)
    else:
        controller, _ = elected(BROKERS)
        commands = controller.handle(ev.BrokersChanged(brokers=two))
    first = writes_of(commands)
    assert [p for _, p in first] == LED_BY_3
    commands = controller.handle(ev.StatesWritten(written=first))
    assert told(commands) == [LED_BY_3] * 4
    second = writes_of(commands)
    assert [p for _, p in second] == LED_BY_OTHERS
    assert {s.isr for s in second.values()} == {(1, 2), (2, 1)}
    commands = controller.handle(ev.StatesWritten(written=second))
    assert told(commands) == [LED_BY_OTHERS] * 4


def test_what_was_put_off_is_decided_anew_where_somebody_else_wrote_meanwhile() -> None:
    controller, _ = elected(BROKERS)
    first = writes_of(controller.handle(ev.BrokersChanged(brokers={1: BROKERS[1]})))
    lost = next(iter(first))
    found = PartitionState(leader=1, leader_epoch=9, isr=(1,), controller_epoch=1, zk_version=5)
    written = {key: state for key, state in first.items() if key != lost}
    second = writes_of(controller.handle(ev.StatesWritten(written=written, conflicts={lost: found})))
    assert second.keys() == {("t", p) for p in REPLICAS} - first.keys()
    assert {s.leader for s in second.values()} == {1}


def test_a_new_controller_writes_and_tells_of_some_partitions_before_it_looks_at_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Others have their turn in between; who has a leader waits for all who have none."""
    monkeypatch.setattr(elections, "LOOKED_AT_ONCE", 4)
    controller, commands = elected({b: BROKERS[b] for b in (1, 2)})
    story: list[tuple[str, list[int]]] = []
    others_had_their_turn = 0
    while commands:
        story += [("told", partitions) for partitions in told(commands)[:1]]
        if commands[-1] == ev.LookOn():
            others_had_their_turn += 1
            commands = controller.handle(ev.LookDue())
        elif isinstance(commands[-1], ev.WriteStates):
            written = writes_of(commands)
            story.append(("written", [p for _, p in written]))
            commands = controller.handle(ev.StatesWritten(written=written))
        else:
            commands = []
    assert others_had_their_turn == 2
    assert story == [
        *((what, [p]) for p in LED_BY_3 for what in ("written", "told")),
        *((what, lot) for lot in ([0, 1, 3, 4], [6, 7]) for what in ("written", "told")),
    ]


def test_a_look_at_partitions_that_stay_as_they_are_is_divided_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elections, "LOOKED_AT_ONCE", 4)
    controller, commands = elected(BROKERS)
    story = []
    while commands:
        story.append(told(commands)[0])
        commands = controller.handle(ev.LookDue()) if commands[-1] == ev.LookOn() else []
    assert story == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]
