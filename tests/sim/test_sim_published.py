"""Published schedules in which replicas lost or mixed up what was committed, on the machines: log, epochs, leadership, follower.

KIP-101 (truncation to the high watermark loses and diverges), KIP-279 (a fast failover hides the epoch between), KIP-320 (a
zombie leader and its follower), KAFKA-7164 (a leader between that somebody missed), KAFKA-7128 (a follower joins behind the
start of the epoch), KAFKA-15583 (the last one in sync).
"""

from __future__ import annotations

import pytest
from published_logs import follow, lead, log

from headrace.broker.replication.leader import Leadership
from headrace.broker.replication.model import PartitionState


def test_kip_101_a_follower_that_starts_keeps_what_its_watermark_does_not_know_of_yet() -> None:
    """Scenario 1: B has m1 but not the watermark that says so; it restarts, asks A, and A dies: B must have m1."""
    a, b = log(0, 0, high_watermark=2), log(0, 0, high_watermark=1)
    assert follow(b, a, 0) == []
    lead(b, 1)
    assert follow(a, b, 1) == []
    assert a.entries == b.entries
    assert len(b.entries) == 2


def test_kip_101_logs_that_parted_at_a_restart_become_one() -> None:
    """Scenario 2: both lost power; B came first, lost m1, led and took another one: A must not keep its own."""
    a, b = log(0, 0, high_watermark=2), log(0, high_watermark=1)
    lead(b, 1)
    b.append([b"another"], 1)
    assert follow(a, b, 1) == [1]
    assert a.entries == b.entries


def test_kip_279_a_follower_with_an_epoch_that_the_leader_never_saw_goes_back_step_by_step() -> None:
    """A and B led in turn and alone, twice each: no offset says where the logs part, but epochs do."""
    a, b = log(0, 0, 2, 2, 4), log(0, 0, 1, 1, 3, 3)
    lead(b, 5)
    assert follow(a, b, 5) == [4, 2]
    assert a.entries == b.entries
    assert a.epochs.entries == b.epochs.entries[: len(a.epochs.entries)]


def test_kip_279_an_epoch_without_messages_is_an_answer_too() -> None:
    a, b = log(0, 0, 1), log(0, 0)
    lead(b, 2)
    b.append([b"new"], 2)
    assert follow(a, b, 2) == [2]
    assert a.entries == b.entries


def test_kip_320_who_followed_a_deposed_leader_gives_up_what_only_that_one_had() -> None:
    """A leads on unseen in epoch 1 with follower B; C leads in epoch 2: A and B end with the log of C."""
    a, c = log(0, 0, 1, 1, 1), log(0, 0)
    b = log(0, 0)
    assert follow(b, a, 1) == []
    assert b.entries == a.entries
    lead(c, 2)
    c.append([b"committed"], 2)
    for other in (a, b):
        assert follow(other, c, 2) == [2]
        assert other.entries == c.entries


def test_kafka_7164_who_missed_a_leader_between_cuts_its_log_though_the_leader_is_the_same_again() -> None:
    """r1 led in epoch 0, followed r2 in epoch 1 and cut its log, and leads in epoch 2; r3 heard of epochs 0 and 2 only."""
    first, second, third = log(0), log(), log(0)
    lead(second, 1)
    assert follow(first, second, 1) == [0]
    lead(first, 2)
    first.append([b"other"], 2)
    assert follow(third, first, 2) == [0]
    assert third.entries == first.entries


@pytest.mark.parametrize(
    ("own", "leading", "cuts"),
    [
        ((0, 0, 0), (0, 0, 0), []),
        ((0, 0, 0, 0), (0, 0, 0), [3]),
        ((0, 0), (0, 0, 0, 1), []),
        ((0, 0, 1, 1), (0, 0, 0, 2), [2]),
        ((0, 1, 1, 3), (0, 1, 2, 2), [3, 2]),
        ((0, 2, 2), (1, 1, 1), [1, 0]),
        ((), (0, 1, 2), []),
    ],
    ids=["same", "longer", "shorter", "parted", "parted twice", "nothing in common", "empty"],
)
def test_ways_in_which_logs_part(own: tuple[int, ...], leading: tuple[int, ...], cuts: list[int]) -> None:
    follower, leader = log(*own), log(*leading)
    lead(leader, 9)
    assert follow(follower, leader, 9) == cuts
    assert follower.entries == leader.entries


def leadership(end_offset: int, isr: tuple[int, ...] = (1,)) -> Leadership:
    state = PartitionState(leader=1, leader_epoch=5, isr=isr, controller_epoch=1, zk_version=3)
    return Leadership(
        1,
        state,
        (1, 2, 3),
        end_offset=end_offset,
        lag_ms_max=1000,
        is_alive=lambda broker: True,
        now_ms=0,
    )


def fetched(leading: Leadership, replica: int, offset: int, end_offset: int) -> None:
    leading.fetched(replica, offset, log_start_offset=0, broker_epoch=-1, end_offset=end_offset, now_ms=0)


def test_kafka_7128_nobody_joins_at_a_watermark_that_lags_behind_the_begin_of_the_epoch() -> None:
    """The new leader has up to 10 and knows of 4 as committed: a follower with 6 lacks what may be committed."""
    leading = leadership(end_offset=10)
    fetched(leading, 2, 6, 10)
    assert leading.joining(2, high_watermark=4) is None
    fetched(leading, 2, 10, 12)
    joining = leading.joining(2, high_watermark=4)
    assert joining is not None
    assert joining.isr == (1, 2)


def test_kip_966_the_watermark_stands_still_below_the_minimum() -> None:
    """KAFKA-15583: alone in sync, the last leader commits nothing more."""
    assert leadership(end_offset=10).committed(12, isr_size_min=2, now_ms=5000) == -1
    alone = leadership(end_offset=10)
    assert alone.committed(12, isr_size_min=1, now_ms=5000) == 12
