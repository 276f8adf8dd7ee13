"""Offsets that wait for the markers of their transactions: which of them count, and when nothing is pending any more."""

from __future__ import annotations

from headrace.broker.config.sections import Groups
from headrace.broker.coordinators.decision import ProducerEpoch
from headrace.broker.coordinators.records import Record
from headrace.broker.errors import ErrorCode
from headrace.broker.groups.events import CommitOffsets, FetchedOffset, FetchOffsets, TransactionEnded
from headrace.broker.groups.machine import Shard
from headrace.broker.groups.records import OffsetValue
from headrace.broker.wire.partitions import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
FIRST, SECOND = ProducerEpoch(7, 0), ProducerEpoch(8, 3)
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


class World:
    """A shard and its log."""

    def __init__(self) -> None:
        self.shard = Shard(Groups())
        self.log: list[Record | TransactionEnded] = []

    def commit(
        self, offset: int, producer: ProducerEpoch | None = None, *, member: str = "", generation: int = -1
    ) -> ErrorCode:
        event = CommitOffsets(
            group_id="g",
            generation=generation,
            member_id=member,
            offsets={T0: OffsetValue(offset, commit_timestamp_ms=1)},
            producer=producer,
        )
        decision = self.shard.decide(event, 1, 1)
        assert decision.producer == (producer if decision.records else decision.producer)
        self.shard.adopt(decision)
        for record in decision.records:
            self.log.append(record)
            self.shard.apply(record)
        return ErrorCode(decision.replies[0].answer[T0])

    def end(self, producer: ProducerEpoch, *, commit: bool) -> None:
        event = TransactionEnded(producer_id=producer.producer_id, is_commit=commit)
        self.log.append(event)
        self.shard.adopt(self.shard.decide(event, 1))

    def fetch(self, *, stable: bool = False) -> FetchedOffset:
        event = FetchOffsets(group_id="g", partitions=(T0, T1), requires_stable=stable)
        answer = self.shard.decide(event, 1, 1).replies[0].answer
        assert answer.offsets[T1] == FetchedOffset()
        found = answer.offsets[T0]
        assert isinstance(found, FetchedOffset)
        return found

    def replayed(self) -> World:
        other = World()
        for each in self.log:
            if isinstance(each, Record):
                other.shard.apply(each)
            else:
                other.shard.end_transaction(each.producer_id, is_commit=each.is_commit)
        return other


def test_an_offset_holds_once_its_transaction_is_committed() -> None:
    world = World()
    world.commit(5)
    world.commit(9, FIRST)
    for each in (world, world.replayed()):
        assert each.fetch().offset == 5
        assert (each.fetch(stable=True).offset, each.fetch(stable=True).error) == (-1, UNSTABLE)
    world.end(FIRST, commit=True)
    for each in (world, world.replayed()):
        assert each.fetch(stable=True).offset == 9


def test_an_offset_is_void_once_its_transaction_is_aborted() -> None:
    world = World()
    world.commit(9, FIRST)
    world.end(FIRST, commit=False)
    assert world.fetch(stable=True) == FetchedOffset()
    world.end(FIRST, commit=True)
    assert world.fetch() == FetchedOffset()


def test_what_came_last_into_the_log_counts_whatever_ends_last() -> None:
    world = World()
    world.commit(1, FIRST)
    world.commit(2, SECOND)
    world.end(SECOND, commit=True)
    assert world.fetch(stable=True).error is UNSTABLE
    world.end(FIRST, commit=True)
    assert world.fetch(stable=True).offset == 2

    world.commit(3, FIRST)
    world.commit(4)
    assert world.fetch(stable=True).error is UNSTABLE
    world.end(FIRST, commit=True)
    for each in (world, world.replayed()):
        assert each.fetch(stable=True).offset == 4


def test_an_aborted_one_hides_nothing_before_it() -> None:
    world = World()
    world.commit(1, FIRST)
    world.commit(2, SECOND)
    world.end(SECOND, commit=False)
    world.end(FIRST, commit=True)
    assert world.fetch().offset == 1


def test_a_producer_may_tell_for_which_member_it_commits() -> None:
    world = World()
    assert world.commit(1, FIRST, member="m", generation=0) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.commit(1, FIRST, generation=3) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.commit(1, FIRST) is ErrorCode.NONE
    assert len(world.log) == 1
