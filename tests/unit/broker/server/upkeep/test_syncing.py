"""`flush.messages` beside a disk that takes its time: who waits for it, who does not, and what a failed sync costs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from calls import call_of
from log_kit import NOW_MS, batch
from replica_kit import ScriptedHost, told

from headrace.broker.config.topics import LogConfig
from headrace.broker.errors import ErrorCode, StorageError
from headrace.broker.handlers.produce import handler
from headrace.broker.handlers.refused_writes import RefusedWrites
from headrace.broker.log.appender import Appender
from headrace.broker.log.files import OsFile, OsFiles
from headrace.broker.log.partition_log import PartitionLog
from headrace.broker.replication.partition import Partition
from headrace.broker.server.upkeep.syncing import FlushTimes, Syncs
from headrace.broker.tasks import Tasks
from headrace.broker.waiting.deferred import Deferred
from headrace.broker.waiting.parking import Waiting
from headrace.broker.waiting.round import Round
from headrace.broker.wire import frames
from headrace.broker.wire.api.k00_produce import API

TIMEOUT_S = 20
VERSION = 9


class Disk:
    """Syncs end when `lets_go` is set, with an error when `fails`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.lets_go = Event(), Event()
        self.fails = False
        self.sync_count = 0
        real: Callable[[OsFile], None] = OsFile.sync

        def sync(file: OsFile) -> None:
            self.sync_count += 1
            self.begun.set()
            assert self.lets_go.wait(TIMEOUT_S)
            if self.fails:
                raise OSError(5, "Input/output error")
            real(file)

        monkeypatch.setattr(OsFile, "sync", sync)


class World(SimpleNamespace):
    """Two led partitions, `synced-0` with flush.messages and `free-0` without, on the loop that runs."""

    def __init__(self, folder: Path, flush_messages: int = 1) -> None:
        self.tasks = Tasks()
        waiting = Waiting(asyncio.get_running_loop())
        self.syncs = Syncs(self.tasks, waiting.wake, FlushTimes())
        self.held = {
            name: self._partition(folder / f"{name}-0", name, config)
            for name, config in (("synced", LogConfig(flush_messages=flush_messages)), ("free", LogConfig()))
        }
        super().__init__(
            partitions=SimpleNamespace(
                leader_of=lambda topic, index: self.held[topic], get=lambda topic, index: self.held[topic]
            ),
            waiting=waiting,
            authorizer=None,
            clock=SimpleNamespace(now_ms=lambda: NOW_MS, monotonic_ms=lambda: 0),
            together=Round(),
            metrics=SimpleNamespace(produced=lambda *_: None, failed=lambda *_: None),
            refused_writes=RefusedWrites(),
            metadata=SimpleNamespace(
                partition=lambda topic, index: SimpleNamespace(leader=1, leader_epoch=4)
            ),
        )

    def _partition(self, folder: Path, name: str, config: LogConfig) -> Partition:
        log, _ = PartitionLog.open(OsFiles(), str(folder), config, now_ms=NOW_MS)
        partition = Partition(ScriptedHost(1, self.syncs.request), name, 0, UUID(int=1), log)
        partition.follow(told(epoch=4))
        return partition

    def produce(self, topic: str, *, acks: int = 1, timeout_ms: int = 30_000) -> asyncio.Future[ErrorCode]:
        """The error code of the answer, once there is one."""
        topics = [{"name": topic, "partition_data": [{"index": 0, "records": bytes(batch())}]}]
        body = {"acks": acks, "timeout_ms": timeout_ms, "topic_data": topics}
        frame = memoryview(
            bytearray(
                frames.encode_request_header(0, VERSION, 77, "unit") + API.encode_request(VERSION, body)
            )
        )
        broker: Any = self
        reply, _ = handler.handle_run(broker, call_of(frame), frame, ())
        answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        if isinstance(reply, Deferred):
            reply.then(lambda parts: answer.set_result(code_of(parts)))
        else:
            answer.set_result(code_of(reply))
        return answer


def code_of(parts: Any) -> ErrorCode:
    data = b"".join(parts)
    _, offset = frames.read_response_header(0, VERSION, data[4:])
    (topic,) = API.decode_response(VERSION, data[4:], offset)["responses"]
    return ErrorCode(topic["partition_responses"][0]["error_code"])


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), TIMEOUT_S))


@pytest.mark.parametrize("acks", [1, -1])
def test_only_the_partitions_own_clients_wait_for_its_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, acks: int
) -> None:
    disk = Disk(monkeypatch)

    async def scenario() -> None:
        world = World(tmp_path)
        waits = world.produce("synced", acks=acks)
        await asyncio.to_thread(disk.begun.wait, TIMEOUT_S)
        also = world.produce("synced", acks=acks)
        assert await world.produce("free", acks=acks) is ErrorCode.NONE
        assert not waits.done()
        partition = world.held["synced"]
        assert (partition.log.log_end_offset, partition.high_watermark) == (2, 0), "no reader sees it before"
        disk.lets_go.set()
        assert [await waits, await also] == [ErrorCode.NONE] * 2
        assert (partition.log.recovery_point, partition.high_watermark) == (2, 2)
        await world.tasks.stop()

    run(scenario)


def test_nobody_waits_between_two_syncs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)

    async def scenario() -> None:
        world = World(tmp_path, flush_messages=3)
        assert [await world.produce("synced") for _ in range(2)] == [ErrorCode.NONE] * 2
        assert disk.sync_count == 0
        third = world.produce("synced")
        await asyncio.to_thread(disk.begun.wait, TIMEOUT_S)
        assert (third.done(), world.held["synced"].high_watermark) == (False, 2)
        disk.lets_go.set()
        assert await third is ErrorCode.NONE
        assert await world.produce("synced") is ErrorCode.NONE
        await world.tasks.stop()

    run(scenario)


@pytest.mark.parametrize("acks", [1, -1])
def test_a_failed_sync_acknowledges_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, acks: int
) -> None:
    disk = Disk(monkeypatch)
    disk.fails = True
    disk.lets_go.set()

    async def scenario() -> None:
        world = World(tmp_path)
        assert await world.produce("synced", acks=acks) is ErrorCode.KAFKA_STORAGE_ERROR
        assert world.held["synced"].high_watermark == 0
        assert await world.produce("synced", acks=acks) is ErrorCode.KAFKA_STORAGE_ERROR
        assert world.held["synced"].log.log_end_offset == 1
        await world.tasks.stop()

    run(scenario)


def test_who_waits_too_long_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)

    async def scenario() -> None:
        world = World(tmp_path)
        assert await world.produce("synced", timeout_ms=50) is ErrorCode.REQUEST_TIMED_OUT
        disk.lets_go.set()
        await world.tasks.stop()

    run(scenario)


def test_a_stop_waits_for_a_sync_and_the_log_knows_how_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)

    async def scenario() -> None:
        world = World(tmp_path)
        world.produce("synced")
        await asyncio.to_thread(disk.begun.wait, TIMEOUT_S)
        stopping = asyncio.ensure_future(world.tasks.stop())  # noqa: TID251 - a test's own
        await asyncio.sleep(0.05)
        assert not stopping.done()
        disk.lets_go.set()
        await stopping
        log = world.held["synced"].log
        assert log.recovery_point == 1
        log.close()

    run(scenario)


def test_a_sync_of_housekeepings_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    disk.lets_go.set()

    async def scenario() -> None:
        world = World(tmp_path, flush_messages=2)
        log = world.held["synced"].log
        assert await world.produce("synced") is ErrorCode.NONE
        other = log.flush_task()
        assert other is not None
        waits = [world.produce("synced"), world.produce("synced")]
        await asyncio.sleep(0.05)
        assert not any(each.done() for each in waits)
        log.flushed(other())
        assert [await each for each in waits] == [ErrorCode.NONE] * 2
        await world.tasks.stop()

    run(scenario)


def test_the_error_of_a_failed_sync_is_a_disks(tmp_path: Path) -> None:
    log, _ = PartitionLog.open(OsFiles(), str(tmp_path / "t-0"), LogConfig(flush_messages=1), now_ms=NOW_MS)
    Appender(log).append_as_leader(memoryview(bytearray(batch())), leader_epoch=0, now_ms=NOW_MS)
    log.flush_task()
    log.flushed(None)
    with pytest.raises(StorageError, match="Repair the disk"):
        Appender(log).append_as_leader(memoryview(bytearray(batch())), leader_epoch=0, now_ms=NOW_MS)
