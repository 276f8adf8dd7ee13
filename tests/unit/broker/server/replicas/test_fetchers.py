"""What a broker follows, brought by real fetchers into real logs from a leader that a script plays."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast
from uuid import UUID

import pytest
from log_kit import NOW_MS, batch, open_store
from replica_kit import ScriptedHost

from headrace.broker.clock import SystemClock
from headrace.broker.config.broker import BrokerConfig
from headrace.broker.config.sections import Replication
from headrace.broker.errors import ErrorCode, KafkaError, StorageError
from headrace.broker.handlers.refused_writes import RefusedWrites
from headrace.broker.log.appender import Appender
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.log.store import LogStore
from headrace.broker.replication.control_requests import ToldReplica
from headrace.broker.replication.follower import Command, Follower
from headrace.broker.replication.model import Endpoint, PartitionState
from headrace.broker.replication.partition import Partition
from headrace.broker.replication.versions import versions_of
from headrace.broker.server.replicas.fetcher import NEW_AT_ONCE, TAKEN_AT_ONCE
from headrace.broker.server.replicas.fetchers import ReplicaFetchers, SourceFigures
from headrace.broker.server.replicas.followed import FetchContext
from headrace.broker.server.replicas.throttle import FOLLOWER, ReplicaThrottle
from headrace.broker.server.upkeep.syncing import FlushTimes, Syncs
from headrace.broker.tasks import Tasks
from headrace.broker.wire.api import k01_fetch
from headrace.broker.wire.client.exchange import A, Q, Spoken
from headrace.broker.wire.client.replica_fetch import (
    REPLICA_FETCH,
    DivergingEpoch,
    FetchedPartition,
    FetchQuestion,
    ReplicaFetchAnswer,
    ReplicaFetchRequest,
    WireKey,
)
from headrace.broker.wire.client.view import Address
from headrace.broker.wire.fields import Message
from headrace.broker.wire.partitions import PartitionKey

T = TypeVar("T")
OWN_ID, TOPIC_ID = 1, UUID(int=7)
CONFIG = Replication(replica_fetch_backoff_ms=1, replica_fetch_wait_max_ms=20)


class Leader:
    """Broker `number` with real logs; `spoil(found)` may change what it answers of a partition."""

    def __init__(self, logs: LogStore, epoch: int = 0) -> None:
        self.logs = logs
        self.epoch = epoch
        self.requests: list[ReplicaFetchRequest] = []
        self.listed: list[int] = []
        self.connections = 0
        self.is_silent = False
        self.spoil: Callable[[WireKey, FetchedPartition], FetchedPartition] = lambda _, found: found
        self.moved = asyncio.Event()
        self._asked: dict[WireKey, FetchQuestion] = {}
        self._epoch = 0

    def log(self, number: int = 0) -> PartitionLog:
        return self.logs.create("events", number, TOPIC_ID, now_ms=NOW_MS)

    def append(self, *batches: memoryview, number: int = 0, epoch: int | None = None) -> None:
        log = self.log(number)
        for one in batches:
            leader_epoch = self.epoch if epoch is None else epoch
            Appender(log).append_as_leader(one, leader_epoch=leader_epoch, now_ms=NOW_MS)
        log.advance_high_watermark(log.log_end_offset)
        self.moved.set()

    async def connect(self, address: Address, client_id: str, timeout_ms: int) -> Leader:
        if self.is_silent:
            raise ConnectionRefusedError("nobody listens")
        self.connections += 1
        return self

    def close(self) -> None:
        """It may be connected to again."""

    async def ask(self, api: Spoken[Q, A], highest: int, message: Q, /) -> A:
        if self.is_silent:
            raise ConnectionResetError("gone")
        if api.key == REPLICA_FETCH.key:
            answer = await self._fetch(message)  # type: ignore[arg-type]
            # As it comes over the wire.
            return api.decode_response(highest, memoryview(written(highest, answer)))
        return self._list(message)  # type: ignore[arg-type, return-value]

    async def _fetch(self, request: ReplicaFetchRequest) -> ReplicaFetchAnswer:
        self.requests.append(request)
        if request.session_epoch == 0:
            self._asked, self._epoch = {}, 0
        assert request.session_epoch == self._epoch
        self._epoch += 1
        self._asked.update(request.asked)
        for key in request.forgotten:
            del self._asked[key]
        if not self._asked:
            self._epoch = 0
            return ReplicaFetchAnswer(0, 0, [])
        found = self._all_found(request)
        if not found:
            self.moved.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(request.max_wait_ms / 1000):
                    await self.moved.wait()
            found = self._all_found(request)
        return ReplicaFetchAnswer(0, 5, found)

    def _all_found(self, request: ReplicaFetchRequest) -> list[tuple[WireKey, FetchedPartition]]:
        found = [(key, self.spoil(key, self._found(key, asked))) for key, asked in self._asked.items()]
        if not request.session_epoch:
            return found
        return [one for one in found if one[1].records or one[1].error_code or one[1].diverging]

    def _found(self, key: WireKey, asked: FetchQuestion) -> FetchedPartition:
        log = self.log(key[1])
        end = log.epoch_end_offset(asked.last_epoch)
        if asked.last_epoch >= 0 and (end.leader_epoch < asked.last_epoch or end.end_offset < asked.offset):
            return FetchedPartition(0, 0, 0, DivergingEpoch(end.leader_epoch, end.end_offset), None)
        if not log.log_start_offset <= asked.offset <= log.log_end_offset:
            return FetchedPartition(ErrorCode.OFFSET_OUT_OF_RANGE, -1, -1, None, None)
        read = log.read(asked.offset, size_max=1 << 20, upper_offset=log.log_end_offset).read()
        return FetchedPartition(0, log.high_watermark, log.log_start_offset, None, memoryview(read))

    def _list(self, request: Message) -> Message:
        (topic,) = request["topics"]
        (wanted,) = topic["partitions"]
        self.listed.append(wanted["timestamp"])
        log = self.log(wanted["partition_index"])
        offset = log.log_end_offset if wanted["timestamp"] == -1 else log.log_start_offset
        found = {"partition_index": wanted["partition_index"], "error_code": 0, "offset": offset}
        return {"topics": [{"name": topic["name"], "partitions": [found]}]}


def written(version: int, answer: ReplicaFetchAnswer) -> bytes:
    return k01_fetch.API.encode_response(
        version,
        {
            "error_code": answer.error_code,
            "session_id": answer.session_id,
            "responses": [
                {
                    "topic_id": UUID(bytes=key[0]),
                    "partitions": [
                        {
                            "partition_index": key[1],
                            "error_code": found.error_code,
                            "high_watermark": found.high_watermark,
                            "log_start_offset": found.log_start_offset,
                            "diverging_epoch": {"epoch": -1, "end_offset": -1}
                            if found.diverging is None
                            else found.diverging._asdict(),
                            "aborted_transactions": None,
                            "records": found.records,
                        }
                    ],
                }
                for key, found in answer.partitions
            ],
        },
    )


class Replicas:
    """The broker's own partitions, without a controller."""

    def __init__(self, logs: LogStore) -> None:
        self.logs = logs
        self.changing = asyncio.Lock()
        self.broker_epoch = 99
        self.partitions: dict[PartitionKey, Partition] = {}
        self.host = ScriptedHost(OWN_ID)

    def get(self, topic: str, partition: int) -> Partition | None:
        return self.partitions.get((topic, partition))

    def partition(self, number: int = 0) -> Partition:
        key = ("events", number)
        if key not in self.partitions:
            log = self.logs.create("events", number, TOPIC_ID, now_ms=NOW_MS)
            self.partitions[key] = Partition(self.host, "events", number, TOPIC_ID, log)
        return self.partitions[key]


class Follows:
    """This broker with its fetchers; `leaders` are those that it can reach."""

    def __init__(self, folder: Path, config: Replication) -> None:
        own, _ = open_store(folder / "own")
        self.replicas = Replicas(own)
        self.leaders = {number: Leader(open_store(folder / f"leader-{number}")[0]) for number in (2, 3)}
        self.replicated = 0
        self.refused_writes = RefusedWrites()
        self.is_leaving = False
        self.tasks = Tasks()
        self.throttled = ""
        self.throttle = ReplicaThrottle(
            FOLLOWER, OWN_ID, lambda _, __: self.throttled, SystemClock(), BrokerConfig()
        )
        self.syncs = Syncs(self.tasks, lambda _, __: None, FlushTimes())
        context = FetchContext(
            broker_id=OWN_ID,
            config=config,
            partitions=self.replicas,
            clock=SystemClock(),
            connect=self._connect,
            endpoint=lambda broker: Endpoint(
                listener="PLAINTEXT", security_protocol="PLAINTEXT", host="h", port=broker
            ),
            replicated=self._count,
            refused_writes=self.refused_writes,
            throttle=self.throttle,
            sync=self.syncs.until_none_is_due,
            versions=versions_of("3.9"),
            is_leaving=lambda: self.is_leaving,
        )
        self.fetchers = ReplicaFetchers(context, self.tasks)

    async def _connect(self, address: Address, client_id: str, timeout_ms: int) -> Leader:
        return await self.leaders[address[1]].connect(address, client_id, timeout_ms)

    def _count(self, size: int) -> None:
        self.replicated += size

    def told(self, leader: int = 2, epoch: int = 0, number: int = 0, isr: tuple[int, ...] = ()) -> None:
        """The controller's word; in sync is the leader alone where nothing else is said."""
        state = PartitionState(leader=leader, leader_epoch=epoch, isr=isr or (leader,), controller_epoch=1)
        partition = self.replicas.partition(number)
        partition.follow(ToldReplica("events", TOPIC_ID, number, state, (1, 2, 3)))
        if leader in self.leaders:
            self.leaders[leader].epoch = epoch
        self.fetchers.changed(partition)

    def holds(self, number: int = 0, leader: int = 2) -> bool:
        """Whether the replica holds just what the leader does."""
        return content(self.replicas.partition(number).log) == content(self.leaders[leader].log(number))


def content(log: PartitionLog) -> tuple[int, int, bytes]:
    end = log.log_end_offset
    data = log.read(log.log_start_offset, size_max=1 << 24, upper_offset=end).read() if end else b""
    return log.log_start_offset, end, data


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def run(folder: Path, script: Callable[[Follows], Coroutine[Any, Any, T]], config: Replication = CONFIG) -> T:
    async def play() -> T:
        follows = Follows(folder, config)
        try:
            return await script(follows)
        finally:
            await follows.tasks.stop()

    return asyncio.run(play())


def test_a_follower_gets_what_its_leader_has_and_then_only_asks_for_what_moved(tmp_path: Path) -> None:
    async def script(broker: Follows) -> None:
        leader = broker.leaders[2]
        leader.append(batch(3), batch(2))
        leader.append(batch(4), number=1)
        for number in range(3):
            broker.told(number=number)
        await until(lambda: broker.holds(0) and broker.holds(1))
        assert broker.replicas.partition(0).high_watermark == 5
        assert broker.replicas.host.woken == [broker.replicas.partition(0), broker.replicas.partition(1)]
        first = leader.requests[0]
        assert (first.replica_id, first.broker_epoch, first.session_epoch, len(list(first.asked))) == (
            1,
            99,
            0,
            3,
        )
        leader.append(batch(1), number=2)
        count = len(leader.requests)
        await until(lambda: broker.holds(2) and len(leader.requests) > count + 1)
        later = [
            (number, question.offset)
            for request in leader.requests[1:]
            for (_, number), question in request.asked
        ]
        assert later == [(0, 5), (1, 4), (2, 1)], "what did not move is not asked for again"
        assert list(broker.fetchers.figures()) == [SourceFigures(2, 3, 0, 0)]
        assert broker.replicated == sum(len(content(leader.log(number))[2]) for number in range(3))

    run(tmp_path, script)


def test_a_full_disk_is_told_until_the_follower_writes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise StorageError("No space left on device.")

    async def script(broker: Follows) -> None:
        directory = str(tmp_path / "own")
        with monkeypatch.context() as full:
            full.setattr(Partition, "append_as_follower", refuse)
            broker.leaders[2].append(batch(3))
            broker.told()
            await until(lambda: broker.refused_writes.counts.get(directory, 0) > 1)
            assert list(broker.refused_writes.directories) == [directory]
        await until(broker.holds)
        assert not broker.refused_writes.directories

    run(tmp_path, script)


def test_so_many_fetchers_share_a_leaders_partitions_and_ask_as_is_configured(tmp_path: Path) -> None:
    config = replace(
        CONFIG,
        num_replica_fetchers=3,
        replica_fetch_min_bytes=2,
        replica_fetch_max_bytes=3000,
        replica_fetch_response_max_bytes=40_000,
    )

    async def script(broker: Follows) -> None:
        leader = broker.leaders[2]
        connections: list[Leader] = []

        async def connect(*_: object) -> Leader:
            # Each has a session of its own.
            connections.append(Leader(leader.logs))
            return connections[-1]

        cast("Any", leader).connect = connect
        for number in range(12):
            leader.append(batch(1), number=number)
            broker.told(number=number)
        await until(lambda: all(broker.holds(number) for number in range(12)))
        assert list(broker.fetchers.figures()) == [SourceFigures(2, 12, 0, 0)]
        asked = [{number for r in one.requests for (_, number), _ in r.asked} for one in connections]
        assert sorted(number for numbers in asked for number in numbers) == list(range(12))
        assert len(asked) == 3
        for request in (request for one in connections for request in one.requests):
            sizes = request.min_bytes, request.partition_max_bytes, request.max_bytes, request.max_wait_ms
            assert sizes == (2, 3000, 40_000, 20)

    run(tmp_path, script, config)


def test_many_new_partitions_are_asked_for_some_at_a_time_and_nobody_waits_in_between(tmp_path: Path) -> None:
    count = 2 * NEW_AT_ONCE + 20

    async def script(broker: Follows) -> None:
        leader = broker.leaders[2]
        leader.append(batch(1), number=0)
        broker.told(number=0)
        await until(lambda: broker.holds(0) and len(leader.requests) > 2)
        before = len(leader.requests)
        for number in range(1, count):
            leader.append(batch(1), number=number)
            broker.told(number=number)
        await until(lambda: all(broker.holds(number) for number in range(count)))
        await until(lambda: leader.requests[-1].max_wait_ms == CONFIG.replica_fetch_wait_max_ms)
        seen: set[WireKey] = set()
        sizes = []
        for request in leader.requests[before:]:
            new = {key for key, _ in request.asked} - seen
            seen |= new
            if new:
                sizes.append((len(new), request.max_wait_ms))
        first = NEW_AT_ONCE, 0
        assert sizes == [first, first, (19, CONFIG.replica_fetch_wait_max_ms)]

    run(tmp_path, script)


def test_where_logs_part_the_followers_is_cut(tmp_path: Path) -> None:
    async def script(broker: Follows) -> None:
        own = broker.replicas.partition()
        # Epoch 1 has 4 messages of which the leader has 2; epoch 2 only this broker has.
        for epoch in (0, 0, 0, 1, 1, 1, 1, 2, 2):
            Appender(own.log).append_as_leader(batch(), leader_epoch=epoch, now_ms=NOW_MS)
        leader = broker.leaders[2]
        leader.append(batch(), batch(), batch(), epoch=0)
        leader.append(batch(), batch(), epoch=1)
        leader.append(batch(6), epoch=3)
        broker.told(epoch=3)
        await until(broker.holds)
        assert own.log.body.epochs.entries == [(0, 0), (1, 3), (3, 5)]

    run(tmp_path, script)


def test_who_led_and_appended_nothing_follows_without_a_cut(tmp_path: Path) -> None:
    async def script(broker: Follows) -> None:
        own = broker.replicas.partition()
        Appender(own.log).append_as_leader(batch(3), leader_epoch=0, now_ms=NOW_MS)
        own.log.assign_epoch(4)
        leader = broker.leaders[2]
        leader.append(batch(3), epoch=0)
        leader.append(batch(1), epoch=5)
        generation = own.log.body.segments.generation
        broker.told(epoch=5)
        await until(broker.holds)
        assert own.log.body.epochs.entries == [(0, 0), (5, 3)]
        assert own.log.body.segments.generation == generation

    run(tmp_path, script)


def test_what_the_leader_no_longer_has_is_not_waited_for(tmp_path: Path) -> None:
    async def script(broker: Follows) -> None:
        leader = broker.leaders[2]
        leader.append(*(batch(5) for _ in range(4)))
        leader.log().delete_before(10)
        own = broker.replicas.partition()
        Appender(own.log).append_as_leader(batch(2), leader_epoch=0, now_ms=NOW_MS)
        broker.told()
        await until(broker.holds)
        assert leader.listed == [-1, -2], "the leader's end, then its begin"
        assert own.log.log_start_offset == own.log.high_watermark - 10 == 10

    run(tmp_path, script)


def test_a_leaders_log_that_begins_inside_a_batch_is_followed(tmp_path: Path) -> None:
    async def script(broker: Follows) -> None:
        leader = broker.leaders[2]
        leader.append(*(batch(5) for _ in range(4)))
        leader.log().delete_before(12)
        broker.told()
        own = broker.replicas.partition().log
        await until(lambda: own.log_end_offset == 20)
        assert own.log_start_offset == 12
        assert next(iter(own.body.segments)).base_offset == 10, "it begins with the whole batch"

    run(tmp_path, script)


@pytest.mark.parametrize("place", [30, 3], ids=["checksum", "offset"])
def test_bad_batches_are_not_appended_and_keep_nobody_else_waiting(
    tmp_path: Path, place: int, capsys: pytest.CaptureFixture[str]
) -> None:
    async def script(broker: Follows) -> None:
        leader, rot = broker.leaders[2], [True]

        def spoil(key: WireKey, found: FetchedPartition) -> FetchedPartition:
            if not found.records or key[1] != 0 or not rot[0]:
                return found
            records = bytearray(found.records)
            records[place] ^= 0x80
            return found._replace(records=memoryview(records))

        leader.spoil = spoil
        leader.append(batch(3), number=0)
        leader.append(batch(3), number=1)
        broker.told(number=0)
        broker.told(number=1)
        await until(lambda: broker.holds(1) and len(leader.requests) > 8)
        if place == 30:
            assert broker.replicas.partition(0).log.log_end_offset == 0
        rot[0] = False
        leader.append(batch(1), number=1)
        if place == 30:
            await until(lambda: broker.holds(0) and broker.holds(1))

    run(tmp_path, script)


def test_a_leader_that_is_gone_is_found_again_and_asked_for_all(tmp_path: Path) -> None:
    async def script(broker: Follows) -> None:
        leader = broker.leaders[2]
        leader.is_silent = True
        broker.told()
        await asyncio.sleep(0.01)
        assert not leader.connections
        leader.is_silent = False
        leader.append(batch(1))
        await until(broker.holds)
        leader.is_silent = True
        leader.append(batch(1))
        leader.is_silent = False
        await until(broker.holds)
        leader.append(batch(2))
        await until(broker.holds)

    run(tmp_path, script)


def test_a_partition_goes_to_its_new_leader_and_the_old_ones_answers_are_void(tmp_path: Path) -> None:
    async def script(broker: Follows) -> None:
        old, new = broker.leaders[2], broker.leaders[3]
        old.append(batch(2))
        broker.told()
        await until(broker.holds)
        new.append(batch(2), epoch=0)
        new.append(batch(1), epoch=1)
        broker.told(leader=3, epoch=1)
        # It still answers the request that is under way.
        old.append(batch(7))
        await until(lambda: broker.holds(leader=3))
        await asyncio.sleep(0.01)
        assert broker.holds(leader=3)
        assert [figures.source for figures in broker.fetchers.figures()] == [3], "nobody asks the old one"

    run(tmp_path, script)


def test_what_is_led_stopped_or_deleted_is_not_fetched_any_more(tmp_path: Path) -> None:
    async def script(broker: Follows) -> None:
        leader = broker.leaders[2]
        for number in range(3):
            leader.append(batch(1), number=number)
            broker.told(number=number)
        await until(lambda: all(broker.holds(number) for number in range(3)))
        broker.told(leader=OWN_ID, epoch=1, number=0)
        stopped = broker.replicas.partition(1)
        stopped.stop()
        broker.fetchers.changed(stopped)
        deleted = broker.replicas.partitions.pop(("events", 2))
        broker.fetchers.changed(deleted)
        for number in range(3):
            leader.append(batch(1), number=number)
        await until(lambda: not list(broker.fetchers.figures()))
        ends = [
            partition.log.log_end_offset for partition in (broker.replicas.partition(0), stopped, deleted)
        ]
        assert ends == [1, 1, 1]

    run(tmp_path, script)


def test_who_is_about_to_stop_follows_only_where_somebody_waits_for_it(tmp_path: Path) -> None:
    async def script(broker: Follows) -> None:
        leader = broker.leaders[2]
        for number in range(3):
            leader.append(batch(1), number=number)
            broker.told(number=number, leader=2 if number == 0 else OWN_ID)
        await until(lambda: broker.holds(0))
        broker.is_leaving = True
        broker.told(number=1, epoch=1)
        broker.told(number=2, epoch=1, isr=(2, OWN_ID))
        leader.append(batch(1), number=0, epoch=0)
        await until(lambda: broker.holds(0) and broker.holds(2))
        assert broker.replicas.partition(1).log.log_end_offset == 0
        assert list(broker.fetchers.figures()) == [SourceFigures(2, 2, 0, 0)]

    run(tmp_path, script)


def test_a_leader_in_a_later_epoch_fails_the_partition_until_the_controller_tells(tmp_path: Path) -> None:
    async def script(broker: Follows) -> None:
        leader = broker.leaders[2]

        def fence(key: WireKey, found: FetchedPartition) -> FetchedPartition:
            asked = dict(leader.requests[-1].asked).get(key)
            is_old = asked is not None and asked.leader_epoch < 4
            return FetchedPartition(ErrorCode.FENCED_LEADER_EPOCH, -1, -1, None, None) if is_old else found

        leader.spoil = fence
        leader.append(batch(1))
        broker.told(epoch=3)
        await until(lambda: list(broker.fetchers.figures()) == [SourceFigures(2, 1, 0, 1)])
        count = len(leader.requests)
        broker.told(epoch=4)
        await until(broker.holds)
        assert count <= 2

    run(tmp_path, script)


def test_an_answer_of_many_partitions_is_told_in_one_line_and_others_have_their_turns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, turns = 2 * TAKEN_AT_ONCE + 1, 0
    seen: set[int] = set()
    answered = Follower.answered

    def noted(follower: Follower, found: FetchedPartition, now_ms: int) -> Command | None:
        seen.add(turns)
        return answered(follower, found, now_ms)

    monkeypatch.setattr(Follower, "answered", noted)
    monkeypatch.setattr("headrace.broker.server.replicas.fetcher.NEW_AT_ONCE", count)

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def script(broker: Follows) -> None:
        fenced = FetchedPartition(ErrorCode.FENCED_LEADER_EPOCH, -1, -1, None, None)
        broker.leaders[2].spoil = lambda _, __: fenced
        for number in range(count):
            broker.told(number=number)
        broker.tasks.start("others", others())
        await until(lambda: list(broker.fetchers.figures()) == [SourceFigures(2, count, 0, count)])

    with caplog.at_level(logging.INFO):
        run(tmp_path, script)
    assert len(seen) == 3
    (facts,) = [r.facts for r in caplog.records if r.getMessage() == "partitions are followed later"]  # type: ignore[attr-defined]
    assert (facts["partitions"], facts["first"], facts["leader"]) == (count, "events-0", 2)
    assert "partition cannot be followed" not in caplog.text


def test_batches_of_an_epoch_that_is_followed_no_more_are_not_appended(tmp_path: Path) -> None:
    async def script(broker: Follows) -> None:
        partition = broker.replicas.partition()
        broker.told(leader=2, epoch=3)
        with pytest.raises(KafkaError, match="not followed in leader epoch 2"):
            partition.append_as_follower(batch(1, at=0), leader_epoch=2, now_ms=NOW_MS)
        with pytest.raises(KafkaError, match="has leader epoch 7, above 3"):
            partition.append_as_follower(batch(1, at=0), leader_epoch=3, now_ms=NOW_MS)
        assert partition.log.log_end_offset == 0

    run(tmp_path, script)


def test_with_flush_messages_a_leader_is_told_of_what_is_on_the_disk(tmp_path: Path) -> None:
    async def script(broker: Follows) -> None:
        leader, own = broker.leaders[2], broker.replicas.partition().log
        own.update_config(replace(own.config, flush_messages=2))
        points: dict[int, int] = {}

        def look(_: WireKey, found: FetchedPartition) -> FetchedPartition:
            for _, question in leader.requests[-1].asked:
                points[question.offset] = own.recovery_point
            return found

        leader.spoil = look
        for _ in range(4):
            leader.append(batch(1))
            broker.told()
            await until(broker.holds)
            end = own.log_end_offset
            await until(lambda: end in points)  # noqa: B023
        assert points == {0: 0, 1: 0, 2: 2, 3: 2, 4: 4}

    run(tmp_path, script)


def test_a_throttle_holds_back_what_it_covers_and_what_is_out_of_sync(tmp_path: Path) -> None:
    async def script(broker: Follows) -> None:
        leader = broker.leaders[2]
        for number in range(3):
            leader.append(batch(1), number=number)
            broker.told(number=number)
        await until(lambda: all(broker.holds(number) for number in range(3)))
        broker.throttled = f"0:{OWN_ID},1:{OWN_ID},2:9"
        limited = BrokerConfig.from_properties({"follower.replication.throttled.rate": "1"})[0]
        broker.throttle.use_config(limited)
        # In sync, it counts, and is not held back.
        leader.append(batch(1), number=0)
        await until(lambda: broker.holds(0))
        assert broker.throttle.is_exceeded
        # A replica that has to catch up waits; one that the throttle does not cover, and those in sync, go on.
        broker.told(number=1, epoch=1)
        leader.append(batch(1), number=1)
        for number in (0, 2):
            leader.append(batch(1), number=number, epoch=0)
        await until(lambda: broker.holds(0) and broker.holds(2))
        assert not broker.holds(1)
        broker.throttle.use_config(BrokerConfig())
        await until(lambda: broker.holds(1))

    run(tmp_path, script)
