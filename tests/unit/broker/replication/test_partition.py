"""A replica with its log: what it appends, commits and asks its broker for, as leader and as follower."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import pytest
from log_kit import NOW_MS, batch, open_log
from replica_kit import LAG_MS_MAX, ScriptedHost, told

from headrace.broker.config.topics import LogConfig
from headrace.broker.errors import (
    ErrorCode,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    UnknownLeaderEpochError,
)
from headrace.broker.log.truncation import truncate_to
from headrace.broker.replication.model import PartitionState
from headrace.broker.replication.partition import Partition
from headrace.broker.wire.batches import set_base_offset_and_epoch


class Replica(Partition):
    """`events-0` on broker 1."""

    __slots__ = ("scripted",)

    def __init__(self, folder: Path, config: LogConfig | None = None) -> None:
        log, _ = open_log(folder, config)
        self.scripted = ScriptedHost()
        super().__init__(self.scripted, "events", 0, UUID(int=1), log)

    def produce(self, count: int = 1, acks: int = 1) -> None:
        self.append(batch(count), required_acks=acks, now_ms=NOW_MS)

    def lacks(self) -> list[str]:
        """What its in-sync replicas are too few for."""
        facts = {"replicas": self.is_under_replicated, "minimum": self.is_under_min_isr}
        return [name for name, is_lacking in facts.items() if is_lacking]

    def answer(self, isr: Sequence[int], partition_epoch: int) -> bool:
        answer = PartitionState(
            leader=1,
            leader_epoch=self.leader_epoch,
            isr=tuple(isr),
            controller_epoch=1,
            zk_version=partition_epoch,
        )
        return self.proposal_answered(self.scripted.proposals[-1], answer)


@pytest.fixture
def replica(tmp_path: Path) -> Replica:
    return Replica(tmp_path)


def test_a_leader_notes_its_epoch_before_any_data(replica: Replica) -> None:
    replica.follow(told(epoch=3))
    assert (replica.log.latest_epoch, replica.log.log_end_offset) == (3, 0)


def test_who_waits_hears_of_what_followers_commit_and_not_twice_of_an_append(replica: Replica) -> None:
    replica.follow(told(isr=(1, 2)))
    replica.produce(5)
    assert replica.scripted.woken == []
    replica.follower_fetched(2, 3)
    replica.follower_fetched(2, 3)
    assert (replica.high_watermark, len(replica.scripted.woken)) == (3, 1)


def test_only_replicas_fetch_as_followers_and_only_from_the_leader(replica: Replica) -> None:
    replica.follow(told(isr=(1, 2)))
    for stranger in (1, 3):
        with pytest.raises(UnknownLeaderEpochError):
            replica.follower_fetched(stranger, 0)
    replica.follow(told(2, 1, isr=(1, 2)))
    with pytest.raises(NotLeaderOrFollowerError):
        replica.follower_fetched(2, 0)


def test_a_leader_that_goes_on_in_the_next_epoch_is_the_same_leadership(replica: Replica) -> None:
    replica.follow(told(epoch=3, isr=(1, 2)))
    first = replica.leadership
    replica.follow(told(epoch=4, isr=(1, 2)))
    assert replica.leadership is first
    replica.follow(told(epoch=6, isr=(1, 2)))
    assert replica.leadership is not first, "somebody else may have led in epoch 5"


@pytest.mark.parametrize("is_stopped", [True, False])
def test_who_lost_the_lead_and_got_it_back_leads_anew(replica: Replica, is_stopped: bool) -> None:
    replica.follow(told(epoch=3, isr=(1, 2)))
    first = replica.leadership
    if is_stopped:
        replica.stop()
        replica.follow(told(epoch=4, isr=(1, 2)))
    else:
        replica.follow(told(2, 4, isr=(1, 2)))
        assert replica.leadership is None
        replica.follow(told(epoch=5, isr=(1, 2)))
    assert replica.leadership is not first


def test_the_high_watermark_is_kept_through_changes_of_leader(replica: Replica) -> None:
    replica.follow(told(isr=(1, 2)))
    replica.produce(5)
    replica.follower_fetched(2, 4)
    replica.follow(told(2, 1, isr=(1, 2)))
    assert replica.high_watermark == 4
    replica.leader_said(5, 0)
    assert replica.high_watermark == 5
    replica.follow(told(1, 2, isr=(1, 2)))
    assert replica.high_watermark == 5


def test_what_is_left_alone_in_sync_commits_at_once_where_one_is_enough(replica: Replica) -> None:
    replica.follow(told(isr=(1, 2)))
    replica.produce(5)
    replica.follow(told(epoch=1, isr=(1,), replicas=(1, 2)))
    assert replica.high_watermark == 5


def test_nothing_is_committed_below_the_minimum(tmp_path: Path) -> None:
    replica = Replica(tmp_path, LogConfig(min_insync_replicas=2))
    replica.follow(told(isr=(1,), replicas=(1, 2)))
    replica.produce(5)
    assert (replica.high_watermark, replica.is_under_min_isr) == (0, True)
    with pytest.raises(NotEnoughReplicasError):
        replica.produce(acks=-1)
    assert replica.log.log_end_offset == 5


def test_a_replica_joins_through_the_controller(tmp_path: Path) -> None:
    replica = Replica(tmp_path, LogConfig(min_insync_replicas=2))
    replica.follow(told(isr=(1,), replicas=(1, 2)))
    replica.produce(5)
    assert replica.lacks() == ["replicas", "minimum"]
    replica.follower_fetched(2, 5, broker_epoch=9)
    (proposal,) = replica.scripted.proposals
    assert (proposal.isr, proposal.broker_epochs) == ((1, 2), (-1, 9))
    assert (replica.isr, replica.high_watermark) == ((1,), 0)
    assert replica.answer((1, 2), 1)
    assert (replica.isr, replica.partition_epoch, replica.high_watermark) == ((1, 2), 1, 5)
    assert replica.lacks() == []
    replica.produce(acks=-1)


def test_who_lags_leaves_through_the_controller(replica: Replica) -> None:
    replica.follow(told(isr=(1, 2)))
    replica.produce(5)
    replica.check_lag()
    assert replica.scripted.proposals == []
    replica.scripted.now_ms += LAG_MS_MAX + 1
    replica.check_lag()
    assert [p.isr for p in replica.scripted.proposals] == [(1,)]
    assert replica.high_watermark == 0
    assert replica.answer((1,), 1)
    assert (replica.isr, replica.high_watermark, len(replica.scripted.woken)) == ((1,), 5, 1)


def test_who_has_everything_stays_however_long_it_rests_and_may_lag_from_then_on(replica: Replica) -> None:
    replica.follow(told(isr=(1, 2)))
    replica.produce(5)
    replica.follower_fetched(2, 5)
    for _ in range(3):
        replica.scripted.now_ms += LAG_MS_MAX
        replica.check_lag()
    replica.produce(1)
    replica.scripted.now_ms += LAG_MS_MAX
    replica.check_lag()
    assert replica.scripted.proposals == []
    replica.scripted.now_ms += 1
    replica.check_lag()
    assert [p.isr for p in replica.scripted.proposals] == [(1,)]


def test_an_answer_after_the_lead_was_lost_changes_nothing(replica: Replica) -> None:
    replica.follow(told(isr=(1,), replicas=(1, 2)))
    replica.follower_fetched(2, 0)
    replica.follow(told(2, 1, isr=(2,), replicas=(1, 2), partition_epoch=3))
    assert not replica.answer((1, 2), 4)
    assert (replica.isr, replica.partition_epoch) == ((2,), 3)


def test_what_was_committed_by_enough_is_told_from_what_too_few_had(tmp_path: Path) -> None:
    replica = Replica(tmp_path, LogConfig(min_insync_replicas=2))
    found = []
    for word in (told(isr=(1, 2)), told(epoch=1, isr=(1,), replicas=(1, 2))):
        replica.follow(word)
        found.append(replica.has_enough_in_sync)
    # Who is proposed is waited for.
    replica.follower_fetched(2, 0)
    assert [*found, replica.has_enough_in_sync] == [True, False, True]


def test_an_isr_below_the_minimum_brings_the_log_to_the_disk(tmp_path: Path) -> None:
    replica = Replica(tmp_path, LogConfig(min_insync_replicas=2))
    replica.follow(told(isr=(1, 2)))
    replica.produce(5)
    assert replica.scripted.secured == []
    replica.follow(told(epoch=1, isr=(1,), replicas=(1, 2)))
    assert replica.scripted.secured == [replica]


def test_one_replica_alone_is_never_below_the_minimum(tmp_path: Path) -> None:
    replica = Replica(tmp_path, LogConfig(min_insync_replicas=2))
    replica.follow(told())
    replica.produce(5, acks=-1)
    replica.follow(told(epoch=1))
    assert (replica.high_watermark, replica.scripted.secured) == (5, [])


def test_a_refused_proposal_is_made_again_by_the_next_fetch(replica: Replica) -> None:
    replica.follow(told(isr=(1,), replicas=(1, 2)))
    replica.follower_fetched(2, 0)
    assert not replica.proposal_answered(replica.scripted.proposals[0], ErrorCode.INELIGIBLE_REPLICA)
    replica.follower_fetched(2, 0)
    assert len(replica.scripted.proposals) == 2


def test_who_caught_up_while_another_joined_joins_after_it_with_nothing_more_to_fetch(
    replica: Replica,
) -> None:
    replica.follow(told(isr=(1,), replicas=(1, 2, 3)))
    replica.produce(5)
    replica.follower_fetched(2, 5)
    replica.follower_fetched(3, 5)
    assert [p.isr for p in replica.scripted.proposals] == [(1, 2)]
    replica.answer((1, 2), 1)
    assert [p.isr for p in replica.scripted.proposals] == [(1, 2), (1, 2, 3)]


def test_a_refused_proposal_is_made_again_in_time_with_nothing_to_fetch(replica: Replica) -> None:
    replica.follow(told(isr=(1,), replicas=(1, 2)))
    replica.follower_fetched(2, 0)
    replica.proposal_answered(replica.scripted.proposals[0], ErrorCode.INELIGIBLE_REPLICA)
    assert len(replica.scripted.proposals) == 1
    replica.check_lag()
    assert len(replica.scripted.proposals) == 2


def test_who_left_as_it_hung_joins_by_a_fetch_alone(tmp_path: Path) -> None:
    """Below the minimum the watermark stays where it is, so that it seems to have all that is committed."""
    replica = Replica(tmp_path, LogConfig(min_insync_replicas=2))
    replica.follow(told(isr=(1, 2)))
    replica.produce(5)
    replica.follower_fetched(2, 5)
    replica.produce(1)
    for _ in range(3):
        replica.scripted.now_ms += LAG_MS_MAX + 1
        replica.check_lag()
        replica.answer((1,), 1)
    assert [p.isr for p in replica.scripted.proposals] == [(1,)]
    replica.follower_fetched(2, 5)
    assert [p.isr for p in replica.scripted.proposals] == [(1,), (1, 2)]


def test_a_replica_that_is_just_added_does_not_make_it_under_replicated(replica: Replica) -> None:
    word = told(isr=(1,), replicas=(1, 2))
    replica.follow(word._replace(adding=(2,)))
    assert replica.lacks() == []
    replica.follow(told(epoch=1, isr=(1,), replicas=(1, 2)))
    assert replica.lacks() == ["replicas"]


def test_it_is_reassigning_while_it_is_led_here_and_replicas_come_or_go(replica: Replica) -> None:
    for epoch, (adding, removing) in enumerate([((2,), ()), ((), (2,)), ((), ())]):
        replica.follow(told(epoch=epoch, isr=(1, 2))._replace(adding=adding, removing=removing))
        assert replica.is_reassigning == bool(adding or removing)
    replica.follow(told(leader=2, epoch=9, isr=(1, 2))._replace(adding=(2,)))
    assert not replica.is_reassigning


@pytest.mark.parametrize(
    ("high_watermark", "batch_epoch", "is_whole"),
    [(12, 0, True), (11, 0, True), (9, 0, True), (8, 0, False), (8, 3, True), (13, 3, False)],
)
def test_a_lost_tail_is_made_up_for_by_following(
    replica: Replica, high_watermark: int, batch_epoch: int, is_whole: bool
) -> None:
    """It has all that the leader calls committed, and that is no less than before, or it is past the epoch's start."""
    replica.follow(told(2, 3, isr=(1, 2)))
    fetched = batch(12, at=0)
    set_base_offset_and_epoch(fetched, 0, 0, batch_epoch)
    replica.appender.append_as_follower(fetched, epoch_max=3, now_ms=NOW_MS)
    replica.log.lost_end = 9
    replica.leader_said(high_watermark, 0)
    assert (replica.log.lost_end is None) is is_whole


def facts(replica: Replica) -> tuple[bool, bool]:
    """Whether its log may be cut, and whether whoever may lead next has all of it."""
    return replica.leads_since_its_last_message, replica.is_on_all_in_sync


def test_a_log_that_is_cut_begins_its_leader_epoch_there(replica: Replica) -> None:
    replica.follow(told(epoch=3, isr=(1, 2)))
    for _ in range(2):
        replica.produce(5)
    assert facts(replica) == (False, False)
    replica.follow(told(epoch=4, isr=(1, 2)))
    assert facts(replica) == (True, False)
    replica.follower_fetched(2, 10)
    assert facts(replica) == (True, True)
    truncate_to(replica.log, 5)
    replica.cut(10)
    assert (replica.log.epoch_at(4), replica.log.epoch_end_offset(3).end_offset) == (3, 5)
    assert (replica.high_watermark, facts(replica)) == (5, (True, False))
    replica.follower_fetched(2, 5)
    replica.cut(5)
    assert facts(replica) == (True, True), "nothing was cut: who rests there does not ask again"
    replica.produce(5)
    assert facts(replica) == (False, False)


def test_a_replica_without_followers_may_be_cut_in_the_epoch_that_wrote(replica: Replica) -> None:
    replica.follow(told(epoch=3, isr=(1,), replicas=(1,)))
    replica.produce(5)
    assert facts(replica) == (True, True)
