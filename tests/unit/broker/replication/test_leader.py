"""One leadership as a script of events: the high watermark, who joins and leaves the in-sync replicas, what answers mean."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headrace.broker.errors import ErrorCode, NotLeaderOrFollowerError
from headrace.broker.replication.leader import UNKNOWN_OFFSET, IsrProposal, Leadership
from headrace.broker.replication.model import PartitionState

LAG_MS = 30_000


class Script:
    """Broker 1 leads; its log's end, the high watermark and the time are the script's."""

    def __init__(
        self,
        isr: Sequence[int] = (1, 2, 3),
        replicas: Sequence[int] = (1, 2, 3),
        *,
        end: int = 0,
        watermark: int = 0,
        isr_size_min: int = 1,
    ) -> None:
        self.now_ms = 5_000_000
        self.end, self.watermark, self.isr_size_min = end, watermark, isr_size_min
        self.replicas = replicas
        self.dead: set[int] = set()
        self.leadership = Leadership(
            1,
            state(5, isr, 10),
            replicas,
            end_offset=end,
            lag_ms_max=LAG_MS,
            is_alive=lambda broker_id: broker_id not in self.dead,
            now_ms=self.now_ms,
        )

    def after(self, ms: int) -> Script:
        self.now_ms += ms
        return self

    def append(self, end: int) -> int:
        self.end = end
        return self.advance()

    def fetch(self, replica: int, offset: int, *, broker_epoch: int = -1) -> IsrProposal | None:
        self.leadership.fetched(
            replica,
            offset,
            log_start_offset=0,
            broker_epoch=broker_epoch,
            end_offset=self.end,
            now_ms=self.now_ms,
        )
        proposal = self.leadership.joining(replica, self.watermark)
        self.advance()
        return proposal

    def advance(self) -> int:
        offset = self.leadership.committed(self.end, self.isr_size_min, self.now_ms)
        self.watermark = max(self.watermark, offset)
        return self.watermark

    def look(self) -> IsrProposal | None:
        return self.leadership.lagging(self.end, self.isr_size_min, self.now_ms)

    def answer(self, proposal: IsrProposal | None, isr: Sequence[int], partition_epoch: int) -> bool:
        assert proposal is not None
        taken = self.leadership.answered(proposal, state(self.leadership.leader_epoch, isr, partition_epoch))
        self.advance()
        return taken

    def told(self, epoch: int, isr: Sequence[int], partition_epoch: int) -> None:
        self.leadership.told(
            state(epoch, isr, partition_epoch), self.replicas, end_offset=self.end, now_ms=self.now_ms
        )
        self.advance()


def state(leader_epoch: int, isr: Sequence[int], partition_epoch: int) -> PartitionState:
    return PartitionState(
        leader=1, leader_epoch=leader_epoch, isr=tuple(isr), controller_epoch=1, zk_version=partition_epoch
    )


def test_the_high_watermark_is_the_least_end_of_the_in_sync_replicas() -> None:
    script = Script()
    assert script.append(10) == 0
    script.fetch(2, 10)
    assert script.watermark == 0
    script.fetch(3, 4)
    assert script.watermark == 4
    script.fetch(3, 10)
    assert script.watermark == 10


def test_nothing_is_committed_before_each_in_sync_replica_has_fetched_once() -> None:
    script = Script(isr=(1, 2), replicas=(1, 2), end=7)
    assert script.advance() == 0
    assert script.leadership.committed(7, 1, script.now_ms) == UNKNOWN_OFFSET


def test_the_high_watermark_stands_still_while_too_few_are_in_sync() -> None:
    script = Script(isr=(1,), end=5, watermark=5, isr_size_min=2)
    script.leadership.followers[2].caught_up_ms = 0
    assert script.append(9) == 5
    script.isr_size_min = 1
    assert script.advance() == 9


def test_a_caught_up_replica_that_may_join_is_waited_for() -> None:
    script = Script(isr=(1,), replicas=(1, 2), end=10, watermark=10)
    proposal = script.fetch(2, 10)
    assert proposal is not None
    assert script.leadership.answered(proposal, ErrorCode.INELIGIBLE_REPLICA) is False
    assert script.append(20) == 10
    assert script.after(LAG_MS).advance() == 10
    assert script.after(1).advance() == 20


def test_a_dead_replica_out_of_the_isr_is_not_waited_for() -> None:
    script = Script(isr=(1,), replicas=(1, 2), end=10, watermark=10)
    proposal = script.fetch(2, 10)
    assert proposal is not None
    script.leadership.answered(proposal, ErrorCode.INELIGIBLE_REPLICA)
    script.dead.add(2)
    assert script.append(20) == 20


def test_a_proposed_member_counts_before_the_controller_has_answered() -> None:
    script = Script(isr=(1, 2), end=10, watermark=10)
    script.fetch(2, 10)
    assert script.fetch(3, 10) is not None
    # It is proposed, and gone long enough not to be caught up.
    script.append(20)
    script.after(LAG_MS + 1).fetch(2, 20)
    script.fetch(2, 20)
    assert script.watermark == 10
    assert script.leadership.isr == (1, 2)
    assert script.leadership.maximal_isr == (1, 2, 3)


def test_a_proposed_removal_counts_until_the_controller_has_answered() -> None:
    script = Script()
    script.append(10)
    script.after(LAG_MS + 1).fetch(2, 10)
    proposal = script.look()
    assert proposal is not None
    assert (proposal.isr, proposal.leaving) == ((1, 2), (3,))
    assert script.watermark == 0
    assert script.answer(proposal, (1, 2), 11)
    assert script.watermark == 10
    assert (script.leadership.isr, script.leadership.partition_epoch) == ((1, 2), 11)


@pytest.mark.parametrize(("offset", "joins"), [(9, False), (10, True)])
def test_a_replica_joins_at_the_high_watermark(offset: int, joins: bool) -> None:
    script = Script(isr=(1,), replicas=(1, 2), end=10, watermark=10)
    script.leadership.epoch_start_offset = 5
    assert (script.fetch(2, offset) is not None) is joins


@pytest.mark.parametrize(("offset", "joins"), [(9, False), (10, True)])
def test_a_replica_joins_past_the_start_of_the_leader_epoch(offset: int, joins: bool) -> None:
    """What lies between an old watermark and the epoch's start may be committed already (KAFKA-7128)."""
    script = Script(isr=(1,), replicas=(1, 2), end=10, watermark=3)
    assert (script.fetch(2, offset) is not None) is joins


def test_a_dead_replica_does_not_join() -> None:
    script = Script(isr=(1,), replicas=(1, 2))
    script.dead.add(2)
    assert script.fetch(2, 0) is None


def test_a_proposal_names_the_epochs_that_fence_it_and_those_of_its_members() -> None:
    script = Script(isr=(1, 2), end=10, watermark=10)
    script.fetch(2, 10)
    proposal = script.fetch(3, 10, broker_epoch=77)
    assert proposal == IsrProposal(
        isr=(1, 2, 3), broker_epochs=(-1, -1, 77), leader_epoch=5, partition_epoch=10, joining=(3,)
    )


def test_a_fetch_of_an_earlier_life_of_a_broker_counts_for_nothing() -> None:
    script = Script(isr=(1, 2), replicas=(1, 2), end=10)
    script.fetch(2, 4, broker_epoch=8)
    with pytest.raises(NotLeaderOrFollowerError):
        script.fetch(2, 10, broker_epoch=7)
    assert script.watermark == 4
    script.fetch(2, 10, broker_epoch=9)
    assert script.watermark == 10


def test_one_change_is_proposed_at_a_time() -> None:
    script = Script(isr=(1,), end=10, watermark=10)
    first = script.fetch(2, 10)
    assert first is not None
    assert script.fetch(3, 10) is None
    script.answer(first, (1, 2), 11)
    second = script.fetch(3, 10)
    assert second is not None
    assert (second.isr, second.partition_epoch) == ((1, 2, 3), 11)
    script.append(20)
    assert script.after(2 * LAG_MS).look() is None
    script.answer(second, (1, 2, 3), 12)
    assert script.look() is not None


def test_who_is_at_the_end_does_not_lag_however_long_ago_it_fetched() -> None:
    script = Script()
    script.append(10)
    for replica in (2, 3):
        script.fetch(replica, 10)
    assert script.after(10 * LAG_MS).look() is None
    # Requests of its session did not name the partition as long as it rested: its time begins with the last look.
    script.append(11)
    assert script.after(LAG_MS).look() is None
    proposal = script.after(1).look()
    assert proposal is not None
    assert proposal.leaving == (2, 3)


def test_who_always_has_what_the_leader_had_at_the_fetch_before_does_not_lag() -> None:
    script = Script(isr=(1, 2), replicas=(1, 2))
    for end in range(100, 2000, 100):
        script.append(end)
        script.after(LAG_MS // 2).fetch(2, end - 100)
        assert script.look() is None, "it is one fetch behind"


def test_who_fetches_but_falls_behind_leaves() -> None:
    script = Script(isr=(1, 2), replicas=(1, 2))
    script.append(1000)
    for offset in (1, 2, 3):
        script.append(1000 * offset)
        script.after(LAG_MS // 2).fetch(2, offset)
    proposal = script.look()
    assert proposal is not None
    assert proposal.leaving == (2,)


def test_a_removal_below_the_minimum_waits_for_the_leaders_own_disk() -> None:
    script = Script(isr_size_min=2)
    script.append(10)
    script.after(LAG_MS + 1).fetch(2, 10)
    proposal = script.look()
    assert proposal is not None
    assert not proposal.syncs_first, "two are enough"
    script.answer(proposal, (1, 2), 11)
    script.append(20)
    last = script.after(LAG_MS + 1).look()
    assert last is not None
    assert (last.isr, last.syncs_first) == ((1,), True)


@pytest.mark.parametrize("error", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_a_refusal_that_changed_nothing_ends_the_proposal(error: ErrorCode) -> None:
    script = Script(isr=(1,), replicas=(1, 2))
    proposal = script.fetch(2, 0)
    assert proposal is not None
    assert not script.leadership.answered(proposal, error)
    assert (script.leadership.maximal_isr, script.leadership.proposed) == ((1,), None)
    assert script.fetch(2, 0) is not None


@pytest.mark.parametrize(
    "error",
    [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
)
def test_after_other_refusals_the_controllers_next_word_is_awaited(error: ErrorCode) -> None:
    script = Script(isr=(1,), replicas=(1, 2))
    proposal = script.fetch(2, 0)
    assert proposal is not None
    assert not script.leadership.answered(proposal, error)
    assert list(script.leadership.maximal_isr) == [1, 2]
    assert script.fetch(2, 0) is None
    script.told(6, (1,), 12)
    assert list(script.leadership.maximal_isr) == [1]
    assert script.fetch(2, 0) is not None


def test_an_answer_of_before_the_controllers_last_word_changes_nothing() -> None:
    script = Script(isr=(1,), replicas=(1, 2))
    proposal = script.fetch(2, 0)
    script.told(6, (1,), 12)
    assert not script.answer(proposal, (1, 2), 13)
    assert (script.leadership.isr, script.leadership.partition_epoch) == ((1,), 12)


def test_an_answer_with_an_older_state_changes_nothing() -> None:
    script = Script(isr=(1,), replicas=(1, 2))
    proposal = script.fetch(2, 0)
    assert proposal is not None
    assert not script.answer(proposal, (1, 2), 9)
    assert not script.leadership.answered(proposal, state(4, (1, 2), 11))
    assert script.leadership.isr == (1,)


def test_who_leads_on_keeps_what_it_knows_of_its_followers() -> None:
    script = Script(isr=(1, 2), replicas=(1, 2))
    script.append(10)
    script.fetch(2, 8)
    script.after(LAG_MS).told(6, (1, 2), 11)
    assert script.leadership.epoch_start_offset == 10
    assert script.leadership.followers[2].end_offset == 8
    assert script.after(LAG_MS).look() is None, "its lag is measured from the new epoch on"
    assert script.after(1).look() is not None


def test_replicas_come_and_go_with_the_assignment() -> None:
    script = Script(isr=(1, 2), replicas=(1, 2))
    script.replicas = (1, 3)
    script.told(6, (1,), 11)
    assert list(script.leadership.followers) == [3]
    assert script.append(10) == 10, "who is no replica any more is not waited for"


def test_the_low_watermark_is_that_of_live_replicas() -> None:
    script = Script()
    assert script.leadership.low_watermark(50) == UNKNOWN_OFFSET
    for replica, start in ((2, 40), (3, 45)):
        script.leadership.fetched(
            replica, 60, log_start_offset=start, broker_epoch=-1, end_offset=60, now_ms=script.now_ms
        )
    assert script.leadership.low_watermark(50) == 40
    script.dead.add(2)
    assert script.leadership.low_watermark(50) == 45


def test_after_a_cut_nobody_is_known_to_be_there_before_it_asks_again() -> None:
    script = Script()
    script.append(10)
    for replica, offset in ((2, 10), (3, 4)):
        script.fetch(replica, offset)
    script.end = script.watermark = 6
    script.leadership.cut(6)
    assert not script.leadership.in_sync_have(6)
    assert script.append(8) == 6, "what the follower had at 6 and beyond was cut"
    script.fetch(2, 6)
    assert not script.leadership.in_sync_have(6), "one is on its way yet"
    script.fetch(3, 6)
    assert script.leadership.in_sync_have(6)
    script.fetch(2, 8)
    script.fetch(3, 8)
    assert script.watermark == 8


def test_who_is_out_of_sync_is_not_waited_for_and_joins_where_the_log_was_cut() -> None:
    script = Script(isr=(1, 2), end=10, watermark=10)
    script.end = script.watermark = 6
    script.leadership.cut(6)
    script.fetch(2, 6)
    assert script.leadership.in_sync_have(6)
    assert script.fetch(3, 6) is not None, "the epoch began behind the cut"
