"""What the controller says of in-sync replicas that leaders propose: scripts of events and the expected commands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from headrace.broker.errors import ErrorCode
from headrace.broker.replication import events as ev
from headrace.broker.replication.controller.machine import Controller
from headrace.broker.replication.model import (
    RECOVERED,
    RECOVERING,
    Broker,
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
)

TOPIC_ID = UUID(int=1)
BROKER_EPOCH = 10
LED, OTHERS = ("t", 0), ("t", 1)


def state(leader: int, *isr: int, recovery: int = RECOVERED, version: int = 5) -> PartitionState:
    return PartitionState(
        leader=leader,
        leader_epoch=4,
        isr=isr,
        controller_epoch=1,
        zk_version=version,
        leader_recovery_state=recovery,
    )


def controller(recovery: int = RECOVERED, live: Sequence[int] = (1, 2, 3)) -> Controller:
    """Broker 1 leads partition 0 and broker 2 partition 1, which brokers 1 to 3 have."""
    found = Controller()
    partitions = {p: ReplicaAssignment(replicas=(1, 2, 3)) for p in (0, 1)}
    found.handle(
        ev.Elected(
            epoch=7,
            brokers={b: Broker(broker_id=b, epoch=BROKER_EPOCH, endpoints=()) for b in live},
            topics={"t": TopicAssignment(topic="t", topic_id=TOPIC_ID, partitions=partitions)},
            states={LED: state(1, 1, recovery=recovery), OTHERS: state(2, 2)},
        )
    )
    return found


def wish(*isr: int, **changes: Any) -> ev.ProposedIsr:
    proposal = ev.ProposedIsr(
        topic=TOPIC_ID,
        partition=0,
        leader_epoch=4,
        partition_epoch=5,
        isr=isr,
        broker_epochs=(-1,) * len(isr),
        leader_recovery_state=RECOVERED,
    )
    return replace(proposal, **changes)


def propose(
    found: Controller, *proposals: ev.ProposedIsr, broker_epoch: int = BROKER_EPOCH
) -> list[ev.Command]:
    return found.handle(ev.IsrProposed(broker_id=1, broker_epoch=broker_epoch, proposals=proposals))


def answer(commands: Sequence[ev.Command]) -> ev.AnswerIsrProposal:
    (found,) = [c for c in commands if isinstance(c, ev.AnswerIsrProposal)]
    return found


def test_a_proposal_is_written_then_told_to_clients_then_answered() -> None:
    found = controller()
    (write,) = propose(found, wish(1, 2))
    wanted = replace(state(1, 1, 2), controller_epoch=7)
    assert write == ev.WriteStates(
        writes=(ev.StateWrite(topic="t", partition=0, state=wanted, create=False),)
    )
    written = replace(wanted, zk_version=6)
    *told, last = found.handle(ev.StatesWritten(written={LED: written}))
    assert [type(c) for c in told] == [ev.SendUpdateMetadata] * 3, "no leader changes"
    assert {w.state for c in told if isinstance(c, ev.SendUpdateMetadata) for w in c.partitions} == {written}
    assert last == ev.AnswerIsrProposal(answers=(written,))
    assert found.cluster.states[LED] == written


def test_a_repeated_proposal_is_answered_with_the_state_that_it_made() -> None:
    found = controller()
    propose(found, wish(1, 2))
    written = state(1, 1, 2, version=6)
    found.handle(ev.StatesWritten(written={LED: written}))
    assert propose(found, wish(1, 2)) == [ev.AnswerIsrProposal(answers=(written,))]


def test_a_broker_that_is_unknown_or_registered_again_proposes_nothing() -> None:
    stale = [ev.AnswerIsrProposal(error=ErrorCode.STALE_BROKER_EPOCH)]
    for epoch in (BROKER_EPOCH - 1, BROKER_EPOCH + 1, -1):
        assert propose(controller(), wish(1, 2), broker_epoch=epoch) == stale
    assert propose(controller(live=(2, 3)), wish(1, 2)) == stale


@pytest.mark.parametrize(
    ("proposal", "error"),
    [
        (wish(1, 2, topic=UUID(int=9)), ErrorCode.UNKNOWN_TOPIC_ID),
        (wish(1, 2, topic="nowhere"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (wish(1, 2, partition=9), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (wish(1, 2, leader_epoch=3), ErrorCode.FENCED_LEADER_EPOCH),
        (wish(1, 2, leader_epoch=5), ErrorCode.NOT_CONTROLLER),
        (wish(1, 2, partition_epoch=6), ErrorCode.NOT_CONTROLLER),
        (wish(1, 2, partition_epoch=4), ErrorCode.INVALID_UPDATE_VERSION),
        (wish(1, 2, partition=1), ErrorCode.INVALID_REQUEST),
        (wish(2, 3), ErrorCode.INVALID_REQUEST),
        (wish(), ErrorCode.INVALID_REQUEST),
        (wish(1, 2, 2), ErrorCode.INVALID_REQUEST),
        (wish(1, 4), ErrorCode.INVALID_REQUEST),
        (wish(1, 2, leader_recovery_state=2), ErrorCode.INVALID_REQUEST),
        (wish(1, leader_recovery_state=RECOVERING), ErrorCode.INVALID_REQUEST),
        (wish(1, 2, broker_epochs=(BROKER_EPOCH, BROKER_EPOCH - 1)), ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_what_is_refused_changes_nothing(proposal: ev.ProposedIsr, error: ErrorCode) -> None:
    found = controller()
    before = dict(found.cluster.states)
    assert propose(found, proposal) == [ev.AnswerIsrProposal(answers=(error,))]
    assert found.cluster.states == before


def test_members_that_are_dead_or_about_to_stop_are_not_eligible() -> None:
    found = controller(live=(1, 2))
    assert answer(propose(found, wish(1, 3))).answers == (ErrorCode.INELIGIBLE_REPLICA,)
    found.handle(ev.ShutdownRequested(broker_id=2))
    assert answer(propose(found, wish(1, 2))).answers == (ErrorCode.INELIGIBLE_REPLICA,)


def test_broker_epochs_of_the_members_are_those_of_their_registrations() -> None:
    (write,) = propose(controller(), wish(1, 2, broker_epochs=(-1, BROKER_EPOCH)))
    assert isinstance(write, ev.WriteStates)


def test_a_leader_that_recovers_says_so_before_others_join() -> None:
    found = controller(recovery=RECOVERING)
    assert answer(propose(found, wish(1, 2, leader_recovery_state=RECOVERING))).answers == (
        ErrorCode.INVALID_REQUEST,
    )
    (write,) = propose(found, wish(1, 2))
    assert isinstance(write, ev.WriteStates)
    assert write.writes[0].state.leader_recovery_state == RECOVERED


def test_each_partition_is_answered_in_its_place() -> None:
    found = controller()
    unknown = wish(1, 2, partition=9)
    propose(found, unknown, wish(1, 2), wish(1, 3))
    written = state(1, 1, 2, version=6)
    answers = answer(found.handle(ev.StatesWritten(written={LED: written}))).answers
    assert answers == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, written, ErrorCode.INVALID_REQUEST)


def test_what_somebody_else_wrote_meanwhile_fences_the_proposal() -> None:
    found = controller()
    propose(found, wish(1, 2))
    theirs = state(1, 1, 3, version=6)
    commands = found.handle(ev.StatesWritten(written={}, conflicts={LED: theirs}))
    assert answer(commands).answers == (ErrorCode.INVALID_UPDATE_VERSION,)
    assert found.cluster.states[LED] == theirs
    assert [c.broker_id for c in commands if isinstance(c, ev.SendLeaderAndIsr)] == [1, 2, 3]


def test_a_partition_that_went_meanwhile_is_unknown() -> None:
    found = controller()
    propose(found, wish(1, 2))
    commands = found.handle(ev.StatesWritten(written={}, conflicts={LED: None}))
    assert answer(commands).answers == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,)


def test_a_topic_that_is_being_deleted_keeps_its_in_sync_replicas() -> None:
    found = controller()
    found.handle(ev.DeletionsRequested(topics=frozenset({"t"})))
    assert answer(propose(found, wish(1, 2))).answers == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,)
