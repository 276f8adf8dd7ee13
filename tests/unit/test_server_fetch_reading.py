"""A waiting fetch reads again what may have changed, and nothing else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from headrace.broker.config import LogConfig
from headrace.broker.errors import (
    ErrorCode,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from headrace.broker.handlers.fetch_reading import READ_COMMITTED, Answer, Reading
from headrace.broker.handlers.fetch_request import FetchPartition, FetchRequest, FetchTopic
from headrace.broker.log.results import NOTHING_YET, LogSlice

MAX_BYTES = 1000


class World(SimpleNamespace):
    """Partitions of topics `t` and `u`: how far each can be read, who was read, and who is led elsewhere or gone."""

    def __init__(self) -> None:
        self.ends = {(topic, index): 10 for topic in "tu" for index in range(3)}
        self.stable_ends: dict[tuple[str, int], int] = {}
        self.read: list[tuple[str, int]] = []
        self.moved_away: set[tuple[str, int]] = set()
        self.fetched: list[tuple[int, int]] = []
        super().__init__(
            partitions=SimpleNamespace(leader_of=self.leader_of),
            metadata=SimpleNamespace(
                topic_name=lambda topic_id: None,
                partition=lambda topic, index: SimpleNamespace(leader=2, leader_epoch=1),
            ),
        )

    def leader_of(self, topic: str, index: int) -> Any:
        self.read.append((topic, index))
        if (topic, index) in self.moved_away:
            raise NotLeaderOrFollowerError("led elsewhere")
        if (topic, index) not in self.ends:
            raise UnknownTopicOrPartitionError("never heard of it")
        return SimpleNamespace(
            topic=topic,
            partition=index,
            log=Log(self.ends[topic, index], self.stable_ends.get((topic, index))),
            leader_epoch=5,
            broker_id=1,
            replicas=(1, 2),
            follower_fetched=lambda replica, offset: self.fetched.append((replica, offset)),
        )


class Log:
    """Records of 100 bytes each."""

    config = LogConfig()
    log_start_offset = 0

    def __init__(self, end: int, stable_end: int | None) -> None:
        self.high_watermark = self.log_end_offset = end
        self.last_stable_offset = end if stable_end is None else stable_end

    def check_offset(self, offset: int) -> None:
        if not 0 <= offset <= self.log_end_offset:
            raise OffsetOutOfRangeError("not in this log")

    def read(self, offset: int, *, size_max: int, upper_offset: int, at_least_one: bool) -> LogSlice:
        self.check_offset(offset)
        if offset >= upper_offset:
            return NOTHING_YET
        size = min((upper_offset - offset) * 100, size_max)
        return LogSlice(None, 0, size or (100 if at_least_one else 0))

    def aborted_transactions(self, offset: int, found: LogSlice) -> list[Any]:
        return []


@pytest.fixture
def world() -> World:
    return World()


def topic(name: str, *wanted: tuple[int, int]) -> FetchTopic:
    partitions = [FetchPartition(index, 5, offset, MAX_BYTES) for index, offset in wanted]
    return FetchTopic(name, None, name.encode(), partitions)


def reading(world: World, *topics: FetchTopic, isolation_level: int = 0, replica_id: int = -1) -> Reading:
    request = FetchRequest(replica_id, 500, 1, MAX_BYTES, isolation_level, 0, -1, list(topics))
    return Reading(world, request, MAX_BYTES)  # type: ignore[arg-type]


def sizes(answer: Answer) -> list[tuple[str | None, int, int, int]]:
    """(topic, partition, high watermark, bytes) of each, in order."""
    return [
        (topic.name, item.partition_index, item.high_watermark, item.records.size if item.records else 0)
        for topic, found in answer
        for item in found
    ]


def test_only_what_moved_is_read_again(world: World) -> None:
    waiting = reading(world, topic("t", (0, 10), (1, 10)), topic("u", (2, 10)))
    assert waiting.read()[1:] == (0, False)
    assert world.read == [("t", 0), ("t", 1), ("u", 2)]
    world.read.clear()
    world.ends["t", 1] = 12
    answer, size, is_urgent = waiting.read_again({("t", 1)})
    assert world.read == [("t", 1)]
    assert (size, is_urgent) == (200, False)
    assert sizes(answer) == [("t", 0, 10, 0), ("t", 1, 12, 200), ("u", 2, 10, 0)]


def test_at_the_time_out_everything_is_read_again(world: World) -> None:
    waiting = reading(world, topic("t", (0, 10), (1, 10)))
    waiting.read()
    world.ends |= {("t", 0): 11, ("t", 1): 11}
    assert waiting.read_again(None)[1] == 200


def test_what_had_records_is_read_at_every_attempt(world: World) -> None:
    """Its slice may lie in a segment that is gone by then, and more may have come."""
    waiting = reading(world, topic("t", (0, 8), (1, 10)))
    assert waiting.read()[1] == 200
    world.read.clear()
    world.ends["t", 0] = 11
    assert waiting.read_again({("t", 1)})[1] == 300
    assert world.read == [("t", 0), ("t", 1)]


def test_what_comes_first_takes_its_share_of_the_limit_again(world: World) -> None:
    waiting = reading(world, topic("t", (0, 10), (1, 5)))
    assert sizes(waiting.read()[0]) == [("t", 0, 10, 0), ("t", 1, 10, 500)]
    world.ends["t", 0] = 17
    answer, size, _ = waiting.read_again({("t", 0)})
    assert size == MAX_BYTES
    assert sizes(answer) == [("t", 0, 17, 700), ("t", 1, 10, 300)]


def test_a_partition_named_twice_is_read_for_each_of_its_offsets(world: World) -> None:
    waiting = reading(world, topic("t", (0, 10), (0, 12)))
    waiting.read()
    world.ends["t", 0] = 13
    assert sizes(waiting.read_again({("t", 0)})[0]) == [("t", 0, 13, 300), ("t", 0, 13, 100)]


def test_a_leader_that_moves_away_is_told_at_once(world: World) -> None:
    waiting = reading(world, topic("t", (0, 10), (1, 10)))
    waiting.read()
    world.moved_away.add(("t", 1))
    answer, _, is_urgent = waiting.read_again({("t", 1)})
    assert is_urgent
    assert [item.error_code for _, found in answer for item in found] == [0, 6]


def test_absent_partitions_go_last_and_are_looked_for_at_every_attempt(world: World) -> None:
    waiting = reading(world, topic("t", (9, 0), (0, 10)))
    answer, size, is_urgent = waiting.read()
    assert ([item.partition_index for item in answer[0][1]], size, is_urgent) == ([0, 9], 0, False)
    world.ends["t", 9] = 1
    assert waiting.read_again({("t", 9)})[1] == 100


def test_a_reader_of_committed_records_waits_for_the_last_stable_offset(world: World) -> None:
    world.stable_ends["t", 0] = 9
    waiting = reading(world, topic("t", (0, 9)), isolation_level=READ_COMMITTED)
    assert waiting.read()[1] == 0
    world.stable_ends["t", 0] = 10
    assert waiting.read_again({("t", 0)})[1] == 100


def test_a_topic_id_that_nobody_knows_has_no_key_to_wait_for(world: World) -> None:
    unknown = FetchTopic(None, UUID(int=9), UUID(int=9).bytes, [FetchPartition(0, -1, 0, MAX_BYTES)])
    waiting = reading(world, unknown, topic("t", (0, 10)))
    assert waiting.keys() == [("t", 0)]
    assert waiting.read()[1:] == (0, False)


@pytest.mark.parametrize("replica_id", [1, 3])
def test_who_is_no_follower_is_sent_away_and_not_remembered(world: World, replica_id: int) -> None:
    believed, unsaid = FetchPartition(0, 5, 10, MAX_BYTES), FetchPartition(1, -1, 10, MAX_BYTES)
    found, *_ = reading(world, FetchTopic("t", None, b"t", [believed, unsaid]), replica_id=replica_id).read()
    assert [item.error_code for _, items in found for item in items] == [
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ]
    assert world.fetched == []


def test_a_followers_place_counts_once_it_is_known_to_be_in_the_log(world: World) -> None:
    found, *_ = reading(world, topic("t", (0, 4), (1, 11)), replica_id=2).read()
    assert [item.error_code for _, items in found for item in items] == [0, ErrorCode.OFFSET_OUT_OF_RANGE]
    assert world.fetched == [(2, 4)]


def test_an_offset_is_checked_also_where_no_records_fit(world: World) -> None:
    found, *_ = reading(world, topic("t", (0, 0), (1, 0), (2, 11))).read()
    assert [item.error_code for _, items in found for item in items] == [0, 0, ErrorCode.OFFSET_OUT_OF_RANGE]
    assert [item.records is None for _, items in found for item in items] == [False, True, True]
