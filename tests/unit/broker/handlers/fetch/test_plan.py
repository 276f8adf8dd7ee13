"""A waiting fetch reads again what may have changed, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Collection
from random import Random
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from headrace.broker.config.topics import LogConfig
from headrace.broker.errors import (
    ErrorCode,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from headrace.broker.handlers.fetch.found import Answer
from headrace.broker.handlers.fetch.plan import Reading, SessionReading
from headrace.broker.handlers.fetch_request import FetchPartition, FetchRequest, FetchTopic
from headrace.broker.handlers.fetch_sessions import FetchSessions, Turn
from headrace.broker.log.results import NOTHING_YET, LogSlice
from headrace.broker.waiting.parking import Waiting
from headrace.broker.wire.special_values import READ_COMMITTED

MAX_BYTES = 1000


class World(SimpleNamespace):
    """Partitions of topics `t` and `u`: how far each can be read, who was read, and who is led elsewhere or gone."""

    def __init__(self) -> None:
        self.ends = {(topic, index): 10 for topic in "tu" for index in range(3)}
        self.stable_ends: dict[tuple[str, int], int] = {}
        self.starts: dict[tuple[str, int], int] = {}
        self.epochs: dict[tuple[str, int], int] = {}
        self.topic_ids = {"t": UUID(int=1), "u": UUID(int=2)}
        self.names = {UUID(int=1): "t", UUID(int=2): "u"}
        self.read: list[tuple[str, int]] = []
        self.moved_away: set[tuple[str, int]] = set()
        self.isr: tuple[int, ...] = (1, 2)
        self.held_back: set[tuple[str, int]] = set()
        self.fetched: list[tuple[int, int]] = []
        self.soon: list[Callable[[], Any]] = []
        super().__init__(
            partitions=SimpleNamespace(replica=self.replica, get=self.get),
            config=SimpleNamespace(replication=SimpleNamespace(replica_selector_class=None)),
            metadata=SimpleNamespace(
                topic_name=self.names.get,
                partition=lambda topic, index: SimpleNamespace(leader=2, leader_epoch=1),
            ),
            waiting=Waiting(self),
            leader_throttle=SimpleNamespace(holds_back=lambda *key: key in self.held_back),
        )

    def replica(self, topic: str, index: int) -> Any:
        self.read.append((topic, index))
        found = self.get(topic, index)
        if found is None:
            raise UnknownTopicOrPartitionError("never heard of it")
        return found

    def get(self, topic: str, index: int) -> Any:
        key = topic, index
        if key not in self.ends:
            return None
        return SimpleNamespace(
            topic=topic,
            topic_id=self.topic_ids[topic],
            partition=index,
            log=Log(self.starts.get(key, 0), self.ends[key], self.stable_ends.get(key)),
            is_leader=key not in self.moved_away,
            leader_epoch=self.epochs.get(key, 5),
            broker_id=1,
            replicas=(1, 2),
            isr=self.isr,
            leadership=None,
            follower_fetched=lambda replica, offset, **_: self.fetched.append((replica, offset)),
        )

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> None:
        self.soon.append(lambda: callback(*args))

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> Any:
        return SimpleNamespace(cancel=lambda: None)

    def turn(self) -> None:
        while self.soon:
            self.soon.pop(0)()


class Log:
    """Records of 100 bytes each."""

    config = LogConfig()

    def __init__(self, start: int, end: int, stable_end: int | None) -> None:
        self.log_start_offset = start
        self.high_watermark = self.log_end_offset = end
        self.last_stable_offset = end if stable_end is None else stable_end

    def check_offset(self, offset: int) -> None:
        if not self.log_start_offset <= offset <= self.log_end_offset:
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
    made = Reading(world)  # type: ignore[arg-type]
    ask(made, *topics, isolation_level=isolation_level, replica_id=replica_id)
    return made


def ask(
    client: Reading, *topics: FetchTopic, isolation_level: int = 0, replica_id: int = -1, version: int = 11
) -> None:
    request = FetchRequest(replica_id, 500, 1, MAX_BYTES, isolation_level, 0, -1, list(topics))
    client.ask(request, version, MAX_BYTES)


def wait(client: Reading) -> list[Collection[tuple[str, int]] | None]:
    """Park; what the request is told of, which answers it."""
    told: list[Collection[tuple[str, int]] | None] = []

    def attempt(moved: Collection[tuple[str, int]] | None) -> bool:
        told.append(moved)
        return True

    client.wait(500, attempt)
    return told


def answered(world: World, client: Reading) -> None:
    """The request that waits gets its answer, so that the client may ask again."""
    told = wait(client)
    world.waiting.release()
    assert told == [None]


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


@pytest.mark.parametrize(("size_max", "size"), [(MAX_BYTES, 150), (30, 130), (0, 100)])
def test_a_batch_that_does_not_fit_is_waited_for_no_longer(
    world: World, monkeypatch: pytest.MonkeyPatch, size_max: int, size: int
) -> None:
    def read(self: Log, offset: int, *, size_max: int, upper_offset: int, at_least_one: bool) -> LogSlice:
        return LogSlice(None, 0, 100 if at_least_one or size_max >= 100 else 0)

    monkeypatch.setattr(Log, "read", read)
    wanted = [FetchPartition(0, 5, 9, MAX_BYTES), FetchPartition(1, 5, 9, size_max)]
    client = Reading(world)  # type: ignore[arg-type]
    client.ask(FetchRequest(-1, 500, 1, 150, 0, 0, -1, [FetchTopic("t", None, b"t", wanted)]), 11, 150)
    answer, *told = client.read()
    assert [found.records.size if found.records else 0 for _, items in answer for found in items] == [100, 0]
    assert told == [size, False]


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


def test_a_partition_that_goes_during_a_wait_ends_it_and_is_no_part_of_the_next(world: World) -> None:
    client = reading(world, topic("t", (0, 10), (1, 10)))
    assert client.read()[1:] == (0, False)
    told = wait(client)
    deleted(world)
    world.waiting.wake("t", 1)
    world.turn()
    assert told == [{("t", 1)}]
    assert client.read_again({("t", 1)})[1:] == (0, True)
    ask(client, topic("t", (0, 10), (1, 10)))
    assert client.read()[1:] == (0, False)


def test_a_reader_of_committed_records_waits_for_the_last_stable_offset(world: World) -> None:
    world.stable_ends["t", 0] = 9
    waiting = reading(world, topic("t", (0, 9)), isolation_level=READ_COMMITTED)
    assert waiting.read()[1] == 0
    world.stable_ends["t", 0] = 10
    assert waiting.read_again({("t", 0)})[1] == 100


def test_a_topic_id_that_nobody_knows_has_no_key_to_wait_for(world: World) -> None:
    unknown = FetchTopic(None, UUID(int=9), UUID(int=9).bytes, [FetchPartition(0, -1, 0, MAX_BYTES)])
    waiting = reading(world, unknown, topic("t", (0, 10)))
    assert waiting.read()[1:] == (0, False)
    told = wait(waiting)
    world.waiting.wake("t", 0)
    world.turn()
    assert told == [{("t", 0)}]


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


def test_where_a_follower_is_is_noted_once_when_its_request_arrives(world: World) -> None:
    waiting = reading(world, topic("t", (0, 10)), replica_id=2)
    waiting.read()
    world.ends["t", 0] = 11
    assert waiting.read_again({("t", 0)})[1] == 100
    waiting.read_again(None)
    assert world.fetched == [(2, 10)]


@pytest.mark.parametrize(("isr", "sizes"), [((1,), [0, 100]), ((1, 2), [100, 100])])
def test_a_throttle_holds_back_followers_that_are_out_of_sync(
    world: World, isr: tuple[int, ...], sizes: list[int]
) -> None:
    world.held_back, world.isr = {("t", 0)}, isr
    found, size, is_urgent = reading(world, topic("t", (0, 9), (1, 9)), replica_id=2).read()
    sent = [0 if item.records is None else item.records.size for _, items in found for item in items]
    assert (sent, size, is_urgent) == (sizes, sum(sizes), False)
    assert world.fetched == [(2, 9), (2, 9)], "where they are is known all the same"


def test_a_follower_waits_for_the_end_of_the_log(world: World) -> None:
    client = reading(world, topic("t", (0, 10)), replica_id=2)
    told = wait(client)
    world.waiting.wake("t", 0)
    world.turn()
    assert told == []
    world.waiting.wake_end("t", 0)
    world.turn()
    assert told == [{("t", 0)}]


def test_an_offset_is_checked_also_where_no_records_fit(world: World) -> None:
    found, *_ = reading(world, topic("t", (0, 0), (1, 0), (2, 11))).read()
    assert [item.error_code for _, items in found for item in items] == [0, 0, ErrorCode.OFFSET_OUT_OF_RANGE]
    assert [item.records is None for _, items in found for item in items] == [False, True, True]


def test_the_next_request_reads_only_what_it_asks_anew(world: World) -> None:
    client = reading(world, topic("t", (0, 10), (1, 10)), topic("u", (2, 10)))
    client.read()
    answered(world, client)
    world.read.clear()
    ask(client, topic("t", (0, 10), (1, 9)), topic("u", (2, 10)))
    answer, size, _ = client.read()
    assert world.read == [("t", 1)]
    assert (sizes(answer), size) == ([("t", 0, 10, 0), ("t", 1, 10, 100), ("u", 2, 10, 0)], 100)


def grown(world: World) -> None:
    world.ends["t", 1] += 1


def decided(world: World) -> None:
    world.stable_ends["t", 1] = 9


def cut(world: World) -> None:
    world.starts["t", 1] = 3


def led_anew(world: World) -> None:
    world.epochs["t", 1] = 6


def led_elsewhere(world: World) -> None:
    world.moved_away.add(("t", 1))


def deleted(world: World) -> None:
    del world.ends["t", 1]


def made_anew(world: World) -> None:
    world.topic_ids["t"] = UUID(int=8)


@pytest.mark.parametrize("change", [grown, decided, cut, led_anew, led_elsewhere, made_anew, deleted])
def test_the_next_request_sees_what_changed_meanwhile(world: World, change: Callable[[World], None]) -> None:
    client = reading(world, topic("t", (0, 10), (1, 10)))
    client.read()
    answered(world, client)
    world.read.clear()
    change(world)
    ask(client, topic("t", (0, 10), (1, 10)))
    found = client.read()
    assert ("t", 1) in world.read
    assert found == reading(world, topic("t", (0, 10), (1, 10))).read()


def test_another_version_or_isolation_level_reads_everything(world: World) -> None:
    client = reading(world, topic("t", (0, 10)))
    client.read()
    answered(world, client)
    for version, isolation_level in ((12, 0), (12, READ_COMMITTED)):
        world.read.clear()
        ask(client, topic("t", (0, 10)), version=version, isolation_level=isolation_level)
        client.read()
        assert world.read == [("t", 0)]
        answered(world, client)


def test_a_topic_that_was_made_anew_is_read_anew(world: World) -> None:
    def wanted(number: int) -> FetchTopic:
        return FetchTopic(
            None, UUID(int=number), UUID(int=number).bytes, [FetchPartition(0, 5, 10, MAX_BYTES)]
        )

    client = reading(world, wanted(1))
    client.read()
    answered(world, client)
    world.names[UUID(int=7)] = "t"
    ask(client, wanted(7))
    ((_, (found,)),) = client.read()[0]
    assert found.error_code == ErrorCode.INCONSISTENT_TOPIC_ID


def test_a_watch_serves_as_long_as_the_same_partitions_are_asked_for(world: World) -> None:
    client = reading(world, topic("t", (0, 10), (1, 10)))
    answered(world, client)
    assert world.waiting.kept_count == 2
    ask(client, topic("t", (1, 10), (0, 10)))
    told = wait(client)
    world.waiting.wake("t", 0)
    world.turn()
    assert (told, world.waiting.kept_count) == ([{("t", 0)}], 2)
    ask(client, topic("t", (1, 10)), topic("u", (1, 10)))
    told = wait(client)
    world.waiting.wake("t", 0)
    world.turn()
    assert told == []
    world.waiting.wake("u", 1)
    world.turn()
    assert told == [{("u", 1)}]
    client.close()
    assert (world.waiting.kept_count, world.waiting.parked_count) == (0, 0)


@pytest.mark.parametrize("seed", range(60))
def test_a_client_is_answered_as_if_it_asked_for_the_first_time(seed: int) -> None:
    """Whatever it asked for before, and whatever happens to the partitions between its requests."""
    world, random = World(), Random(seed)
    world.waiting = Waiting(world, kept_max=random.choice((4, 100)))
    client = Reading(world)  # type: ignore[arg-type]
    for _ in range(40):
        key = random.choice("tu"), random.randrange(3)
        match random.randrange(8):
            case 0 | 1:
                world.ends[key] = world.ends.get(key, 10) + 1
            case 2:
                world.stable_ends[key] = random.randint(8, 11)
            case 3:
                world.starts[key] = random.randint(0, 10)
            case 4:
                world.epochs[key] = random.randint(4, 6)
            case 5:
                world.moved_away ^= {key}
            case 6:
                world.ends.pop(key, None)
        topics = [
            topic(name, *((random.randrange(3), random.choice((10, 10, 10, 9, 11))) for _ in range(count)))
            for name in random.sample("tu", 2)
            if (count := random.randrange(5))
        ]
        version, level = random.choice((11, 11, 11, 12)), random.choice((0, 0, READ_COMMITTED))
        replica_id = random.choice((-1, -1, -1, 2))
        ask(client, *topics, version=version, isolation_level=level, replica_id=replica_id)
        fresh = Reading(world)  # type: ignore[arg-type]
        ask(fresh, *topics, version=version, isolation_level=level, replica_id=replica_id)
        assert client.read() == fresh.read()
        told = wait(client)
        if topics:
            wanted = random.choice(topics)
            moved = wanted.name or "", wanted.partitions[-1].partition_index
            world.ends[moved] = world.ends.get(moved, 10) + 1
            world.waiting.wake_both(*moved)
            world.turn()
            assert told == [{moved}]
            assert client.read_again({moved}) == fresh.read_again(None)
        else:
            world.waiting.release()


def told_of(answer: Answer) -> dict[tuple[str | None, int], tuple[int, int, int, int]]:
    """What a client learns: error, high watermark, start of the log and bytes of records, by partition."""
    return {
        (topic.name, item.partition_index): (
            item.error_code,
            item.high_watermark,
            item.log_start_offset,
            item.records.size if item.records else 0,
        )
        for topic, found in answer
        for item in found
    }


def happen(world: World, random: Random) -> None:
    """Something moves, or nothing, and who waits is told."""
    key = random.choice("tu"), random.randrange(3)
    match random.randrange(6):
        case 0 | 1 if key in world.ends:
            world.ends[key] += 1
        case 2:
            world.starts[key] = random.randint(0, 10)
        case 3:
            world.epochs[key] = random.randint(4, 6)
        case 4:
            world.moved_away ^= {key}
        case 5 if key not in world.ends:
            world.ends[key] = 10
        case 5 if random.random() < 0.3:
            del world.ends[key]
    random.choice((world.waiting.wake_both, world.waiting.wake))(*key)


@pytest.mark.parametrize("replica_id", [-1, 2])
@pytest.mark.parametrize("seed", range(40))
def test_who_has_a_session_learns_what_full_fetches_would_tell(seed: int, replica_id: int) -> None:
    """Whatever happens between its requests, and while they wait; as long as the broker wakes for what happens."""
    world, random = World(), Random(seed)
    sessions = FetchSessions(1, world.waiting, lambda: 7)
    offsets = {(name, index): 10 for name in "tu" for index in range(3)}
    learnt: dict[Any, Any] = {}

    def ask_session(number: int, epoch: int, topics: list[FetchTopic]) -> tuple[FetchRequest, Turn]:
        request = FetchRequest(replica_id, 500, 1, 100_000, 0, number, epoch, topics)
        turn = sessions.begin(request, lambda _: None, uses_topic_ids=False, now_ms=0)
        assert turn is not None
        return request, turn

    request, turn = ask_session(0, 0, [topic(name, *((i, 10) for i in range(3))) for name in "tu"])
    for epoch in range(1, 60):
        session = SessionReading(world, request, 11, 100_000, turn)  # type: ignore[arg-type]
        answer = session.read()[0]
        if random.random() < 0.5:
            answers: list[Answer] = []

            def attempt(moved: Any, session: SessionReading = session) -> Answer | None:
                found = session.read_again(moved)[0]
                return found if moved is None else None

            session.wait(500, attempt).then(answers.append)
            for _ in range(random.randrange(4)):
                happen(world, random)
                world.turn()
            world.waiting.release()
            (answer,) = answers
        expected = told_of(
            reading(
                world,
                *(topic(name, *((i, offsets[name, i]) for i in range(3))) for name in "tu"),
                replica_id=replica_id,
            ).read()[0]
        )
        _, number, answer = turn.finish(answer, 0)
        now_told = told_of(answer)
        learnt |= now_told
        assert learnt == expected
        due = {key for key, (error, _, _, size) in expected.items() if error or size}
        assert due <= now_told.keys()
        changed = []
        for key, (_, _, _, size) in now_told.items():
            if size and random.random() < 0.8:
                offsets[key] = world.ends[key]  # type: ignore[index]
                changed.append(topic(key[0] or "", (key[1], offsets[key])))  # type: ignore[index]
        for _ in range(random.randrange(3)):
            happen(world, random)
        learnt = {key: (e, h, s, 0) for key, (e, h, s, _) in learnt.items()}
        request, turn = ask_session(number, epoch, changed)
