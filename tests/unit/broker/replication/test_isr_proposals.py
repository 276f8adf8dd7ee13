"""What is sent to the controller, and when, as scripts of proposals, answers and failures."""

from __future__ import annotations

from uuid import UUID

import pytest

from headrace.broker.errors import ErrorCode
from headrace.broker.replication.isr_proposals import PROPOSALS_MAX, IsrProposals, ProposalOf
from headrace.broker.replication.leader import IsrProposal
from headrace.broker.replication.model import PartitionState

STATE = PartitionState(leader=1, leader_epoch=3, isr=(1,), controller_epoch=1, zk_version=5)


def of(partition: int, isr: tuple[int, ...] = (1,)) -> ProposalOf:
    proposal = IsrProposal(isr=isr, broker_epochs=tuple(-1 for _ in isr), leader_epoch=3, partition_epoch=4)
    return ProposalOf("t", partition, UUID(int=1), proposal)


class Machine(IsrProposals):
    """All is wanted but what is in `unwanted`."""

    def __init__(self) -> None:
        self.unwanted: list[ProposalOf] = []
        super().__init__(lambda proposed: proposed not in self.unwanted)


def test_what_comes_while_a_request_is_under_way_goes_with_the_next() -> None:
    machine = Machine()
    machine.propose(of(0))
    assert machine.next_request() == [of(0)]
    machine.propose(of(1))
    machine.propose(of(2))
    assert machine.next_request() == []
    assert machine.answered({("t", 0): STATE}) == [(of(0), STATE)]
    assert machine.next_request() == [of(1), of(2)]


def test_a_failed_request_is_sent_again_together_with_what_came_meanwhile() -> None:
    machine = Machine()
    machine.propose(of(0))
    machine.next_request()
    machine.propose(of(1))
    machine.failed()
    assert machine.has_more
    assert sorted(machine.next_request()) == [of(0), of(1)]


def test_the_newest_proposal_of_a_partition_counts() -> None:
    machine = Machine()
    machine.propose(of(0, (1,)))
    machine.propose(of(0, (1, 2)))
    assert machine.next_request() == [of(0, (1, 2))]
    machine.propose(of(0, (1, 3)))
    machine.failed()
    assert machine.next_request() == [of(0, (1, 3))]


def test_what_nobody_wants_any_more_is_not_sent_again() -> None:
    machine = Machine()
    machine.propose(of(0))
    machine.propose(of(1))
    machine.next_request()
    machine.unwanted.append(of(0))
    machine.failed()
    assert machine.next_request() == [of(1)]


@pytest.mark.parametrize("is_sent", [False, True])
def test_what_comes_late_for_a_leadership_that_is_over_takes_no_newer_ones_place(is_sent: bool) -> None:
    machine = Machine()
    machine.unwanted.append(of(0, (1,)))
    machine.propose(of(0, (1, 2)))
    if is_sent:
        machine.next_request()
    machine.propose(of(0, (1,)))
    machine.failed()
    assert machine.next_request() == [of(0, (1, 2))]


@pytest.mark.parametrize("error", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INELIGIBLE_REPLICA])
def test_a_decision_of_the_controllers_is_final(error: ErrorCode) -> None:
    machine = Machine()
    machine.propose(of(0))
    machine.next_request()
    assert machine.answered({("t", 0): error}) == [(of(0), error)]
    assert not machine.has_more


@pytest.mark.parametrize("error", [ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_what_the_controller_could_not_decide_is_asked_again(error: ErrorCode) -> None:
    machine = Machine()
    machine.propose(of(0))
    machine.next_request()
    assert machine.answered({("t", 0): error}) == []
    assert machine.next_request() == [of(0)]


def test_what_the_controller_passes_over_is_asked_again() -> None:
    machine = Machine()
    machine.propose(of(0))
    machine.propose(of(1))
    machine.next_request()
    assert machine.answered({("t", 1): STATE, ("t", 9): STATE}) == [(of(1), STATE)]
    assert machine.next_request() == [of(0)]


def test_a_request_is_bounded() -> None:
    machine = Machine()
    for number in range(PROPOSALS_MAX + 1):
        machine.propose(of(number))
    assert len(machine.next_request()) == PROPOSALS_MAX
    assert machine.answered({("t", n): STATE for n in range(PROPOSALS_MAX)})
    assert machine.next_request() == [of(PROPOSALS_MAX)]
